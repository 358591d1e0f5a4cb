"""Saved conversations: written and read again, and invalid files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trinity.errors import InputError
from trinity.tools import saved_conversation
from trinity.tools.saved_conversation import read_conversation, write_conversation

MESSAGES = [
    {"role": "system", "content": "be"},
    {"role": "user", "content": "\u00e4\n\u4e2d \U0001f600 \u2028"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]},
]  # fmt: skip


def test_round_trip(tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    write_conversation(path, MESSAGES)
    assert read_conversation(path) == (MESSAGES, [])
    assert json.loads(Path(path).read_text("utf-8")) == {"messages": MESSAGES}


def test_other_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(MESSAGES).encode())
    assert read_conversation(str(path)) == (MESSAGES, [])
    path.write_text(json.dumps({"model": "m", "messages": MESSAGES, "n": 1}), "utf-8")
    assert read_conversation(str(path)) == (MESSAGES, ["model", "n"])


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists"):
        write_conversation(str(path), MESSAGES)
    assert path.read_text() == "mine"
    write_conversation(str(path), MESSAGES, overwrite=True)
    assert read_conversation(str(path))[0] == MESSAGES


@pytest.mark.skipif(os.name == "nt", reason="POSIX devices")
def test_devices_are_neither_replaced_nor_read() -> None:
    with pytest.raises(InputError, match="not a regular file"):
        write_conversation("/dev/null", MESSAGES, overwrite=True)
    with pytest.raises(InputError, match="not a regular file"):
        read_conversation("/dev/zero")


@pytest.mark.parametrize("name", ["", "no/such/folder/a", "a\0b", "."])
def test_places_where_nothing_can_be(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}"
    with pytest.raises(InputError):
        write_conversation(path, MESSAGES)
    with pytest.raises(InputError):
        read_conversation(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b"[NaN]", "not valid JSON"),
        (b'[{"role": "user", "content": "\\ud800"}]', "not valid JSON"),
        (b"9" * 5000, "not valid JSON"),
        (b'"text"', "not a conversation"),
        (b"{}", "not a conversation"),
        (b'{"messages": {}}', "not a conversation"),
        (b"[]", "at least one message"),
        (b"[1]", "message 0"),
        (b'[{"role": 1, "content": "a"}]', "message 0"),
        (b'[{"role": "user"}]', "message 0"),
        (b'[{"role": "user", "content": 1}]', "message 0"),
        (b'[{"role": "user", "content": [{"type": "image_url"}]}]', "has no image"),
    ],
)
def test_no_conversation(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=message) as error:
        read_conversation(str(path))
    assert str(error.value).startswith(str(path))


def test_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_conversation, "LARGEST", 10)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(MESSAGES))
    with pytest.raises(InputError, match="more than 10 bytes"):
        read_conversation(str(path))
