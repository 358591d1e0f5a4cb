"""`trinity chat` with piped input: lines, and the end of the input."""

from __future__ import annotations

import io
import sys

import pytest

from trinity.cli.chatting.lines import LineReader, entries
from trinity.errors import InputError


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> list[str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return list(entries(LineReader(prompts=False)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\\\nb\\\nc\nd\n", ["a\nb\nc", "d"]),
        (b"a\\", ["a"]),
        (b'"""\na\\\n\n/reset\n"""\nb\n', ['"""\na\\\n\n/reset\n"""', "b"]),
        (b'"""a""" b\nc\n', ['"""a""" b', "c"]),
        (b'x """\ny\n', ['x """', "y"]),
        ("\u00e4\u4e2d".encode(), ["\u00e4\u4e2d"]),
    ],
)
def test_lines(monkeypatch: pytest.MonkeyPatch, data: bytes, expected: list[str]) -> None:
    assert piped(monkeypatch, data) == expected


def test_a_block_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="within a block"):
        piped(monkeypatch, b'a\n"""\nb\n')


def test_what_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="byte 1 is 0xff, which is not UTF-8"):
        piped(monkeypatch, b"a\xff\n")


class Keys:
    """A source with given texts and exceptions."""

    def __init__(self, *events: str | BaseException) -> None:
        self.events = list(events)

    def read(self) -> str:
        event = self.events.pop(0)
        if isinstance(event, BaseException):
            raise event
        return event


def test_second_ctrl_c_in_a_row_leaves() -> None:
    c = KeyboardInterrupt()
    found = entries(Keys(c, "a", c, "b", c, c, "never"))
    assert [next(found), next(found)] == ["a", "b"]
    with pytest.raises(KeyboardInterrupt):
        next(found)


def test_ctrl_d_leaves() -> None:
    assert list(entries(Keys("a", EOFError(), "never"))) == ["a"]
