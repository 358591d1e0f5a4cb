"""Detection of schemas that exclude each other."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import parts
from trinity.grammar.disjoint import Disjoint
from trinity.grammar.grammar import Grammar
from trinity.grammar.schema import read_schema

DEFINITIONS: dict[str, Any] = {
    "text": {"type": "string"},
    "list": {"type": "array", "items": {"$ref": "#/$defs/text"}},
    "circle": {"properties": {"kind": {"const": "circle"}}, "required": ["kind"]},
    "closed": {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
    "around": {"$ref": "#/$defs/around"},
    "either": {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]},
}


def resolved(reference: str) -> Any:
    return DEFINITIONS.get(reference.removeprefix("#/$defs/"))


def ref(name: str) -> Any:
    return {"$ref": f"#/$defs/{name}"}


SQUARE = {"type": "object", "properties": {"kind": {"enum": ["square", "box"]}}}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"type": "string"}, {"type": "null"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        ({"type": ["string", "null"]}, {"type": ["array", "integer"]}, True),
        ({}, {"type": "null"}, False),
        (True, {"type": "null"}, False),
        (False, {}, True),
        ({"const": 1}, {"const": 1.0}, False),
        ({"const": True}, {"const": 1}, True),
        ({"const": 1.5}, {"type": "integer"}, True),
        ({"const": {"a": [1]}}, {"enum": [{"a": [1.0]}]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["c", "a"]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["c", 1]}, True),
        ({"enum": ["a", 1], "type": "string"}, {"enum": [1, 2]}, True),
        (ref("text"), ref("list"), True),
        (ref("text"), ref("either"), False),
        (ref("list"), ref("either"), True),
        (ref("around"), ref("text"), False),
        (ref("nowhere"), ref("text"), False),
        ({**ref("text"), "type": "null"}, ref("text"), False),  # older schemas read $ref alone
        ({"allOf": [ref("text"), {"minLength": 2}]}, {"type": "boolean"}, True),
        (SQUARE, {"type": "object", "allOf": [ref("circle")]}, True),
        (SQUARE, ref("circle"), True),
        ({"properties": SQUARE["properties"]}, ref("circle"), False),  # a text may fit both
        ({"required": ["a"], "type": "object"}, ref("closed"), True),
        ({"required": ["b"], "type": "object"}, ref("closed"), False),
        ({"properties": {"a": {"type": "null"}}, "type": "object"},
         {"properties": {"a": {"type": "string"}}, "type": "object"}, False),  # {} fits both
        ({"properties": {"a": {"type": "null"}}, "type": "object", "required": ["a"]},
         {"type": "object", "patternProperties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "strin"}, {"type": 3}, True),  # what is no type is refused elsewhere
        ({"enum": 3, "required": "a", "allOf": {}, "anyOf": 1}, {}, False),
    ],
)  # fmt: skip
def test_pairs(one: Any, other: Any, expected: bool) -> None:
    assert Disjoint(resolved).two(one, other) is expected
    assert Disjoint(resolved).two(other, one) is expected


VALUES = st.sampled_from([None, True, 0, 1, 1.0, 1.5, "", "a", "b", [], ["a"], {}, {"a": 1}])
NAMES = st.sampled_from(["a", "b"])
SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries({}, optional={
        "type": st.sampled_from(["null", "string", "object", "number", "integer", "array"]),
        "const": VALUES, "enum": st.lists(VALUES, min_size=1),
    })
    | st.sampled_from(sorted(DEFINITIONS.keys() - {"around"})).map(ref),
    lambda inner: st.fixed_dictionaries({}, optional={
        "type": st.just("object"),
        "properties": st.dictionaries(NAMES, inner), "required": st.lists(NAMES, unique=True),
        "additionalProperties": inner, "patternProperties": st.dictionaries(NAMES, inner),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=3),
        "oneOf": st.lists(inner, min_size=1, max_size=3),
    }),
    max_leaves=6,
)  # fmt: skip
INSTANCES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner)
)


@pytest.mark.full
@pytest.mark.parametrize("part", parts(4))
@settings(max_examples=300, deadline=None)
@given(one=SCHEMAS, other=SCHEMAS, values=st.lists(INSTANCES, min_size=10, max_size=30))
def test_nothing_fits_both(part: int, one: Any, other: Any, values: list[Any]) -> None:
    """A validator judges values that may match."""
    if not Disjoint(resolved).two(one, other):
        return
    validators = [
        jsonschema_rs.validator_for({"$defs": DEFINITIONS, "allOf": [schema]})
        for schema in (one, other)
    ]
    for value in values:
        assert not all(validator.is_valid(value) for validator in validators)


@pytest.mark.full
def test_what_costs_too_much_is_not_known() -> None:
    cases = [{"const": number} for number in range(400)]
    assert not Disjoint(resolved).all(cases)
    assert Disjoint(resolved).all(cases[:100])
    long: Any = {"allOf": [{"allOf": [{"allOf": [{}] * 50}] * 50}] * 50}
    assert not Disjoint(resolved).two(long, {"type": "null"})


def test_one_of_becomes_any_of() -> None:
    """The rest, which is not known to be disjoint, is left to llguidance."""
    schema = {"title": "t", "oneOf": [ref("text"), ref("list")], "$defs": DEFINITIONS}
    found = read_schema(schema)
    assert [key for key in found.schema if key != "$defs"] == ["title", "anyOf"]
    assert [(k.path, k.state) for k in found.keywords][:2] == [
        ("#/title", "note"),
        ("#/oneOf", "enforced"),
    ]
    Grammar.json_schema(schema)
    both = {**schema, "anyOf": [{"type": "string"}, {"type": "array"}]}
    assert "oneOf" not in read_schema(both).schema
    Grammar.json_schema(both)
    starts = [{"type": "string", "pattern": f"^{letter}"} for letter in "ab"]
    for other in (
        {"oneOf": starts},
        {**schema, "properties": {"a": {"$ref": "#/oneOf/0"}}},
    ):
        assert "oneOf" in read_schema(other).schema
