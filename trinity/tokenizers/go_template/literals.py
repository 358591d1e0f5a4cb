"""Parse Go's literals: quoted strings, characters and numbers.

Source of the rules: the Go specification, "Lexical elements"; strconv.Unquote, ParseInt(text, 0).
"""

from __future__ import annotations

import math
import re

_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34}
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))"
)
_INTEGER = re.compile(
    r"([+-]?)(?:0[xX]((?:_?[0-9a-fA-F])+)|0[bB]((?:_?[01])+)|0[oO]?((?:_?[0-7])+)"
    r"|(0|[1-9](?:_?[0-9])*))"
)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def string(literal: str) -> str:
    """Parse a quoted or raw string. Raises ValueError for a bad escape."""
    if literal[0] == "`":
        return literal[1:-1].replace("\r", "")
    return _unescaped(literal[1:-1], "'").decode()


def character(literal: str) -> int:
    """Parse a literal such as 'x' to its code point. Raises ValueError for a bad one."""
    text = _unescaped(literal[1:-1], '"').decode()
    if len(text) != 1:
        raise ValueError("a character constant holds one character")
    return ord(text)


def number(literal: str) -> int | float:
    """Parse an int64 or a float64. Raises ValueError for anything else."""
    match = _INTEGER.fullmatch(literal)
    if match:
        sign, *digits = match.groups()
        for base, text in zip((16, 2, 8, 10), digits, strict=True):
            if text is not None:
                value = int(text.replace("_", "")[:100], base) * (-1 if sign == "-" else 1)
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError("the integer does not fit 64 bits")
        return value
    if not _FLOAT.fullmatch(literal) or not re.search(r"[.eE]", literal):
        raise ValueError("not a supported number")
    result = float(literal)
    if not math.isfinite(result):
        raise ValueError("too large a number")
    return result


def _unescaped(text: str, other_quote: str) -> bytes:
    parts, at = [], 0
    for match in _ESCAPE.finditer(text):
        if "\\" in text[at : match.start()] or match[1] == other_quote:
            break
        parts.append(text[at : match.start()].encode())
        parts.append(_escape_bytes(match))
        at = match.end()
    if "\\" in text[at:]:
        raise ValueError("an unknown escape in a string")
    return b"".join([*parts, text[at:].encode()])


def _escape_bytes(match: re.Match[str]) -> bytes:
    simple, byte, octal, short, long = match.groups()
    if simple:
        return bytes((_SIMPLE[simple],))
    if byte or octal:
        return bytes((int(byte, 16) if byte else int(octal, 8),))
    return chr(int(short or long, 16)).encode()
