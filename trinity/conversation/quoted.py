"""Repair a quoted text, also in single quotes, to the JSON string that it most likely means."""

from __future__ import annotations

import re
from collections.abc import Callable

from trinity.conversation.cursor import Cursor, Give, Steps
from trinity.conversation.values import escaped

_PLAIN = {quote: re.compile(rf"[^{quote}\"\\\x00-\x1f]*") for quote in "\"'"}
_HEX = "0123456789abcdefABCDEF"


def read_quoted(
    cursor: Cursor, give: Give, quote: str, closes: Callable[[int], Steps[bool]]
) -> Steps[bool]:
    """Read a text in quotes; whether it ended. A quote that closes nothing is part of it."""
    cursor.at += 1
    give('"')
    while True:
        plain = _PLAIN[quote].match(cursor.text, cursor.at)
        assert plain is not None
        if plain.end() > cursor.at:
            cursor.at = plain.end()
            give(plain.group())
        character = yield from cursor.peek()
        if not character or (character == quote and (yield from closes(cursor.at + 1))):
            cursor.at += len(character)
            give('"')
            return bool(character)
        if character == "\\":
            yield from _escape(cursor, give)
        else:  # a quote, or a control character
            cursor.at += 1
            give(escaped(character))


def always(place: int) -> Steps[bool]:
    """Return True: every quote closes a text."""
    yield from ()
    return True


def _escape(cursor: Cursor, give: Give) -> Steps[None]:
    """Read an escape; a backslash without one stands for itself."""
    begin = cursor.at
    cursor.at += 1
    character = yield from cursor.peek()
    if character == "'":
        cursor.at += 1
        give("'")
        return
    if character == "u":
        cursor.at += 1
        yield from _unit(cursor, give)
        return
    if character and character in '"\\/bfnrt':
        cursor.at += 1
        give(cursor.text[begin : cursor.at])
    elif character:
        give("\\\\")


def _unit(cursor: Cursor, give: Give) -> Steps[None]:
    """Read what follows \\u: four digits, and the second half of a surrogate pair.

    Half a pair becomes U+FFFD.
    """
    digits = yield from _digits(cursor)
    if len(digits) < 4:
        if (yield from cursor.peek()):
            give(f"\\\\u{digits}")
    elif 0xD800 <= int(digits, 16) < 0xDC00:
        begin = cursor.at
        paired = yield from cursor.skip("\\u")
        second = (yield from _digits(cursor)) if paired else ""
        if len(second) == 4 and 0xDC00 <= int(second, 16) < 0xE000:
            give(f"\\u{digits}\\u{second}")
        elif (yield from cursor.peek()):
            cursor.at = begin
            give("\\ufffd")
    else:
        give("\\ufffd" if 0xDC00 <= int(digits, 16) < 0xE000 else f"\\u{digits}")


def _digits(cursor: Cursor) -> Steps[str]:
    """Return up to four hexadecimal digits."""
    digits = ""
    while len(digits) < 4 and (character := (yield from cursor.peek())) and character in _HEX:
        digits += character
        cursor.at += 1
    return digits
