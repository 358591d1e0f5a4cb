from __future__ import annotations

import pytest

from trinity.cli.chatting.chat_input import ChatInput, is_open, read_input


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", ChatInput(None, "hello")),
        ("two\nlines\n", ChatInput(None, "two\nlines")),
        ("  indented", ChatInput(None, "  indented")),
        ("", ChatInput(None, "")),
        ("/reset", ChatInput("reset", "")),
        ("  /reset now ", ChatInput("reset", "now")),
        ("/set temperature 0.1", ChatInput("set", "temperature 0.1")),
        ("/system a\nb", ChatInput("system", "a\nb")),
        ("/?", ChatInput("?", "")),
        ("/", ChatInput("", "")),
        ("/no-such thing", ChatInput("no-such", "thing")),
        # A path, a comment and a fraction are no commands.
        ("/usr/bin is full", ChatInput(None, "/usr/bin is full")),
        ("/etc: what is it?", ChatInput(None, "/etc: what is it?")),
        ("// a comment", ChatInput(None, "// a comment")),
        ("/* a comment */", ChatInput(None, "/* a comment */")),
        ("/2 of it", ChatInput(None, "/2 of it")),
        # Blocks.
        ('"""a\nb"""', ChatInput(None, "a\nb")),
        ('"""\na\n\nb\n"""  ', ChatInput(None, "a\n\nb")),
        ('"""/reset"""', ChatInput(None, "/reset")),
        ('""""""', ChatInput(None, "")),
        ('/system """be\nbrief"""', ChatInput("system", "be\nbrief")),
        ('/system """/be"""', ChatInput("system", "/be")),
        # Quotes of the text's own.
        ('"""A docstring."""\nx = 1', ChatInput(None, '"""A docstring."""\nx = 1')),
        ('x = """a"""', ChatInput(None, 'x = """a"""')),
        ('"""not closed', ChatInput(None, '"""not closed')),
    ],
)
def test_chat_input(text: str, expected: ChatInput) -> None:
    assert read_input(text) == expected


@pytest.mark.parametrize(
    ("text", "open"),
    [('"""', True), ('"""a\nb', True), ('  """', True), ('/system """a', True), ("a", False),
     ('"""a"""', False), ('"""a""" b', False), ('a """', False), ("/system a", False)],
)  # fmt: skip
def test_open_block(text: str, open: bool) -> None:
    assert is_open(text) is open
