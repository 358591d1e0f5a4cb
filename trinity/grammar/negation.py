"""Negate schemas, so that ``not``, ``if`` and ``oneOf`` can be enforced.

A value violates a schema if it violates one of its keywords. Most keywords have a schema of exactly
the values that violate them. A schema with another keyword cannot be negated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trinity.grammar.keywords import ANNOTATIONS, DEFINITIONS, TYPES

MOST_PARTS: Final = 2_000  # schemas that are made for one document
DEEPEST: Final = 16
MOST_VALUES: Final = 100
LONGEST_TEXT: Final = 64
# Keyword: the type it applies to, the opposite keyword, and what its value changes by: "not
# minLength 3" is "maxLength 2".
COUNTED: Final = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}
BOUNDS: Final = {
    "minimum": ("exclusiveMinimum", "exclusiveMaximum", "maximum"),
    "maximum": ("exclusiveMaximum", "exclusiveMinimum", "minimum"),
}
NOTES: Final = ANNOTATIONS | DEFINITIONS
# Keywords that exclude nothing if their schema excludes nothing.
OPEN: Final = frozenset(
    {"items", "additionalItems", "additionalProperties", "unevaluatedItems",
     "unevaluatedProperties", "propertyNames"}
)  # fmt: skip
ANYTHING: Final = "(?:.|[\n\r\u2028\u2029])"


class NoNegationError(Exception):
    """A schema cannot be negated because of this keyword."""


class Negation:
    """Negates schemas of one document.

    ``resolve`` returns the target of a $ref, or None. ``disjoint`` says whether no value matches
    two of several schemas.
    """

    def __init__(
        self, resolve: Callable[[str], Any], disjoint: Callable[[list[Any]], bool]
    ) -> None:
        self._resolve = resolve
        self._disjoint = disjoint
        self._left = MOST_PARTS

    def of(self, schema: Any, depth: int = 0) -> Any:
        """Return a schema of all values that do not match. Raises NoNegationError."""
        if isinstance(schema, bool):
            return not schema
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > DEEPEST:
            raise NoNegationError("a part of it")
        said = {key: value for key, value in schema.items() if key not in NOTES}
        if "$ref" in said:  # older versions ignore other keywords
            if len(said) > 1 or not isinstance(said["$ref"], str):
                raise NoNegationError("$ref")
            return self.of(self._resolve(said["$ref"]), depth + 1)
        ways = [way for key in said for way in self._ways(key, said, depth) if way is not False]
        return {"anyOf": ways} if ways else False

    def _ways(self, key: str, schema: Mapping[str, Any], depth: int) -> list[Any]:
        """Return schemas of the values that violate one keyword; each value matches one."""
        value = schema[key]
        if key == "not":
            return [value]
        if key in ("const", "enum"):
            return _others([value] if key == "const" else value)
        if key == "type":
            return _other_types(value)
        if key == "required" and _is_list(value, str):
            return [{"type": "object", "properties": {name: False}} for name in value]
        if key == "properties" and isinstance(value, dict):
            parts = {name: self.of(part, depth + 1) for name, part in value.items()}
            return [
                {"type": "object", "required": [name], "properties": {name: part}}
                for name, part in parts.items()
                if part is not False
            ]
        if key == "allOf" and _is_list(value, dict | bool):
            return [self.of(part, depth + 1) for part in value]
        if self._is_any_of(key, value):
            return [{"allOf": [self.of(part, depth + 1) for part in value]}]
        if key in COUNTED and _is_number(value):
            kind, opposite, more = COUNTED[key]
            return [{"type": kind, opposite: value + more}] if value + more >= 0 else []
        if key in BOUNDS and _is_number(value):
            strict, broken, broken_strictly = BOUNDS[key]
            # In older versions exclusiveMinimum is a boolean about minimum.
            keyword = broken_strictly if schema.get(strict) is True else broken
            return [{"type": "number", keyword: value}]
        for plain, (strict, _, broken) in BOUNDS.items():
            if key == strict and isinstance(value, bool) and (plain in schema or not value):
                return []
            if key == strict and _is_number(value):
                return [{"type": "number", broken: value}]
        if (key in OPEN and (value is True or value == {})) or (key == "uniqueItems" and not value):
            return []
        raise NoNegationError(key)

    def _is_any_of(self, key: str, cases: Any) -> bool:
        if key not in ("anyOf", "oneOf") or not _is_list(cases, dict | bool):
            return False
        return key == "anyOf" or self._disjoint(cases)


def _is_list(value: Any, kind: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _other_types(value: Any) -> list[Any]:
    listed = value if isinstance(value, list) else [value]
    named = set(listed) if _is_list(listed, str) else {""}
    if not named <= TYPES or ("integer" in named and "number" not in named):
        raise NoNegationError("type")  # no keyword means "not an integer"
    left = TYPES - named - {"integer"}
    return [{"type": sorted(left)}] if left else []


def _others(values: Any) -> list[Any]:
    """Return schemas of all values but these."""
    if not isinstance(values, list) or len(values) > MOST_VALUES:
        raise NoNegationError("enum")
    texts = {value for value in values if isinstance(value, str)}
    numbers = sorted({value for value in values if _is_number(value)})
    left = {"null", "array", "object", "number", "string", "boolean"}
    ways: list[Any] = []
    if any(value is None for value in values):
        left.discard("null")
    for kind, of_kind, keyword in (("array", list, "minItems"), ("object", dict, "minProperties")):
        excluded = [value for value in values if isinstance(value, of_kind)]
        if any(excluded):
            raise NoNegationError("const")
        if excluded:
            left.discard(kind)
            ways.append({"type": kind, keyword: 1})
    given = {value for value in values if isinstance(value, bool)}
    if given:
        left.discard("boolean")
        ways += [{"const": value} for value in (False, True) if value not in given]
    if texts:
        left.discard("string")
        if sum(map(len, texts)) > MOST_PARTS or max(map(len, texts)) > LONGEST_TEXT:
            raise NoNegationError("const")
        ways.append({"type": "string", "pattern": f"^{other_texts(texts)}$"})
    if numbers:
        left.discard("number")
        for low, high in zip([None, *numbers], [*numbers, None], strict=True):
            bounds = {"exclusiveMinimum": low, "exclusiveMaximum": high}
            said = {key: bound for key, bound in bounds.items() if bound is not None}
            ways.append({"type": "number", **said})
    return [{"type": sorted(left)}, *ways] if left else ways


def other_texts(texts: set[str]) -> str:
    """Return a regular expression that matches all texts but these."""
    rests: dict[str, set[str]] = {}
    for text in sorted(texts):
        if text:
            rests.setdefault(text[0], set()).add(text[1:])
    heads = "".join(map(_escaped, rests))
    ways = [f"[^{heads}]{ANYTHING}*" if heads else f"{ANYTHING}+"]
    ways += [_escaped(head) + other_texts(left) for head, left in rests.items()]
    return f"(?:{'|'.join(ways)}){'' if '' in texts else '?'}"


def _escaped(character: str) -> str:
    if character.isascii() and not character.isalnum():
        return f"\\u{ord(character):04x}"
    return character
