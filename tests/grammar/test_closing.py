"""Objects that lose the properties that their schemas do not name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trinity.grammar.schema import closed_schema, read_schema

llguidance = pytest.importorskip("llguidance")
from trinity.grammar.grammar import Grammar  # noqa: E402 - needs llguidance

TEXT = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.fixture(scope="module")
def table() -> Any:
    return llguidance.LLTokenizer("byte")


def accepts(table: Any, grammar: Grammar, value: Any) -> bool:
    text = json.dumps({"grammars": [{"json_schema": json.loads(grammar.text)}]})
    matcher = llguidance.LLMatcher(table, text)
    assert not matcher.is_error(), matcher.get_error()
    ids = list(json.dumps(value).encode())
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


PERSON = {"$ref": "#/$defs/P"}
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    # llama.cpp's rules: tests/test-json-schema-to-grammar.cpp
    "required props in original order": (
        {**of(b=TEXT, c=TEXT, a=TEXT), "required": ["a", "b", "c"]},
        [{"b": "", "c": "", "a": ""}], [{"b": "", "c": "", "a": "", "d": ""}],
    ),
    "optional props": (of(a=TEXT), [{}, {"a": "x"}], [{"b": "x"}, {"a": "x", "b": 1}]),
    "items without a type": ({"items": TEXT, "minItems": 1}, [["a"]], [1.5, [], "a", {}, [1]]),
    "properties without a type": ({"properties": {"a": TEXT}}, [{}, {"a": "x"}], [1, [], {"b": 1}]),
    "a length without a type": ({"minLength": 2}, ["ab"], ["a", 1, None]),
    "no type in properties": (of(a={"items": {}}), [{"a": [1, None]}], [{"a": 1}]),
    "no type in alternatives": (
        {"anyOf": [{"properties": {"a": TEXT}}, {"items": TEXT}]}, [{"a": "x"}, ["a"]], [1, "a"],
    ),
    "further properties of any kind": ({"additionalProperties": True}, [1, {"a": 1}], []),
    "a condition without a type": (
        {"not": {"properties": {"a": {"const": 1}}}}, [{"a": 2}], [{"a": 1}, 1],
    ),
    "no properties": ({"type": "object"}, [{"z": 1}], []),
    "empty properties": (of(), [{}], [{"z": 1}]),
    "additional props": (
        {**of(a=TEXT), "additionalProperties": {"type": "integer"}},
        [{"a": "x", "b": 1}], [{"b": "x"}],
    ),
    "additional props (true)": (
        {**of(a=TEXT), "additionalProperties": True}, [{"a": "x", "b": 1}], [],
    ),
    "a schema for anything": (
        {**of(a=TEXT), "additionalProperties": {}}, [{"a": "x", "b": 1}], [],
    ),
    "allOf": ({"allOf": [of(a=TEXT), of(b=TEXT)]}, [{"a": "x", "b": "y"}], [{"c": 1}]),
    "allOf beside properties": (
        {**of(b=TEXT), "allOf": [of(a=TEXT)]}, [{"b": "x", "a": "y"}, {"a": "x"}], [{"c": 1}],
    ),
    "allOf with an open part": (
        {"allOf": [of(a=TEXT), {**of(b=TEXT), "additionalProperties": True}]},
        [{"a": "x", "c": 1}], [],
    ),
    "anyOf": (
        {"anyOf": [of(a=TEXT), of(b=TEXT)]}, [{"a": "x"}, {"b": "x"}],
        [{"c": 1}, {"a": "x", "b": "y"}],
    ),
    "anyOf beside properties": (
        {**of(k=TEXT), "anyOf": [of(a=TEXT), of(b=TEXT)]},
        [{"k": "1", "a": "x"}, {"k": "1", "b": "x"}], [{"c": 1}, {"k": "1", "c": 1}],
    ),
    "oneOf": (
        {"oneOf": [{**of(t={"const": "a"}), "required": ["t"]},
                   {**of(t={"const": "b"}, n=TEXT), "required": ["t"]}]},
        [{"t": "a"}, {"t": "b", "n": "x"}], [{"t": "a", "n": "x"}],
    ),
    "null or an object": (
        {"anyOf": [{"type": "null"}, of(a=TEXT)]}, [None, {"a": "x"}], [{"b": "x"}],
    ),
    "$ref": ({**PERSON, "$defs": {"P": of(a=TEXT)}}, [{"a": "x"}], [{"b": 1}]),
    "$ref of items": (
        {"type": "array", "items": PERSON, "$defs": {"P": of(a=TEXT)}},
        [[{"a": "x"}]], [[{"b": 1}]],
    ),
    "a definition that another extends": (
        {"allOf": [PERSON, of(b=PERSON)], "$defs": {"P": of(a=TEXT)}},
        [{"a": "x", "b": {"a": "y"}}], [{"c": 1}, {"b": {"c": 1}}],
    ),
    "recursive": (
        {**PERSON, "$defs": {"P": of(v=TEXT, next=PERSON)}},
        [{"v": "x", "next": {"v": "y"}}], [{"c": 1}, {"next": {"c": 1}}],
    ),
    "recursive and extended": (
        {"allOf": [PERSON, of(b=TEXT)], "$defs": {"P": of(a=TEXT, boss=PERSON)}},
        [{"a": "x", "boss": {"a": "z"}, "b": "y"}], [{"c": 1}],
    ),
    "patternProperties": (
        {**of(a=TEXT), "patternProperties": {"^x": TEXT}},
        [{"xa": "1"}, {"a": "1", "xa": "1"}], [{"b": "1"}],
    ),
    "required without properties": (
        {**of(a=TEXT), "required": ["a", "z"]}, [{"a": "x", "z": 1}],
        [{"a": "x"}, {"a": "x", "z": 1, "y": 2}],
    ),
    "dependentRequired": (
        {**of(a=TEXT), "dependentRequired": {"a": ["q"]}}, [{"a": "x", "q": 1}, {}],
        [{"a": "x"}, {"c": 1}],
    ),
    "if and then": (
        {**of(a=TEXT), "if": of(a={"const": "x"}), "then": {"required": ["b"]}},
        [{"a": "x", "b": 1}, {"a": "y"}], [{"a": "x"}, {"a": "y", "c": 1}],
    ),
    "not": (
        {**of(a=TEXT, b=TEXT), "not": {"required": ["b"]}}, [{"a": "x"}], [{"b": "x"}, {"c": "x"}],
    ),
    "more than the named": (
        {**of(a=TEXT), "required": ["a"], "minProperties": 2}, [{"a": "x", "b": 1}], [{"a": "x"}],
    ),
    "const": ({"const": {"b": 1}, "properties": {"a": TEXT}}, [{"b": 1}], [{"a": "x"}]),
    "within": (of(a=of(b=TEXT)), [{"a": {"b": "x"}}], [{"a": {"c": "x"}}]),
    "a property called properties": (
        of(properties=TEXT, items=of(a=TEXT)), [{"properties": "x", "items": {"a": "y"}}],
        [{"properties": "x", "b": 1}, {"items": {"b": 1}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_only_named_properties(name: str, table: Any) -> None:
    schema, good, bad = CASES[name]
    grammar, opened = Grammar.json_schema(schema), Grammar.json_schema(schema, open_objects=True)
    before = json.dumps(schema)
    for value in good:
        assert accepts(table, grammar, value)
        assert accepts(table, opened, value)
    for value in bad:
        assert not accepts(table, grammar, value)
    assert json.dumps(schema) == before


def test_open_objects_are_what_json_schema_says(table: Any) -> None:
    opened = Grammar.json_schema(of(a=TEXT), open_objects=True)
    assert accepts(table, opened, {"a": "x", "b": 1})
    assert not accepts(table, opened, {"a": 1})


def test_closing_is_no_keyword_of_the_schema() -> None:
    assert [one.name for one in read_schema(of(a=TEXT)).keywords] == ["type", "properties", "type"]
    assert closed_schema(of(a=TEXT)) == {**of(a=TEXT), "additionalProperties": False}
