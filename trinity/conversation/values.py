"""Convert arguments that are written as text to the types of a tool's schema."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from trinity.conversation.tools import Tool

# numbers that JSON does not allow
_LOOSE_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]{0,15})\.|\.[0-9]{1,15})")
_PARTIAL = re.compile(r"-?(?:[0-9.]+[eE]?[-+]?)?|tr?u?|fa?l?s?|nu?l?")
_TYPES: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    type(None): ("null",),
    list: ("array",),
    dict: ("object",),
}


def types_of(tool: Tool, key: str) -> frozenset[str]:
    """Return the JSON types that an argument may have; empty if the schema does not say."""
    return types_in(member_of(tool.parameters, key))


def member_of(schema: object, key: str) -> object:
    """Return the schema of an object's member, None if ``schema`` does not have it."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties.get(key) if isinstance(properties, Mapping) else None


def types_in(schema: object) -> frozenset[str]:
    """Return the JSON types that a schema allows; empty if it does not say."""
    return _types(schema, 0)


def as_json(text: str, types: frozenset[str]) -> str:
    """Return the JSON text of an argument that is written as bare text.

    It is a string if it must be one, or if it is not JSON of an allowed type.
    """
    bare = text.strip()
    if types != {"string"}:
        json_text, value = _read(bare)
        allowed = not types or not types.isdisjoint(_TYPES.get(type(value), ()))
        if not isinstance(value, str) and allowed:
            return json_text
        if isinstance(value, str) and value is not bare and not types:
            return json_text
    return json.dumps(text, ensure_ascii=False)


def _read(bare: str) -> tuple[str, object]:
    """Return the JSON text and the value of JSON or Python notation, or the text itself."""
    try:
        return bare, json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    if _LOOSE_NUMBER.fullmatch(bare):
        text = repr(float(bare))
        return text, float(bare)
    if bare in ("True", "False", "None") or bare[:1] in ("[", "{"):
        try:
            value = ast.literal_eval(bare)
            return json.dumps(value, ensure_ascii=False, allow_nan=False), value
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            pass
    return bare, bare


def is_cut(bare: str) -> bool:
    """Whether a number or a word ends with the text, so that more text could change it."""
    try:
        json.loads(bare)
    except (ValueError, RecursionError):
        return _PARTIAL.fullmatch(bare.strip()) is not None
    return False


def escaped(text: str) -> str:
    """Escape a piece of text for a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _types(schema: object, depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or depth > 8:
        return frozenset()
    given = schema.get("type")
    if isinstance(given, str):
        return frozenset((given,))
    if isinstance(given, list):
        return frozenset(kind for kind in given if isinstance(kind, str))
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return frozenset(name for value in values for name in _TYPES.get(type(value), ()))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            types = [_types(part, depth + 1) for part in schema[key]]
            return frozenset().union(*types) if all(types) else frozenset()
    return frozenset()
