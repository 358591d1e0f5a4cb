"""Forbid object properties that a schema does not name, and values of types that it does not mean.

A schema without additionalProperties allows any further property, and small models then invent
them up to the length limit. llama.cpp therefore allows only the properties that a schema names
(common/json-schema-to-grammar.cpp, _build_object_rule), and OpenAI's strict schemas must say so.
A schema without a type allows values of every type: {"items": ...} allows numbers. llama.cpp
derives the type from the keywords (common/json-schema.cpp, build_node).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Use = Literal["whole", "part", "frozen"]
_LISTS = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("if", "not")  # closing their schemas would make them exclude less
_OWN = ("properties", "patternProperties")
# A schema with one of these decides itself which other properties are allowed.
_SAYS = ("additionalProperties", "unevaluatedProperties", "const", "enum", "propertyNames")
# The type of a schema without a type that has one of these keywords, in llama.cpp's order.
_IMPLIED = (
    ("object", (*_OWN, "additionalProperties")),
    ("array", ("items", "prefixItems")),
    ("string", ("pattern", "minLength", "maxLength", "format")),
)
# A schema with one of these decides itself which types are allowed.
_DECIDES = ("type", "const", "enum", "nullable", "$ref", "if", "not", *_LISTS)


def close_objects(root: Any, resolve: Callable[[str], Any]) -> None:
    """Set additionalProperties to false, in place, if a schema names properties without it.

    Schemas that apply to the same object (allOf, anyOf, $ref, ...) are closed together: each allows
    the properties that any of them names. Objects without ``properties`` stay open, and so do
    schemas in ``not`` and ``if``. Schemas whose keywords imply a type get it. ``resolve`` returns
    the target of a reference, or None.
    """
    _Closing(resolve).close(root)


@dataclass(slots=True)
class _DeclaredNames:
    """The properties that the schemas of one object name."""

    properties: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)
    least: int = 0
    named: bool = False  # there are properties or patterns, perhaps none in them
    is_open: bool = False


class _Closing:
    def __init__(self, resolve: Callable[[str], Any]) -> None:
        self._resolve = resolve
        self._wholes: dict[int, dict[str, Any]] = {}
        self._parts: set[int] = set()
        self._nodes: dict[int, dict[str, Any]] = {}
        self._frozen: set[int] = set()
        self._seen: set[tuple[int, Use]] = set()

    def close(self, root: Any) -> None:
        left: list[tuple[Any, Use]] = [(root, "whole")]
        while left:
            left += self._look(*left.pop())
        for key, node in self._nodes.items():
            if key not in self._frozen:
                _imply_type(node)
        for key, node in self._wholes.items():
            if key not in self._parts:
                self._close(node)

    def _look(self, node: Any, use: Use) -> list[tuple[Any, Use]]:
        """Note how a schema is used. Return the schemas in it, with their uses."""
        if not isinstance(node, dict) or (id(node), use) in self._seen:
            return []
        self._seen.add((id(node), use))
        self._nodes[id(node)] = node
        if use == "frozen":
            self._frozen.add(id(node))
        if use == "whole":
            self._wholes[id(node)] = node
        else:
            self._parts.add(id(node))
        shared = len(self._contributors(node)) > 1
        children: list[tuple[Any, Use]] = []
        for key, child in self._in_place(node):
            of_part: Use = "part" if use == "part" or shared else "whole"
            children.append((child, "frozen" if use == "frozen" or key in _CONDITIONS else of_part))
        below: Use = "frozen" if use == "frozen" else "whole"
        return children + [(child, below) for child in _below(node)]

    def _in_place(self, node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """The schemas that apply to the same value as ``node``."""
        for key in _LISTS:
            value = node.get(key)
            for child in value if isinstance(value, list) else ():
                yield key, child
        for key in ("then", "else", *_CONDITIONS):
            if key in node:
                yield key, node[key]
        for key in ("dependentSchemas", "dependencies"):
            for child in _values(node.get(key)):
                yield key, child
        if isinstance(node.get("$ref"), str):
            yield "$ref", self._resolve(node["$ref"])

    def _contributors(self, node: dict[str, Any]) -> set[str]:
        """Return the keywords of ``node`` that name properties; members of allOf are separate."""
        keywords = {"own"} if any(key in node for key in (*_OWN, "additionalProperties")) else set()
        for number, (key, child) in enumerate(self._in_place(node)):
            names = _DeclaredNames()
            self._gather(child, names, set())
            if names.named or names.is_open:
                keywords.add(f"{key} {number}" if key == "allOf" else key)
        return keywords - set(_CONDITIONS)

    def _gather(self, node: Any, names: _DeclaredNames, seen: set[int]) -> None:
        """Add the property names of a schema, and of the schemas that apply to the same object."""
        if not isinstance(node, dict) or id(node) in seen:
            return
        seen.add(id(node))
        names.named |= any(isinstance(node.get(key), dict) for key in _OWN)
        names.properties |= dict.fromkeys(_keys(node.get("properties")))
        names.patterns |= dict.fromkeys(_keys(node.get("patternProperties")))
        names.required |= dict.fromkeys(_texts(node.get("required")))
        for key in ("dependentRequired", "dependencies"):
            for needed in _values(node.get(key)):
                names.required |= dict.fromkeys(_texts(needed))
        if isinstance(node.get("minProperties"), int):
            names.least = max(names.least, node["minProperties"])
        names.is_open |= any(node.get(key, False) is not False for key in _SAYS)
        for key, child in self._in_place(node):
            if key not in _CONDITIONS:
                self._gather(child, names, seen)

    def _close(self, node: dict[str, Any]) -> None:
        names, contributors = _DeclaredNames(), self._contributors(node)
        self._gather(node, names, set())
        said = any(key in node for key in _SAYS)
        if said or names.is_open or not names.named:
            return
        if names.least > len(names.properties.keys() | names.required.keys()):
            return
        if "own" not in contributors and len(contributors) == 1:
            (only,) = contributors
            if only != "$ref" or not self._must_close_here(node["$ref"]):
                return  # these schemas are closed separately
        known = names.properties | names.required
        own = node.get("properties") or {}
        node["properties"] = {**own, **{key: True for key in known if key not in own}}
        if names.patterns:
            own = node.get("patternProperties") or {}
            node["patternProperties"] = {**dict.fromkeys(names.patterns, True), **own}
        node["additionalProperties"] = False

    def _must_close_here(self, reference: str) -> bool:
        """Whether a definition is also part of other objects, and is not recursive."""
        target = self._resolve(reference)
        return id(target) in self._parts and not self._leads_to(target, target)

    def _leads_to(self, node: Any, target: Any) -> bool:
        left, seen = [node], set()
        while left:
            schema = left.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            below = [child for _, child in self._in_place(schema)] + _below(schema)
            if any(child is target for child in below):
                return True
            left += below
        return False


def _imply_type(node: dict[str, Any]) -> None:
    """Set the type that the keywords of a schema without one imply."""
    if any(key in node for key in _DECIDES):
        return
    for kind, keywords in _IMPLIED:
        if any(key in node and node[key] is not True for key in keywords):
            node["type"] = kind
            return


def _below(node: dict[str, Any]) -> list[Any]:
    """The schemas of the parts of a value: of properties and of items."""
    schemas: list[Any] = []
    for key in _OWN:
        schemas += _values(node.get(key))
    for key in ("additionalProperties", "additionalItems", "items", "prefixItems"):
        value = node.get(key)
        schemas += value if isinstance(value, list) else [value]
    return schemas


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _texts(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
