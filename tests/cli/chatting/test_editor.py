"""The line editor of `trinity chat`: keys, pasted text and the history, without a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from trinity.cli import chat
from trinity.cli.chatting import history
from trinity.cli.chatting.editor import Editor, InputCompleter
from trinity.cli.chatting.history import KeptHistory, state_folder

UP, LEFT = "\x1b[A", "\x1b[D"
COMPLETER = InputCompleter({"/set": ["seed", "stop"], "/save": None, "/reset": ()})


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("hello\r", "hello"),
        (f"helo{LEFT}l\r", "hello"),
        (paste("a\nb\\\n\nc") + "\r", "a\nb\\\n\nc"),
        (paste("a\r\nb") + " and\r", "a\nb and"),
        (paste("/reset\nb") + "\r", "/reset\nb"),
        ("a\\\rb\\\rc\r", "a\nb\nc"),
        ("a\x1b\rb\r", "a\nb"),
        ('"""\ra\\\rb\r"""\r', '"""\na\\\nb\n"""'),
        ('/system """a\rb"""\r', '/system """a\nb"""'),
        ('"""a""" b\r', '"""a""" b'),
        (paste('"""Doc."""\nx = 1') + "\r", '"""Doc."""\nx = 1'),
        ("\u00e4\u4e2d\U0001f600\r", "\u00e4\u4e2d\U0001f600"),
    ],
)
def test_entry(keys: PipeInput, typed: str, text: str) -> None:
    keys.send_text(typed)
    assert Editor(COMPLETER).read() == text


def test_bytes_that_are_no_text(keys: PipeInput) -> None:
    keys.send_bytes(b"a\xffb\r")
    assert Editor(COMPLETER).read() == "a?b"


def test_ctrl_c_and_ctrl_d(keys: PipeInput) -> None:
    editor = Editor(COMPLETER)
    keys.send_text("half\x03")
    with pytest.raises(KeyboardInterrupt):
        editor.read()
    keys.send_text("\x04")
    with pytest.raises(EOFError):
        editor.read()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/", ["/reset", "/save", "/set"]),
        ("/se", ["/set"]),
        ("/set s", ["seed", "stop"]),
        ("/set st", ["stop"]),
        ("/reset ", []),
        ("/none ", []),
        ("se", []),
        ("hello /se", []),
        ("", []),
    ],
)
def test_completion(text: str, expected: list[str]) -> None:
    found = list(COMPLETER.get_completions(Document(text), CompleteEvent()))
    assert sorted(one.text for one in found) == expected
    assert all(one.start_position == -len(text.split(" ")[-1]) for one in found)


def test_completion_of_a_path(tmp_path: Path) -> None:
    (tmp_path / "talk.json").touch()
    found = COMPLETER.get_completions(Document(f"/save {tmp_path}/ta"), CompleteEvent())
    assert [one.text for one in found] == ["lk.json"]


def test_history_goes_from_session_to_session(keys: PipeInput, tmp_path: Path) -> None:
    path = tmp_path / "state" / "trinity" / "chat_history"
    keys.send_text("first\r" + paste("a\nb") + "\r")
    editor = Editor(COMPLETER, KeptHistory(path))
    assert [editor.read(), editor.read()] == ["first", "a\nb"]
    if os.name != "nt":
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    keys.send_text(f"{UP}\r")
    assert Editor(COMPLETER, KeptHistory(path)).read() == "a\nb"
    keys.send_text(f"{UP}{UP}{UP}\r")  # the second moves within the text of two lines
    assert Editor(COMPLETER, KeptHistory(path)).read() == "first"


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_history_of_others_eyes_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "chat_history"
    path.touch(0o644)
    KeptHistory(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_long_history_loses_its_older_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LARGEST", 2000)
    path = tmp_path / "chat_history"
    kept = KeptHistory(path)
    for number in range(100):
        kept.store_string(f"entry {number}\n# not an entry")
    found = list(KeptHistory(path).load_history_strings())
    assert found[0] == "entry 99\n# not an entry"
    assert 5 < len(found) < 30
    assert path.stat().st_size <= 1000
    if os.name != "nt":
        assert path.stat().st_mode & 0o777 == 0o600


def test_history_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    kept = KeptHistory(folder / "chat_history")
    (folder / "chat_history").unlink()
    folder.rmdir()
    kept.store_string("a")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        KeptHistory(tmp_path / "file" / "chat_history")


def test_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(history.sys, "platform", "linux")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "trinity"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local" / "state" / "trinity"


def test_a_history_that_cannot_be_stored_is_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(history.sys, "platform", "linux")
    assert chat._kept_history() is None
    path = tmp_path / "file" / "trinity" / "chat_history"
    assert f"not stored in {path}: Not a directory" in capsys.readouterr().err

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(history.Path, "home", unknown)
    assert chat._kept_history() is None
    assert "set HOME" in capsys.readouterr().err
