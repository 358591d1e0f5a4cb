"""Slots that are saved, restored and erased through llama.cpp's endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import strict
from tests.server.conftest import MakeApp
from trinity.errors import InputError
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.setting_values import check_folder
from trinity.server.settings import ServerOptions

PROMPT = list(range(20, 60))
OTHER = [*PROMPT[:30], *range(100, 110)]


@pytest.fixture
def client(make: MakeApp, tmp_path: Path) -> TestClient:
    """A server that saves slots, all of them empty."""
    client = TestClient(make(slot_save_path=str(tmp_path)), base_url="http://localhost")
    for slot in range(4):
        act(client, slot, "erase")
    return client


def act(client: TestClient, slot: int, action: str, **body: Any) -> Any:
    found = client.post(f"/slots/{slot}?action={action}", json=body or None)
    assert found.status_code == 200, found.text
    return strict(found.text)


def ask(client: TestClient, prompt: list[int], slot: int) -> tuple[int, list[int]]:
    """Return the number of computed prompt tokens, and the response's tokens."""
    body = {"prompt": prompt, "id_slot": slot, "n_predict": 5, "temperature": 0,
            "ignore_eos": True, "return_tokens": True}  # fmt: skip
    found = client.post("/completion", json=body)
    assert found.status_code == 200, found.text
    answer = strict(found.text)
    return answer["timings"]["prompt_n"], answer["tokens"]


def test_a_restored_slot_goes_on_from_what_was_saved(client: TestClient) -> None:
    evaluated, alone = ask(client, OTHER, 3)
    assert evaluated == 40
    assert ask(client, PROMPT, 1)[0] == 40
    saved = act(client, 1, "save", filename="one.bin")
    # The answer's last token was not evaluated.
    assert (saved["id_slot"], saved["n_saved"]) == (1, 44)
    assert ask(client, OTHER, 1) == (10, alone)
    restored = act(client, 0, "restore", filename="one.bin")
    assert (restored["n_restored"], restored["n_read"]) == (44, saved["n_written"])
    assert ask(client, OTHER, 0) == (10, alone)
    assert ask(client, OTHER, 1) == (1, alone)


def test_an_erased_slot_begins_anew(client: TestClient) -> None:
    assert ask(client, PROMPT, 1)[0] == 40
    assert ask(client, PROMPT, 1)[0] == 1
    assert act(client, 1, "erase")["n_erased"] == 44
    assert ask(client, PROMPT, 1)[0] == 40


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_slots_outlive_the_server(tmp_path: Path, kv_type: str) -> None:
    found = []
    options: Any = {"threads": 1, "batch_invariant": True, "kv_type": kv_type}
    for action in ("save", "restore"):
        with trinity.load(trinity.demo_model(), **options) as model:
            served = Served("demo", "", lambda model=model: model, model=model)  # type: ignore[misc]
            app = make_app(Models([served]), ServerOptions(slot_save_path=str(tmp_path)))
            client = TestClient(app, base_url="http://localhost")
            if action == "save":
                ask(client, PROMPT, 0)
                found.append(ask(client, OTHER, 1))
                act(client, 0, action, filename="s")
            else:
                act(client, 2, action, filename="s")
                found.append(ask(client, OTHER, 2))
    assert [count for count, _ in found] == [40, 10]
    assert found[0][1] == found[1][1]


def cut(data: bytes) -> bytes:
    return data[:-1]


def grown(data: bytes) -> bytes:
    return data + b"\0"


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def other_token(data: bytes) -> bytes:
    return data[:24] + b"\xff\xff\xff\x3f" + data[28:]


def many_words(data: bytes) -> bytes:
    return data[:8] + b"\xff\xff\xff\xff" + data[12:]


def other_model(data: bytes) -> bytes:
    place = data.index(b'"model": "') + 10
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def no_header(data: bytes) -> bytes:
    return data.replace(b'{"model', b'["model', 1)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (cut, "bytes"), (grown, "bytes"), (flipped, "damaged"), (other_token, "tokens"),
        (many_words, "words"), (other_model, "model"), (no_header, "header"),
        (lambda data: b"", "left"), (lambda data: b"GGUF" + data[4:], "begin"),
        (lambda data: data[:4] + b"\x09" + data[5:], "version"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_and_the_slot_stays(
    client: TestClient, tmp_path: Path, damage: Callable[[bytes], bytes], word: str
) -> None:
    ask(client, PROMPT, 1)
    act(client, 1, "save", filename="s.bin")
    path = tmp_path / "s.bin"
    path.write_bytes(damage(path.read_bytes()))
    found = client.post("/slots/1?action=restore", json={"filename": "s.bin"})
    assert found.status_code == 400
    message = strict(found.text)["error"]["message"]
    assert word in message
    assert message.startswith("s.bin: ")  # the folder is not the client's to know
    assert str(tmp_path) not in message
    assert ask(client, PROMPT, 1)[0] == 1


def test_tokens_without_their_count_are_read(client: TestClient, tmp_path: Path) -> None:
    """llama.cpp's server also reads such files of its older versions."""
    ask(client, PROMPT, 1)
    act(client, 1, "save", filename="s.bin")
    path = tmp_path / "s.bin"
    data = path.read_bytes()
    path.write_bytes(data[:8] + (44).to_bytes(4, "little") + data[24:])
    assert act(client, 0, "restore", filename="s.bin")["n_restored"] == 44
    assert ask(client, OTHER, 0)[0] == 10


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../s", "/tmp/s", "a/b", "a\\b", ".s", "s\0", "s."]
)
@pytest.mark.parametrize("action", ["save", "restore"])
def test_a_file_has_a_plain_name(client: TestClient, name: str, action: str) -> None:
    ask(client, PROMPT, 1)
    found = client.post(f"/slots/1?action={action}", json={"filename": name})
    assert found.status_code == 400
    assert strict(found.text)["error"]["param"] == "filename"


def test_links_are_not_followed(client: TestClient, tmp_path: Path) -> None:
    ask(client, PROMPT, 1)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for action in ("save", "restore"):
        found = client.post(f"/slots/1?action={action}", json={"filename": "link"})
        assert found.status_code == 400
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("path", "status"),
    [("1?action=save", 400), ("1?action=move", 400), ("1", 400), ("x?action=erase", 400),
     ("-1?action=erase", 400), ("99999?action=erase", 400)],
)  # fmt: skip
def test_what_cannot_be_done(client: TestClient, path: str, status: int) -> None:
    # Of slot 1 nothing is there.
    assert client.post(f"/slots/{path}", json={"filename": "s"}).status_code == status


def test_without_a_folder_slots_are_shared(make: MakeApp) -> None:
    client = TestClient(make(), base_url="http://localhost")
    assert client.post("/slots/1?action=erase").status_code == 400
    prompt = list(range(200, 240))
    assert ask(client, prompt, 1)[0] == 40
    assert ask(client, prompt, 0)[0] == 1


def test_a_missing_folder_for_slots_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    expected = "slots cannot be saved there (No such file or directory); create the folder"
    with pytest.raises(InputError, match=re.escape(f"{folder}: {expected}")):
        check_folder(folder)
