"""JSON values in a growing text, passed on piece by piece while they are checked."""

from __future__ import annotations

import json
import re

from trinity.conversation.cursor import Cursor, Give, NoCallError, Steps

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HEX = "0123456789abcdefABCDEF"
_WORDS = ("true", "false", "null")
_DEEPEST = 128


def read_value(cursor: Cursor, give: Give) -> Steps[None]:
    """Go behind one JSON value; its text goes to ``give``.

    Characters below U+0020 within strings, which JSON does not allow and models write, become
    escapes. Raises NoCallError for all else that is no JSON, and at the text's end.
    """
    closes: list[str] = []  # of what is open
    while True:
        found = yield from _white(cursor, give)
        if found in ("{", "["):
            if len(closes) == _DEEPEST:
                raise NoCallError(f"JSON is nested more than {_DEEPEST} times")
            cursor.at += 1
            give(found)
            closes.append("}" if found == "{" else "]")
            if (yield from _white(cursor, give)) != closes[-1]:
                if found == "{":
                    yield from _key(cursor, give)
                continue
            cursor.at += 1
            give(closes.pop())
        else:
            yield from _scalar(cursor, give, found)
        while closes:
            found = yield from _white(cursor, give)
            if found != "," and found != closes[-1]:
                raise _wrong(found, f"',' or {closes[-1]!r}")
            cursor.at += 1
            give(found)
            if found == ",":
                if closes[-1] == "}":
                    yield from _white(cursor, give)
                    yield from _key(cursor, give)
                break
            closes.pop()
        if not closes:
            return


def read_string(cursor: Cursor) -> Steps[str]:
    """The text that a JSON string means. Raises NoCallError where none comes."""
    pieces: list[str] = []
    yield from _string(cursor, pieces.append)
    return str(json.loads("".join(pieces)))


def collect_value(cursor: Cursor) -> Steps[str]:
    """The text of a JSON value. Raises NoCallError."""
    pieces: list[str] = []
    yield from read_value(cursor, pieces.append)
    return "".join(pieces)


def _white(cursor: Cursor, give: Give) -> Steps[str]:
    begin = cursor.at
    found = yield from cursor.white()
    if cursor.at > begin:
        give(cursor.text[begin : cursor.at])
    return found


def _key(cursor: Cursor, give: Give) -> Steps[None]:
    yield from _string(cursor, give)
    if (found := (yield from _white(cursor, give))) != ":":
        raise _wrong(found, "':'")
    cursor.at += 1
    give(":")


def _scalar(cursor: Cursor, give: Give, found: str) -> Steps[None]:
    if found == '"':
        yield from _string(cursor, give)
    elif found and found in "-0123456789":
        begin = cursor.at
        number = yield from cursor.matching("-+.eE0123456789")
        at_end = not (yield from cursor.peek())
        if at_end or not _NUMBER.fullmatch(number):
            cursor.at = begin
            raise _wrong("" if at_end else number, "the end of a number" if at_end else "a number")
        give(number)
    else:
        for word in _WORDS:
            if found and word.startswith(found):
                yield from cursor.expect(word)
                give(word)
                return
        raise _wrong(found, "a JSON value")


def _string(cursor: Cursor, give: Give) -> Steps[None]:
    if (found := (yield from cursor.peek())) != '"':
        raise _wrong(found, "a string")
    cursor.at += 1
    give(found)
    while True:
        plain = _PLAIN.match(cursor.text, cursor.at)
        assert plain is not None
        if plain.end() > cursor.at:
            cursor.at = plain.end()
            give(plain.group())
        found = yield from cursor.peek()
        if found == '"':
            cursor.at += 1
            give(found)
            return
        if found == "\\":
            yield from _escape(cursor, give)
        elif not found:
            raise _wrong(found, "the end of a string")
        elif found < " ":
            cursor.at += 1
            give(json.dumps(found)[1:-1])


def _escape(cursor: Cursor, give: Give) -> Steps[None]:
    begin = cursor.at
    for place in range(6):
        cursor.at = begin + place
        found = yield from cursor.peek()
        allowed = '"\\/bfnrtu' if place == 1 else _HEX if place > 1 else "\\"
        if not found or found not in allowed:
            cursor.at = begin
            raise _wrong(found, "an escape that JSON has")
        if place == 1 and found != "u":
            break
    cursor.at += 1
    give(cursor.text[begin : cursor.at])


def _wrong(found: str, wanted: str) -> NoCallError:
    if not found:
        return NoCallError(f"the text ends before {wanted}", at_end=True)
    return NoCallError(f"{found!r} stands where {wanted} should")
