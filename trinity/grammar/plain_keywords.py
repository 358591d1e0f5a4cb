"""Keywords of a JSON schema that contain no schema: their values are checked or rewritten."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable
from typing import Any

from trinity.grammar.keywords import ANNOTATIONS, COUNTS, DIALECTS, KNOWN, NUMBERS, REFUSED, TYPES
from trinity.grammar.patterns import rust_pattern

LARGEST_INTEGER = 1 << 53  # llguidance computes with floats, which hold all integers up to here
LARGEST_COUNT = 1 << 31
ALIKE = 0.86  # share of equal letters that makes a name a misspelt keyword
# For keywords that may have no effect: whether this one has none, given its schema and its value.
INERT: dict[str, Callable[[Any, Any], bool]] = {
    "uniqueItems": lambda node, value: value is False or node.get("maxItems") in (0, 1),
    "nullable": lambda node, value: value is False,
    "propertyNames": lambda node, value: value in (True, {}),
    "unevaluatedProperties": lambda node, value: value in (True, {}),
    "unevaluatedItems": lambda node, value: value in (True, {}),
    "minContains": lambda node, value: "contains" not in node,
    "maxContains": lambda node, value: "contains" not in node,
    "then": lambda node, value: "if" not in node,
    "else": lambda node, value: "if" not in node,
    "if": lambda node, value: "then" not in node and "else" not in node,
}
IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies")
CLOSED = {"unevaluatedProperties": "additionalProperties", "unevaluatedItems": "items"}


class RefusedError(Exception):
    """A keyword cannot be enforced. The text says why."""


class Note(Exception):  # noqa: N818
    """A keyword that restricts no value, such as a description."""


def plain_keyword(node: Any, key: str) -> None:
    """Handle a keyword that contains no schema."""
    value = node[key]
    if key in INERT and INERT[key](node, value):
        del node[key]
        raise Note
    if key in CLOSED and value is False and not any(name in node for name in IN_PLACE):
        del node[key]
        node.setdefault(CLOSED[key], False)
    elif key in REFUSED:
        raise RefusedError(REFUSED[key])
    elif key == "$schema":
        dialect = value.partition("://")[2].rstrip("#") if isinstance(value, str) else ""
        if dialect not in DIALECTS:
            raise RefusedError(f"{value!r:.80} is an unknown version of JSON Schema")
        raise Note
    elif key in ANNOTATIONS:
        raise Note
    elif key in CHECKS:
        node[key] = CHECKS[key](node, value)
    else:
        alike = difflib.get_close_matches(key.lower(), _LOWER, 1, ALIKE)
        # Names that no keyword begins like, such as _format or x-type, are annotations.
        if alike and key[:1].lower() == alike[0][0]:
            raise RefusedError(
                f"an unknown keyword of JSON Schema; did you mean {_LOWER[alike[0]]}?"
            )
        raise Note


def pattern_of(value: object) -> str:
    """A regular expression in Rust's syntax. Raises: RefusedError."""
    if not isinstance(value, str):
        raise RefusedError(f"expected text, found {kind_of(value)}")
    try:
        return rust_pattern(value)
    except ValueError as error:
        raise RefusedError(str(error)) from None


def _count(node: Any, value: Any) -> int:
    fits = _is_number(value) and 0 <= value <= LARGEST_COUNT and value == int(value)
    want(fits, f"an integer from 0 to {LARGEST_COUNT}", value)
    return int(value)


def _least_properties(node: Any, value: Any) -> int:
    count, required = _count(node, value), node.get("required", ())
    # A name that no keyword fixes may be written twice, so more of them cannot be counted.
    if count > len(set(map(str, required))) + 1:
        raise RefusedError(
            "it may exceed the number of required properties by one at most; name more in required"
        )
    return count


def _number(node: Any, value: Any) -> Any:
    want(_is_number(value) and _is_exact(value), "a number of at most 53 bits", value)
    return value


def _bound(node: Any, value: Any) -> Any:
    return value if isinstance(value, bool) else _number(node, value)


def _multiple(node: Any, value: Any) -> Any:
    want(_is_number(value) and _is_exact(value) and value > 0, "a number above 0", value)
    return value


def _type(node: Any, value: Any) -> Any:
    names = value if isinstance(value, list) else [value]
    for name in names:
        want(isinstance(name, str) and name in TYPES, f"one of {', '.join(sorted(TYPES))}", name)
    want(bool(names), "at least one type", value)
    return value


def _required(node: Any, value: Any) -> Any:
    names = isinstance(value, list) and all(isinstance(name, str) for name in value)
    want(names, "a list of names", value)
    return value


def _enum(node: Any, value: Any) -> Any:
    want(isinstance(value, list) and bool(value), "a list of values", value)
    return _const(node, value)


def _const(node: Any, value: Any) -> Any:
    if isinstance(value, dict):
        for part in value.values():
            _const(node, part)
    elif isinstance(value, list):
        for part in value:
            _const(node, part)
    elif _is_number(value):
        _number(node, value)
    return value


CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(COUNTS, _count),
    **dict.fromkeys(NUMBERS, _number),
    "minProperties": _least_properties,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _bound,
    "multipleOf": _multiple,
    "type": _type,
    "required": _required,
    "enum": _enum,
    "const": _const,
    "pattern": lambda node, value: pattern_of(value),
}
_LOWER = {name.lower(): name for name in KNOWN - ANNOTATIONS}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_exact(value: float) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST_INTEGER
    return math.isfinite(value)


def kind_of(value: object) -> str:
    """JSON's word for the type of a value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "null" if value is None else "a number")


def want(fits: bool, what: str, value: object) -> None:
    """Raise RefusedError unless ``value`` is as ``what`` says."""
    if not fits:
        shown = json.dumps(value)
        raise RefusedError(f"expected {what}, found {shown[:60]}{'...' if shown[60:] else ''}")
