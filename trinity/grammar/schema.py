"""Prepare a JSON schema for llguidance: each keyword is enforced, an annotation, or refused.

llguidance ignores some keywords and enforces others in part. This module checks each keyword,
rewrites those that other keywords can express, and reports the path of the rest (a JSON pointer
such as #/properties/age/minimum).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trinity.errors import InputError
from trinity.grammar import formats
from trinity.grammar.closing import close_objects
from trinity.grammar.disjoint import Disjoint
from trinity.grammar.keywords import (
    DEFINITIONS,
    LIST_KEYS,
    MAP_KEYS,
    OTHER_WORDS,
    REFUSED,
    SCHEMA_KEYS,
    TYPES,
)
from trinity.grammar.limits import DEEPEST, check_size, json_fault
from trinity.grammar.negation import Negation, NoNegationError
from trinity.grammar.plain_keywords import (
    ALIKE,
    LARGEST_INTEGER,
    Note,
    RefusedError,
    kind_of,
    pattern_of,
    plain_keyword,
    want,
)
from trinity.grammar.references import References, below, pointer
from trinity.grammar.rewriting import rewritten

State = Literal["enforced", "note", "refused"]
MADE = "/~"  # in the path of a rewritten keyword; no JSON pointer contains it
MOST_CASES = 12  # of a oneOf, each rewritten to exclude all others
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
            more = f"(and {len(refused) - 1} more: `trinity schema` lists them)"
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
        raise InputError(f"the JSON schema is not valid JSON: {json_fault(error)}") from None
    except RecursionError:
        raise InputError(f"the JSON schema is more than {DEEPEST} levels deep") from None


def text_of(schema: Mapping[str, Any] | str | bool) -> str:
    """Return a schema as JSON text. Raises InputError if JSON cannot hold it or it is too large."""
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise InputError(f"the JSON schema is not valid JSON: {json_fault(error)}") from None
    except RecursionError:
        raise InputError(f"the JSON schema is more than {DEEPEST} levels deep") from None
    return check_size("the JSON schema", text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


class _SchemaReader:
    """Walks a schema from the root and along its references, and changes it in place."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.keywords: list[Keyword] = []
        self._references = References(root)
        self._seen: dict[int, dict[str, Any]] = {}
        self._left: list[tuple[Any, str]] = []
        resolved = self._references.resolved
        self._disjoint = Disjoint(resolved)
        self._negation = Negation(resolved, self._disjoint.all)

    def read(self, closed: bool) -> None:
        if closed:
            self.close()
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
        close_objects(self.root, self._references.resolved)

    def _schema(self, node: Any, path: str) -> None:
        """Read one schema."""
        if isinstance(node, bool) or id(node) in self._seen:
            return
        if not isinstance(node, dict):
            self._add(
                path, "", "refused", f"a schema is an object, true or false, not {kind_of(node)}"
            )
            return
        self._seen[id(node)] = node
        more: list[Any] = []  # schemas that express keywords by other keywords
        for key in rewritten(node):
            self._add(below(path, key), key, "enforced")
        for key in list(node):
            if key in DEFINITIONS or key not in node:
                continue
            where = below(path, key)
            try:
                self._keyword(node, key, where, more)
                self._add(where, key, "enforced")
            except Note:
                self._add(where, key, "note")
            except RefusedError as error:
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
            want(isinstance(value, dict), "an object", value)
            if key == "patternProperties":
                node[key] = {pattern_of(name): part for name, part in value.items()}
            self._left += [(part, below(path, name)) for name, part in value.items()]
        elif key in LIST_KEYS:
            want(isinstance(value, list) and bool(value), "a list of schemas", value)
            self._left += [(part, below(path, i)) for i, part in enumerate(value)]
            if key == "oneOf" and not self._references.into_cases:
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
            pass  # _condition reads it together with "if"
        else:
            plain_keyword(node, key)

    def _inner_schema(self, node: Any, key: str, path: str) -> None:
        value = node[key]
        if key == "additionalItems" and not isinstance(node.get("items"), list):
            del node[key]  # llguidance would take it for a keyword of older versions
            raise Note
        if key == "items" and isinstance(value, list):
            if "prefixItems" in node:
                raise RefusedError(
                    "items is a list of schemas, which is not allowed together with prefixItems; "
                    "give items one schema"
                )
            self._left += [(part, below(path, i)) for i, part in enumerate(value)]
        else:
            self._left.append((value, path))

    def _reference(self, value: object, path: str) -> str:
        """Return a reference as a JSON pointer from the root, and read its target."""
        fragment = self._references.read(value, path)
        self._left.append((self._references.at(fragment), f"#{fragment}"))
        return pointer(fragment)

    def _dependent(self, key: str, value: object, path: str) -> list[Any]:
        """Rewrite dependentRequired and dependentSchemas: the property is absent, or they apply."""
        what = DEPENDENT[key]
        want(isinstance(value, dict), "an object", value)
        assert isinstance(value, dict)
        others = {"type": sorted(TYPES - {"object", "integer"})}
        rewritten = []
        for name, part in value.items():
            has: dict[str, Any] = {"type": "object", "required": [name]}
            if isinstance(part, list) and "names" in what:
                want(all(isinstance(needed, str) for needed in part), what, part)
                has["required"] += part
            else:
                want("schema" in what and isinstance(part, dict | bool), what, part)
                self._left.append((part, below(path, name)))
                has["allOf"] = [part]
            absent = {"type": "object", "properties": {name: False}}
            rewritten.append({"anyOf": [others, absent, has]})
        return rewritten

    def _negated(self, key: str, schema: Any) -> Any:
        try:
            return self._negation.of(schema)
        except NoNegationError as error:
            raise RefusedError(f"{REFUSED[key]} ({error} cannot be rewritten)") from None

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
                return  # llguidance may find that the cases exclude each other
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
        want(isinstance(name, str), "text", name)
        texts = types == "string" or (isinstance(types, list) and "string" in types)
        if name in formats.NOTES or not texts:
            del node["format"]
            raise Note
        if name in formats.PATTERNS:
            del node["format"]
            more.append({"type": "string", "pattern": f"^(?:{formats.PATTERNS[name]})$"})
            if types != "string" or "type" not in node:
                more[-1] = {"anyOf": [more[-1], {"type": sorted(TYPES - {"string", "integer"})}]}
        elif name in formats.NATIVE:
            node["format"] = formats.NATIVE[name]
        elif name in formats.UNENFORCED:
            raise RefusedError(f"the format {name!r} is not enforced; write a pattern instead")
        else:
            alike = difflib.get_close_matches(name.lower(), formats.NAMES, 1, ALIKE)
            if alike:
                raise RefusedError(f"an unknown format; did you mean {alike[0]}?")
            del node["format"]  # a private format, which JSON Schema ignores
            raise Note
