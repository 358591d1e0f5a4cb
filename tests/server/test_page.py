"""Files of the chat page: types, headers, no references to other hosts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import MakeApp
from trinity.server.endpoints.page import FOLDER, INDEX, TYPES

NAMES = sorted(file.name for file in FOLDER.iterdir())
OWN = [name for name in NAMES if not name.startswith(("marked.", "temml."))]


def path_of(name: str) -> str:
    return "/" if name == INDEX else f"/page/{name}"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_served_with_its_type_and_a_strict_policy(client: TestClient, name: str) -> None:
    response = client.get(path_of(name))
    assert (response.status_code, response.content) == (200, (FOLDER / name).read_bytes())
    kind = response.headers["content-type"]
    assert kind.partition(";")[0] == {
        "html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml",
        "LICENSE": "text/plain",
    }[name.rpartition(".")[2]]  # fmt: skip
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    policy = dict(
        one.strip().split(" ", 1) for one in response.headers["content-security-policy"].split(";")
    )
    assert policy == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'",
        "connect-src": "'self'", "img-src": "'self' data:", "base-uri": "'none'",
        "form-action": "'none'", "frame-ancestors": "'none'",
    }  # fmt: skip


@pytest.mark.parametrize("name", [INDEX, "page.js"])
def test_a_file_that_the_browser_has_is_not_sent_again(client: TestClient, name: str) -> None:
    first = client.get(path_of(name))
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for known, status in [(tag, 304), (f"W/{tag}", 304), (f'"x", {tag}', 304), ('"x"', 200)]:
        response = client.get(path_of(name), headers={"If-None-Match": known})
        assert response.status_code == status
        assert response.headers["etag"] == tag
        assert bool(response.content) == (status == 200)
    assert client.head(path_of(name)).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/page", "/page/", "/page/index.html", "/page/../app.py", "/page/%2e%2e/app.py", "/page.js",
     "/page/..%2fapp.py", "/page/__init__.py"],
)  # fmt: skip
def test_nothing_else_of_the_package_can_be_asked_for(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_page_needs_no_key_but_what_it_asks_for_does(make: MakeApp) -> None:
    client = TestClient(make(api_key=["a-key-of-all"]), base_url="http://localhost")
    for name in NAMES:
        assert client.get(path_of(name)).status_code == 200
    for path in ("/v1/models", "/metrics"):
        assert client.get(path).status_code == 401
    assert client.post("/v1/chat/completions", json={}).status_code == 401
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"Origin": "https://evil.example"}).status_code == 403


def test_the_page_can_be_turned_off(make: MakeApp) -> None:
    client = TestClient(make(disable=["/"]), base_url="http://localhost")
    assert client.get("/").status_code == 404


@pytest.mark.parametrize("name", OWN)
def test_own_files_name_no_other_place_and_make_no_markup_of_text(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"""["'(]//\w""", text)
    ways = r"(inner|outer|insertAdjacent|set)HTML|document\.write|\beval\(|new Function|DOMParser"
    assert not re.search(rf"{ways}|srcdoc|createContextualFragment", text)
    assert len(text.splitlines()) <= 400


def test_the_document_has_everything_that_policy_forbids_inline_outside(client: TestClient) -> None:
    text = client.get("/").text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|<iframe|<base", text)
    asked = re.findall(r'(?:src|href)="([^"#]+)"', text)
    assert asked
    for place in asked:
        assert client.get(f"/{place}").status_code == 200


def test_modules_import_what_is_served(client: TestClient) -> None:
    for name in (name for name in OWN if name.endswith(".js")):
        for other in re.findall(r'from "([^"]+)"', (FOLDER / name).read_text()):
            assert other.startswith("./")
            assert client.get(f"/page/{other[2:]}").status_code == 200


def test_every_file_has_a_known_type_and_libraries_their_licences() -> None:
    assert {file.suffix for file in FOLDER.iterdir()} <= set(TYPES)
    assert "MarkedJS" in (FOLDER / "marked.LICENSE").read_text()
    assert "MIT License" in (FOLDER / "marked.js").read_text()[:500]
    assert "MIT License" in (FOLDER / "temml.LICENSE").read_text()
    assert "MIT License" in (FOLDER / "temml.js").read_text()[:100]


def test_the_page_loads_little_and_the_library_of_mathematics_is_bounded() -> None:
    sizes = {name: (FOLDER / name).stat().st_size for name in NAMES}
    assert sizes.pop("temml.js") < 180_000  # loaded when a response has mathematics
    assert sum(sizes.values()) < 130_000


def test_memory_and_processor_time_are_among_the_figures(client: TestClient) -> None:
    figures: dict[str, Any] = dict(
        line.split(" ") for line in client.get("/metrics").text.splitlines() if line[0] != "#"
    )
    assert float(figures["process_resident_memory_bytes"]) > 1e7
    assert float(figures["process_cpu_seconds_total"]) > 0
