"""Stored responses in a state folder: a later process finds as many as the limits allow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from tests.server.conftest import MakeApp
from trinity.errors import InputError
from trinity.server.errors import ApiError
from trinity.server.kept_responses import KeptResponses, kept_response
from trinity.server.response_files import ResponseFiles

PATH = "/v1/responses"
GREEDY: Any = {"temperature": 0, "max_output_tokens": 8}
NAMES = [f"resp_{number:032x}" for number in range(5)]


def client_of(make: MakeApp, folder: Path) -> TestClient:
    return TestClient(make(state=folder), base_url="http://localhost")


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={**GREEDY, **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_later_process_continues_a_conversation(make: MakeApp, tmp_path: Path) -> None:
    with client_of(make, tmp_path) as client:
        first = post(client, input="Who was Pierre?")
        second = post(client, input="And Andrew?", previous_response_id=first["id"])
        wanted = post(client, input="Why?", previous_response_id=second["id"], store=False)
    assert (tmp_path / "responses").stat().st_mode & 0o777 == 0o700
    with client_of(make, tmp_path) as client:
        assert client.get(f"{PATH}/{second['id']}").json() == second
        items = client.get(f"{PATH}/{first['id']}/input_items").json()["data"]
        assert items[0]["content"][0]["text"] == "Who was Pierre?"
        third = post(client, input="Why?", previous_response_id=second["id"])
        assert third["output"][0]["content"] == wanted["output"][0]["content"]
        assert third["usage"]["input_tokens"] == wanted["usage"]["input_tokens"]
        assert client.delete(f"{PATH}/{first['id']}").json()["deleted"]
    with client_of(make, tmp_path) as client:
        assert client.get(f"{PATH}/{first['id']}").status_code == 404
        assert client.get(f"{PATH}/{third['id']}").json() == third


def test_what_must_not_be_stored_is_in_no_file(make: MakeApp, tmp_path: Path) -> None:
    with client_of(make, tmp_path) as client:
        post(client, input="Who was Pierre?", store=False)
    assert not list((tmp_path / "responses").iterdir())


def test_a_response_that_a_process_left_incomplete_has_failed(
    make: MakeApp, tmp_path: Path
) -> None:
    with client_of(make, tmp_path) as client:
        made = post(client, input="Who was Pierre?", background=True, max_output_tokens=400)
        (file,) = (tmp_path / "responses").iterdir()
        began = file.read_bytes()
        client.post(f"{PATH}/{made['id']}/cancel").raise_for_status()
    with client_of(make, tmp_path) as client:
        assert client.get(f"{PATH}/{made['id']}").json()["status"] == "cancelled"
    file.write_bytes(began)  # as a process that was killed leaves it
    with client_of(make, tmp_path) as client:
        found = client.get(f"{PATH}/{made['id']}").json()
    assert (found["status"], found["error"]["code"]) == ("failed", "server_error")


def body_of(name: str, text: str) -> bytes:
    output = [{"id": f"msg_{name}", "text": text}]
    return msgspec.json.encode({"id": name, "status": "completed", "output": output})


def written(folder: Path, texts: list[str]) -> ResponseFiles:
    """Files of responses, each a second newer than the one before."""
    files = ResponseFiles(folder)
    for number, text in enumerate(texts):
        name = NAMES[number]
        files.write(name, kept_response(body_of(name, text), [{"text": text}], None))
        os.utime(folder / f"{name}.json", (number, number))
    return files


def test_the_newest_are_read_and_the_others_removed(tmp_path: Path) -> None:
    files = written(tmp_path, list("abcde"))
    kept = KeptResponses(most=2, files=files)
    assert [one.output[0]["text"] for one in kept.newest_first()] == ["e", "d"]
    assert sorted(entry.stem for entry in tmp_path.iterdir()) == NAMES[3:]


def test_bytes_are_limited(tmp_path: Path) -> None:
    files = written(tmp_path, ["x" * 1000, "x" * 1000, "x" * 1000])
    size = (tmp_path / f"{NAMES[0]}.json").stat().st_size
    kept = KeptResponses(most_bytes=2 * size + 10, files=files)
    assert len(kept.newest_first()) == 2
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"body": {}, "input": [], "earlier": []}', b"[" * 100_000,
     b'{"body": {"id": "resp_1", "status": "completed", "output": []}, "input": [], "earlier": []}',
     b'{"body": 1, "input": [], "earlier": []}'],
)  # fmt: skip
def test_a_damaged_file_is_removed(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files = written(tmp_path, ["a", "b"])
    damaged = tmp_path / f"{NAMES[0]}.json"
    damaged.write_bytes(content)
    (tmp_path / "note.txt").write_text("mine")
    (tmp_path / f"{NAMES[4]}.json").symlink_to("note.txt")
    kept = KeptResponses(files=files)
    assert [one.output[0]["text"] for one in kept.newest_first()] == ["b"]
    assert NAMES[0] in caplog.text
    assert not damaged.exists()
    assert (tmp_path / "note.txt").read_text() == "mine"


def test_a_full_disk_leaves_the_response_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = ResponseFiles(tmp_path)
    kept = KeptResponses(files=files)
    monkeypatch.setattr(files, "write", full)
    asyncio.run(kept.store(at_once, NAMES[0], kept_response(body_of(NAMES[0], "a"), [], None)))
    assert kept.find(NAMES[0])
    assert "only in memory" in caplog.text


async def at_once(function: Callable[..., Any], *given: Any) -> Any:
    return function(*given)


def full(*given: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_is_too_large_is_neither_kept_nor_written(tmp_path: Path) -> None:
    kept = KeptResponses(most_bytes=10, files=ResponseFiles(tmp_path))
    asyncio.run(kept.begin(at_once, NAMES[0], kept_response(body_of(NAMES[0], ""), [], None)))
    too_large = kept_response(body_of(NAMES[0], "x" * 100), [], None)
    asyncio.run(kept.store(at_once, NAMES[0], too_large))
    assert not list(tmp_path.iterdir())
    with pytest.raises(ApiError):
        kept.find(NAMES[0])


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "responses").write_text("")
    with pytest.raises(InputError, match="--state"):
        ResponseFiles(tmp_path / "responses")
