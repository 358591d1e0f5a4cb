"""Prepare a JSON schema for llguidance: each keyword is enforced, an annotation, or refused.

llguidance ignores some keywords and enforces others in part. This module checks each keyword,
rewrites those that other keywords can express, and reports the path of the rest (a JSON pointer
such as #/properties/age/minimum).
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, unquote

from trinity.errors import InputError
from trinity.grammar import formats
from trinity.grammar.closing import close_objects
from trinity.grammar.cycles import cycle_from, told
from trinity.grammar.disjoint import Disjoint
from trinity.grammar.keywords import (
    ANNOTATIONS,
    COUNTS,
    DEFINITIONS,
    DIALECTS,
    KNOWN,
    LIST_KEYS,
    MAP_KEYS,
    NUMBERS,
    OTHER_WORDS,
    REFUSED,
    SCHEMA_KEYS,
    TYPES,
)
from trinity.grammar.limits import DEEPEST, check_size, json_fault
from trinity.grammar.negation import Negation, NoNegationError
from trinity.grammar.patterns import rust_pattern

State = Literal["enforced", "note", "refused"]
LARGEST_INTEGER = 1 << 53  # beyond it not every integer is a float, which llguidance reckons with
LARGEST_COUNT = 1 << 31
ALIKE = 0.86  # share of equal letters that makes a name a misspelt keyword
MADE = "/~"  # in the path of a rewritten keyword; no JSON pointer contains it
MOST_CASES = 12  # of a oneOf, each rewritten to exclude all others


@dataclass(frozen=True, slots=True)
class Keyword:
    """How a keyword is handled. ``path`` is a JSON pointer; ``reason`` explains a refusal."""

    path: str
    name: str
    state: State
    reason: str = ""


@dataclass(slots=True)
class GuidanceSchema:
    """A schema for llguidance, and how each keyword of the original is handled."""

    schema: Any
    keywords: list[Keyword] = field(default_factory=list)

    @property
    def refused(self) -> list[Keyword]:
        """The keywords that cannot be enforced."""
        return [keyword for keyword in self.keywords if keyword.state == "refused"]

    def check(self) -> None:
        """Raise InputError, with the path, if a keyword is refused."""
        refused = self.refused
        if refused:
            more = f" (and {len(refused) - 1} more: trinity schema lists them)"
            raise InputError(
                f"the JSON schema cannot be enforced: {refused[0].path}: {refused[0].reason}"
                + (more if len(refused) > 1 else "")
            )


def read_schema(schema: Mapping[str, Any] | str | bool, *, closed: bool = False) -> GuidanceSchema:
    """Read a schema, or its JSON text.

    Definitions are only read if something refers to them. With ``closed``, objects have no
    properties that the schema does not name; see trinity.grammar.closing. Raises InputError for
    invalid JSON and for schemas that are too large or too deep.
    """
    reader = _SchemaReader(loaded(schema))
    reader.read(closed)
    reader.bound_integers()
    return GuidanceSchema(reader.root, reader.keywords)


def closed_schema(schema: Mapping[str, Any]) -> Any:
    """Return a copy whose objects have no properties that the schema does not name.

    Raises as ``read_schema``.
    """
    reader = _SchemaReader(loaded(schema))
    reader.close()
    return reader.root


def loaded(schema: Mapping[str, Any] | str | bool) -> Any:
    """Return a copy of a schema. Raises InputError for invalid JSON."""
    text = text_of(schema)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise InputError(f"the JSON schema is no JSON: {json_fault(error)}") from None
    except RecursionError:
        raise InputError(f"the JSON schema is more than {DEEPEST} levels deep") from None


def text_of(schema: Mapping[str, Any] | str | bool) -> str:
    """Return a schema as JSON text. Raises InputError if JSON cannot hold it or it is too large."""
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise InputError(f"the JSON schema is no JSON: {json_fault(error)}") from None
    except RecursionError:
        raise InputError(f"the JSON schema is more than {DEEPEST} levels deep") from None
    return check_size("the JSON schema", text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class _RefusedError(Exception):
    """The reason why a keyword cannot be enforced."""


class _Note(Exception):  # noqa: N818
    """A keyword excludes nothing."""


class _SchemaReader:
    """Walks a schema from the root and along its references, and changes it in place."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.keywords: list[Keyword] = []
        own = root.get("$id", root.get("id")) if isinstance(root, dict) else None
        self._id = own.removesuffix("#") if isinstance(own, str) else None
        self._anchors: dict[str, str] = {}
        self._seen: dict[int, dict[str, Any]] = {}
        self._bases: list[str] = []  # parts whose references have another base
        self._left: list[tuple[Any, str]] = []
        self._disjoint = Disjoint(self._resolved)
        self._negation = Negation(self._resolved, self._disjoint.all)
        self._into_cases = False  # whether a reference leads into a oneOf

    def read(self, closed: bool) -> None:
        if closed:
            self.close()
        else:
            self._look(self.root, "#", 0)
        self._left.append((self.root, "#"))
        while self._left:
            self._schema(*self._left.pop(0))

    def bound_integers(self) -> None:
        """Limit integers without a bound to 53 bits, which every JSON reader supports.

        Otherwise a model could write digits until its context is full. llama.cpp allows 16 digits.
        """
        for node in self._seen.values():
            types = node.get("type", ())
            if types == "integer" or ("integer" in types and "number" not in types):
                if "exclusiveMinimum" not in node:
                    node.setdefault("minimum", -LARGEST_INTEGER)
                if "exclusiveMaximum" not in node:
                    node.setdefault("maximum", LARGEST_INTEGER)

    def close(self) -> None:
        self._look(self.root, "#", 0)
        close_objects(self.root, self._resolved)

    def _look(self, node: Any, path: str, depth: int, is_data: bool = False) -> None:
        """Find anchors and bases. Raises InputError if the schema is too deep."""
        if depth > DEEPEST:
            raise InputError(f"the JSON schema is more than {DEEPEST} levels deep: {path[:80]}")
        parts: Any = ()
        if isinstance(node, dict):
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(key), str) and not is_data:
                    self._anchors.setdefault(node[key], path)
            reference = node.get("$ref")
            self._into_cases |= isinstance(reference, str) and "/oneOf/" in reference
            if path != "#" and isinstance(node.get("$id", node.get("id")), str):
                self._bases.append(path)
            parts = node.items()
        elif isinstance(node, list):
            parts = enumerate(node)
        for key, part in parts:
            self._look(part, below(path, key), depth + 1, is_data or key in DATA)

    def _schema(self, node: Any, path: str) -> None:
        """Read one schema."""
        if isinstance(node, bool) or id(node) in self._seen:
            return
        if not isinstance(node, dict):
            self._add(
                path, "", "refused", f"a schema is an object, true or false, not {_kind(node)}"
            )
            return
        self._seen[id(node)] = node
        more: list[Any] = []  # schemas that express keywords by other keywords
        for key in list(node):
            if key in DEFINITIONS or key not in node:
                continue
            where = below(path, key)
            try:
                self._keyword(node, key, where, more)
                self._add(where, key, "enforced")
            except _Note:
                self._add(where, key, "note")
            except _RefusedError as error:
                self._add(where, key, "refused", str(error))
        for key in DROPPED:
            node.pop(key, None)
        if more:
            made = [{"allOf": [part], "$comment": OTHER_WORDS} for part in more]
            node["allOf"] = [*node.pop("allOf", ()), *made]

    def _add(self, path: str, name: str, state: State, reason: str = "") -> None:
        place, made, _ = path.partition(f"{MADE}/")
        if made:
            if state != "refused":
                return
            path, name = place, place.rpartition("/")[2]
        self.keywords.append(Keyword(path, name, state, reason))

    def _keyword(self, node: Any, key: str, path: str, more: list[Any]) -> None:
        value = node[key]
        if key in SCHEMA_KEYS:
            self._inner_schema(node, key, path)
        elif key in MAP_KEYS:
            _want(isinstance(value, dict), "an object", value)
            if key == "patternProperties":
                node[key] = {_pattern(name): part for name, part in value.items()}
            self._left += [(part, below(path, name)) for name, part in value.items()]
        elif key in LIST_KEYS:
            _want(isinstance(value, list) and bool(value), "a list of schemas", value)
            self._left += [(part, below(path, i)) for i, part in enumerate(value)]
            if key == "oneOf" and not self._into_cases:
                self._one_of(node, path, more)
        elif key == "$ref":
            node[key] = self._reference(value, path)
        elif key == "format":
            self._format(node, more)
        elif key in DEPENDENT:
            more += self._dependent(key, value, path)
        elif key == "not":
            self._make(self._negated(key, value), path, more)
        elif key == "if" and ("then" in node or "else" in node):
            self._condition(node, path, more)
        elif key in ("then", "else") and "if" in node:
            pass  # see there
        else:
            _plain_keyword(node, key)

    def _inner_schema(self, node: Any, key: str, path: str) -> None:
        value = node[key]
        if key == "additionalItems" and not isinstance(node.get("items"), list):
            del node[key]  # llguidance would take it for a keyword of older versions
            raise _Note
        if key == "items" and isinstance(value, list):
            if "prefixItems" in node:
                raise _RefusedError("items is a list of schemas, beside prefixItems")
            self._left += [(part, below(path, i)) for i, part in enumerate(value)]
        else:
            self._left.append((value, path))

    def _reference(self, value: object, path: str) -> str:
        """Return a reference as a JSON pointer from the root, and read its target."""
        if not isinstance(value, str):
            raise _RefusedError(f"expected text, found {_kind(value)}")
        if any(path.startswith(f"{base}/") for base in self._bases):
            raise _RefusedError("references within a part that has an $id are not followed")
        fragment = self._fragment(value)
        cycle = cycle_from(value, self._resolved)
        if cycle:
            raise _RefusedError(told(cycle))
        self._left.append((self._at(fragment), f"#{fragment}"))
        return "#" + quote(fragment, safe="/~!$&'()*+,;=:@-._")

    def _fragment(self, value: str) -> str:
        """Return the JSON pointer of a reference, from the root."""
        if self._id and value.startswith((f"{self._id}#", self._id)):
            value = value.removeprefix(self._id) or "#"
        if not value.startswith("#"):
            raise _RefusedError(
                f"{value[:80]!r} is outside of the document, where no reference is followed"
            )
        fragment = unquote(value[1:])
        if fragment and not fragment.startswith("/"):
            if fragment not in self._anchors:
                raise _RefusedError(f"the document has no anchor {fragment[:80]!r}")
            fragment = self._anchors[fragment][1:]
        return fragment

    def _resolved(self, reference: str) -> Any:
        """Return the target of a reference, or None."""
        if self._bases:
            return None
        try:
            return self._at(self._fragment(reference))
        except _RefusedError:
            return None

    def _at(self, pointer: str) -> Any:
        node: Any = self.root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name) if isinstance(node, list) else name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise _RefusedError(f"there is nothing at #{pointer[:80]}") from None
        return node

    def _dependent(self, key: str, value: object, path: str) -> list[Any]:
        """Rewrite dependentRequired and dependentSchemas: the property is absent, or they apply."""
        what = DEPENDENT[key]
        _want(isinstance(value, dict), "an object", value)
        assert isinstance(value, dict)
        others = {"type": sorted(TYPES - {"object", "integer"})}
        found = []
        for name, part in value.items():
            has: dict[str, Any] = {"type": "object", "required": [name]}
            if isinstance(part, list) and "names" in what:
                _want(all(isinstance(needed, str) for needed in part), what, part)
                has["required"] += part
            else:
                _want("schema" in what and isinstance(part, dict | bool), what, part)
                self._left.append((part, below(path, name)))
                has["allOf"] = [part]
            absent = {"type": "object", "properties": {name: False}}
            found.append({"anyOf": [others, absent, has]})
        return found

    def _negated(self, key: str, schema: Any) -> Any:
        try:
            return self._negation.of(schema)
        except NoNegationError as error:
            raise _RefusedError(f"{REFUSED[key]} (there are no other words for {error})") from None

    def _make(self, schema: Any, path: str, more: list[Any]) -> None:
        """Add a schema that expresses a keyword by other keywords."""
        self._left.append((schema, path + MADE))
        more.append(schema)

    def _condition(self, node: Any, path: str, more: list[Any]) -> None:
        """Rewrite if/then/else as anyOf: the condition with "then", or its negation with "else"."""
        parent = path.rpartition("/")[0]
        then, other = node.get("then", True), node.get("else", True)
        negated = self._negated("if", node["if"])
        self._left += [(node["if"], path), (then, f"{parent}/then"), (other, f"{parent}/else")]
        cases = [{"allOf": [node["if"], then]}, {"allOf": [negated, other]}]
        self._make({"anyOf": cases}, path, more)

    def _one_of(self, node: Any, path: str, more: list[Any]) -> None:
        """Replace oneOf by anyOf if the cases exclude each other or can be rewritten to do so."""
        cases = node["oneOf"]
        if not self._disjoint.all(cases):
            if len(cases) > MOST_CASES:
                return
            try:
                negated = [self._negation.of(case) for case in cases]
            except NoNegationError:
                return  # llguidance may find that they do
            self._left += [(case, path + MADE) for case in negated]
            cases = [
                {"allOf": [case, *negated[:i], *negated[i + 1 :]], "$comment": OTHER_WORDS}
                for i, case in enumerate(cases)
            ]
        if "anyOf" in node:
            del node["oneOf"]
            more.append({"anyOf": cases})
            return
        keywords = list(node.items())  # their order decides the order of properties
        node.clear()
        for key, value in keywords:
            node.update({"anyOf": cases} if key == "oneOf" else {key: value})

    def _format(self, node: Any, more: list[Any]) -> None:
        name, types = node["format"], node.get("type", "string")
        _want(isinstance(name, str), "text", name)
        texts = types == "string" or (isinstance(types, list) and "string" in types)
        if name in formats.NOTES or not texts:
            del node["format"]
            raise _Note
        if name in formats.PATTERNS:
            del node["format"]
            more.append({"type": "string", "pattern": f"^(?:{formats.PATTERNS[name]})$"})
            if types != "string" or "type" not in node:
                more[-1] = {"anyOf": [more[-1], {"type": sorted(TYPES - {"string", "integer"})}]}
        elif name in formats.NATIVE:
            node["format"] = formats.NATIVE[name]
        elif name in formats.UNENFORCED:
            raise _RefusedError(f"the format {name!r} is not enforced; write a pattern instead")
        else:
            alike = difflib.get_close_matches(name.lower(), formats.NAMES, 1, ALIKE)
            if alike:
                raise _RefusedError(f"no format that is known; {alike[0]} is one")
            del node["format"]  # a private format, which JSON Schema ignores
            raise _Note


