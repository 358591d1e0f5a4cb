"""Decide whether schemas exclude each other: ``oneOf`` of such schemas equals ``anyOf``.

Unknown keywords are ignored, so a schema may allow less than assumed. The answer "disjoint" is
always right; the answer "not known" is frequent. Keywords next to $ref are ignored, because older
versions of JSON Schema ignore them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from trinity.grammar.keywords import TYPES

# "number" includes the integers.
ALL: Final = TYPES - {"number"} | {"fraction"}
DEEPEST: Final = 8  # levels of references and of nested properties that are followed
MOST_WORK: Final = 50_000  # schemas visited for one document, repeated visits included
PER_WORK: Final = 64  # values or names that count as one visit


@dataclass(frozen=True, slots=True)
class _SchemaPart:
    """The keywords of one schema: allowed types and values, required names."""

    schema: dict[str, Any]
    types: frozenset[str] = ALL
    values: frozenset[str] | None = None  # as JSON; None: any
    required: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.required) + len(self.values or ())

    def cases(self) -> Iterator[list[Any]]:
        """Lists of schemas; at least one schema of each list applies."""
        for key in ("anyOf", "oneOf"):
            if isinstance(self.schema.get(key), list):
                yield self.schema[key]

    def of_property(self, name: str) -> Any:
        """The schemas of a property's value, if it exists."""
        properties = self.schema.get("properties")
        if isinstance(properties, dict) and name in properties:
            return properties[name]
        if self.schema.get("patternProperties"):
            return True
        return self.schema.get("additionalProperties", True)


class Disjoint:
    """Compares schemas of one document. ``resolve`` returns the target of a $ref, or None."""

    def __init__(self, resolve: Callable[[str], Any]) -> None:
        self._resolve = resolve
        self._left = MOST_WORK
        self._known: dict[int, _SchemaPart] = {}

    def all(self, schemas: list[Any]) -> bool:
        """Whether no value matches two of the schemas."""
        return all(
            self.two(first, second)
            for i, first in enumerate(schemas)
            for second in schemas[i + 1 :]
        )

    def two(self, first: Any, second: Any, depth: int = 0) -> bool:
        """Whether no value matches both."""
        if self._left < 0 or depth > DEEPEST:
            return False
        mine, theirs = self._parts(first), self._parts(second)
        both = [*mine, *theirs]
        self._left -= sum(part.size for part in both) // PER_WORK
        types = ALL.intersection(*(part.types for part in both))
        if not types:
            return True
        values = [part.values for part in both if part.values is not None]
        if values and not values[0].intersection(*values[1:]):
            return True
        for side, opposite in ((mine, second), (theirs, first)):
            for cases in (cases for part in side for cases in part.cases()):
                if all(self.two(case, opposite, depth + 1) for case in cases):
                    return True
        return types == {"object"} and self._objects(mine, theirs, depth)

    def _objects(self, mine: list[_SchemaPart], theirs: list[_SchemaPart], depth: int) -> bool:
        """Whether a required property has no value that matches both."""
        names = {name for part in (*mine, *theirs) for name in part.required}
        return any(
            self.two(first.of_property(name), second.of_property(name), depth + 1)
            for name in sorted(names)
            for first in mine
            for second in theirs
        )

    def _parts(self, schema: Any, depth: int = 0) -> list[_SchemaPart]:
        """Return all parts that apply, including those of references and allOf."""
        if schema is False:
            return [_SchemaPart({}, frozenset())]
        self._left -= 1
        if self._left < 0 or depth > DEEPEST or not isinstance(schema, dict):
            return []
        if isinstance(schema.get("$ref"), str):
            return self._parts(self._resolve(schema["$ref"]), depth + 1)
        part_of_schema = self._known.get(id(schema))
        if part_of_schema is None:
            part_of_schema = self._known[id(schema)] = _part(schema)
        inner = schema.get("allOf")
        more = inner if isinstance(inner, list) else []
        return [
            part_of_schema,
            *(part for member in more for part in self._parts(member, depth + 1)),
        ]


def _part(schema: dict[str, Any]) -> _SchemaPart:
    types, values = ALL, None
    if "type" in schema:
        given = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        named = {name for name in given if isinstance(name, str)}
        types &= named | ({"integer", "fraction"} if "number" in named else set())
    for listed in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
        if isinstance(listed, list):
            types &= set(map(_type, listed))
            texts = frozenset(json.dumps(_plain(value), sort_keys=True) for value in listed)
            values = texts if values is None else values & texts
    names = schema.get("required")
    required = tuple(n for n in names if isinstance(n, str)) if isinstance(names, list) else ()
    return _SchemaPart(schema, types, values, required)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "fraction"
    names = {type(None): "null", int: "integer", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _plain(value: Any) -> Any:
    """Return a value in a form in which equal values have equal text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value
