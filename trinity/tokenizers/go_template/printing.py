"""Format values as Go does: fmt.Sprint, quoted strings, numbers, encoding/json.

Sources: Go's fmt/print.go, strconv/quote.go and ftoa.go, encoding/json/encode.go.
"""

from __future__ import annotations

import json
import re

from trinity.errors import UnsupportedError
from trinity.tokenizers.go_template.values import NIL, NOTHING, Absent, Map, Slice, Struct, Value

_JSON_ESCAPES = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028"}
_JSON_ESCAPES["\u2029"] = "\\u2029"
_HTML = re.compile("[&<>\u2028\u2029]")
_QUOTED = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
    "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def printed(value: Value, depth: int = 0) -> str:
    """Format a value as ``print`` and %v do; ``depth`` is its nesting.

    Raises UnsupportedError for a pointer within another value, which Go prints as an address.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return decimal(value, large=6)
    if isinstance(value, Absent):
        return NIL.value
    if value.as_json:
        return "{}" if isinstance(value, Map) and value.is_nil else as_json(value)
    if isinstance(value, Slice):
        return "[" + " ".join(printed(item, depth + 1) for item in value.values()) + "]"
    if isinstance(value, Map):
        pairs = (f"{key}:{printed(item, depth + 1)}" for key, item in value.sorted())
        return "map[" + " ".join(pairs) + "]"
    if value.is_pointer and depth:
        raise UnsupportedError(
            "the Go template prints the address of a message, which is not supported"
        )
    inner = "{" + " ".join(printed(item, depth + 1) for item in value.fields.values()) + "}"
    return "&" + inner if value.is_pointer else inner


def written(value: Value) -> str:
    """Format a value as an action writes it."""
    if value is NOTHING:
        return NOTHING.value
    text = printed(value)
    pointer = isinstance(value, Struct) and value.is_pointer
    return text[1:] if pointer else text


def decimal(value: float, *, large: int) -> str:
    """Return the shortest digits of ``value``, with an exponent from 10 to the ``large`` on."""
    digits, exponent = _digits(abs(value))
    sign = "-" if str(value).startswith("-") else ""
    if value != 0 and not -5 < exponent < large:
        tail = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    rest = digits[exponent + 1 :]
    return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"


def _digits(value: float) -> tuple[str, int]:
    """Shortest significant digits and the decimal exponent of the first."""
    if value == 0:
        return "0", 0
    mantissa, exponent = f"{value!r}e0".split("e")[:2]
    whole, _, part = mantissa.partition(".")
    digits = (whole + ("" if part == "0" else part)).lstrip("0")
    first = len(whole) - 1 if whole.strip("0") else -(len(part) - len(part.lstrip("0")) + 1)
    return digits.rstrip("0") or "0", first + int(exponent)


def quoted(text: str) -> str:
    """Format a string as %q does."""
    return '"' + "".join(_quoted_character(character) for character in text) + '"'


def _quoted_character(character: str) -> str:
    if character in _QUOTED:
        return _QUOTED[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def as_json(value: Value) -> str:
    """Format a value as Go's json.Marshal does: maps sorted by key, & < > escaped."""
    if isinstance(value, Absent):
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return _HTML.sub(lambda match: _JSON_ESCAPES[match[0]], text)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _json_number(value)
    if isinstance(value, Slice | Map) and value.is_nil:
        return "null"
    if isinstance(value, Slice):
        return "[" + ",".join(as_json(item) for item in value.values()) + "]"
    if isinstance(value, Map):
        pairs = value.sorted()
    else:
        pairs = [
            (name.removeprefix("?"), item)
            for name, item in zip(value.names, value.fields.values(), strict=True)
            if not (name.startswith("?") and _is_empty(item))
        ]
    return "{" + ",".join(f"{as_json(key)}:{as_json(item)}" for key, item in pairs) + "}"


def _json_number(value: float) -> str:
    if value != 0 and not 1e-6 <= abs(value) < 1e21:
        return decimal(value, large=0).replace("e-0", "e-")
    digits, exponent = _digits(abs(value))
    if exponent >= 0:
        return decimal(value, large=21)
    return f"{'-' * (value < 0)}0.{'0' * (-exponent - 1)}{digits}"


def _is_empty(value: Value) -> bool:
    """Whether omitempty omits the value."""
    return value is NIL or (isinstance(value, str | Slice) and len(value) == 0)