# Keywords whose values are not schemas.
DATA = ("const", "enum", "default", "examples")
DEPENDENT = {
    "dependentRequired": "a list of names",
    "dependentSchemas": "a schema",
    "dependencies": "a list of names or a schema",
}
# Keywords that are removed after reading; llguidance ignores or misreads them.
DROPPED = (
    *DEPENDENT,
    "not",
    "if",
    "then",
    "else",
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$dynamicAnchor",
    "x-guidance",
)
INERT: dict[str, Callable[[Any, Any], bool]] = {
    # Whether a keyword excludes nothing, by schema and value.
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


def _plain_keyword(node: Any, key: str) -> None:
    """Handle a keyword that contains no schema."""
    value = node[key]
    if key in INERT and INERT[key](node, value):
        del node[key]
        raise _Note
    if key in CLOSED and value is False and not any(name in node for name in IN_PLACE):
        del node[key]
        node.setdefault(CLOSED[key], False)
    elif key in REFUSED:
        raise _RefusedError(REFUSED[key])
    elif key == "$schema":
        dialect = value.partition("://")[2].rstrip("#") if isinstance(value, str) else ""
        if dialect not in DIALECTS:
            raise _RefusedError(f"{value!r:.80} is no version of JSON Schema that is known")
        raise _Note
    elif key in ANNOTATIONS:
        raise _Note
    elif key in CHECKS:
        node[key] = CHECKS[key](node, value)
    else:
        alike = difflib.get_close_matches(key.lower(), _LOWER, 1, ALIKE)
        # Names that no keyword begins like, such as _format or x-type, are annotations.
        if alike and key[:1].lower() == alike[0][0]:
            raise _RefusedError(f"no keyword of JSON Schema; {_LOWER[alike[0]]} is one")
        raise _Note


def _pattern(value: object) -> str:
    if not isinstance(value, str):
        raise _RefusedError(f"expected text, found {_kind(value)}")
    try:
        return rust_pattern(value)
    except ValueError as error:
        raise _RefusedError(str(error)) from None


def _count(node: Any, value: Any) -> int:
    fits = _is_number(value) and 0 <= value <= LARGEST_COUNT and value == int(value)
    _want(fits, f"an integer from 0 to {LARGEST_COUNT}", value)
    return int(value)


def _least_properties(node: Any, value: Any) -> int:
    count, required = _count(node, value), node.get("required", ())
    # A name may repeat if names are free.
    if count > len(set(map(str, required))) + 1:
        raise _RefusedError("it can count one property beside the required ones; require them")
    return count


def _number(node: Any, value: Any) -> Any:
    _want(_is_number(value) and _is_exact(value), "a number of at most 53 bits", value)
    return value


def _bound(node: Any, value: Any) -> Any:
    return value if isinstance(value, bool) else _number(node, value)


def _multiple(node: Any, value: Any) -> Any:
    _want(_is_number(value) and _is_exact(value) and value > 0, "a number above 0", value)
    return value


def _type(node: Any, value: Any) -> Any:
    names = value if isinstance(value, list) else [value]
    for name in names:
        _want(isinstance(name, str) and name in TYPES, f"one of {', '.join(sorted(TYPES))}", name)
    _want(bool(names), "at least one type", value)
    return value


def _required(node: Any, value: Any) -> Any:
    names = isinstance(value, list) and all(isinstance(name, str) for name in value)
    _want(names, "a list of names", value)
    return value


def _enum(node: Any, value: Any) -> Any:
    _want(isinstance(value, list) and bool(value), "a list of values", value)
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
    "pattern": lambda node, value: _pattern(value),
}
_LOWER = {name.lower(): name for name in KNOWN - ANNOTATIONS}


def below(path: str, key: object) -> str:
    """Return the JSON pointer to a part."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_exact(value: float) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST_INTEGER
    return math.isfinite(value)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return names.get(type(value), "null" if value is None else "a number")


def _want(fits: bool, what: str, found: object) -> None:
    if not fits:
        shown = json.dumps(found)
        raise _RefusedError(f"expected {what}, found {shown[:60]}{'...' if shown[60:] else ''}")
