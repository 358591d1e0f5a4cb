from __future__ import annotations

import pytest

from trinity.cli.chatting.entry import ChatEntry, is_open, read_entry


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("hello", ChatEntry(None, "hello")),
        ("two\nlines\n", ChatEntry(None, "two\nlines")),
        ("  indented", ChatEntry(None, "  indented")),
        ("", ChatEntry(None, "")),
        ("/reset", ChatEntry("reset", "")),
        ("  /reset now ", ChatEntry("reset", "now")),
        ("/set temperature 0.1", ChatEntry("set", "temperature 0.1")),
        ("/system a\nb", ChatEntry("system", "a\nb")),
        ("/?", ChatEntry("?", "")),
        ("/", ChatEntry("", "")),
        ("/no-such thing", ChatEntry("no-such", "thing")),
        # A path, a comment and a fraction are no commands.
        ("/usr/bin is full", ChatEntry(None, "/usr/bin is full")),
        ("/etc: what is it?", ChatEntry(None, "/etc: what is it?")),
        ("// a comment", ChatEntry(None, "// a comment")),
        ("/* a comment */", ChatEntry(None, "/* a comment */")),
        ("/2 of it", ChatEntry(None, "/2 of it")),
        # Blocks.
        ('"""a\nb"""', ChatEntry(None, "a\nb")),
        ('"""\na\n\nb\n"""  ', ChatEntry(None, "a\n\nb")),
        ('"""/reset"""', ChatEntry(None, "/reset")),
        ('""""""', ChatEntry(None, "")),
        ('/system """be\nbrief"""', ChatEntry("system", "be\nbrief")),
        ('/system """/be"""', ChatEntry("system", "/be")),
        # Quotes of the text's own.
        ('"""A docstring."""\nx = 1', ChatEntry(None, '"""A docstring."""\nx = 1')),
        ('x = """a"""', ChatEntry(None, 'x = """a"""')),
        ('"""not closed', ChatEntry(None, '"""not closed')),
    ],
)
def test_entry(text: str, entry: ChatEntry) -> None:
    assert read_entry(text) == entry


@pytest.mark.parametrize(
    ("text", "open"),
    [('"""', True), ('"""a\nb', True), ('  """', True), ('/system """a', True), ("a", False),
     ('"""a"""', False), ('"""a""" b', False), ('a """', False), ("/system a", False)],
)  # fmt: skip
def test_open_block(text: str, open: bool) -> None:
    assert is_open(text) is open
