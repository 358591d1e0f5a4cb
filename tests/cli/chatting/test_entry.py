from __future__ import annotations

import pytest

from trinity.cli.chatting.entry import Entry, is_open, read_entry


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("hello", Entry(None, "hello")),
        ("two\nlines\n", Entry(None, "two\nlines")),
        ("  indented", Entry(None, "  indented")),
        ("", Entry(None, "")),
        ("/reset", Entry("reset", "")),
        ("  /reset now ", Entry("reset", "now")),
        ("/set temperature 0.1", Entry("set", "temperature 0.1")),
        ("/system a\nb", Entry("system", "a\nb")),
        ("/?", Entry("?", "")),
        ("/", Entry("", "")),
        ("/no-such thing", Entry("no-such", "thing")),
        # A path, a comment and a fraction are no commands.
        ("/usr/bin is full", Entry(None, "/usr/bin is full")),
        ("/etc: what is it?", Entry(None, "/etc: what is it?")),
        ("// a comment", Entry(None, "// a comment")),
        ("/* a comment */", Entry(None, "/* a comment */")),
        ("/2 of it", Entry(None, "/2 of it")),
        # Blocks.
        ('"""a\nb"""', Entry(None, "a\nb")),
        ('"""\na\n\nb\n"""  ', Entry(None, "a\n\nb")),
        ('"""/reset"""', Entry(None, "/reset")),
        ('""""""', Entry(None, "")),
        ('/system """be\nbrief"""', Entry("system", "be\nbrief")),
        ('/system """/be"""', Entry("system", "/be")),
        # Quotes of the text's own.
        ('"""A docstring."""\nx = 1', Entry(None, '"""A docstring."""\nx = 1')),
        ('x = """a"""', Entry(None, 'x = """a"""')),
        ('"""not closed', Entry(None, '"""not closed')),
    ],
)
def test_entry(text: str, entry: Entry) -> None:
    assert read_entry(text) == entry


@pytest.mark.parametrize(
    ("text", "open"),
    [('"""', True), ('"""a\nb', True), ('  """', True), ('/system """a', True), ("a", False),
     ('"""a"""', False), ('"""a""" b', False), ('a """', False), ("/system a", False)],
)  # fmt: skip
def test_open_block(text: str, open: bool) -> None:
    assert is_open(text) is open
