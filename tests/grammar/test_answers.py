"""Generated text matches its grammar, whatever the logits are."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from tests.toy_model import FIRST_BYTE, toy_model
from trinity.grammar.grammar import Grammar
from trinity.model import Model

# Every draw is possible, so that random logits reach every corner of a grammar.
RANDOM = {"temperature": 6.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SHORT = {"type": "string", "maxLength": 5}

SCHEMAS: dict[str, Any] = {
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "types": {"type": ["null", "boolean"]},
    "integer range": {"type": "integer", "minimum": -12, "maximum": 345},
    "exclusive": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 20},
    "number range": {"type": "number", "minimum": -1.5, "maximum": 2.25},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1000},
    "length": {"type": "string", "minLength": 2, "maxLength": 6},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
    "dot": {"type": "string", "pattern": "^.{3}$"},
    "space": {"type": "string", "pattern": r"^a\sb\S$"},
    "enum": {"enum": ["red", "green", 3, None, {"a": [1, True]}]},
    "const": {"const": {"b": [1, "é\n\"", False], "a": 1.5}},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time", "maxLength": 40},
    "uuid": {"type": "string", "format": "uuid"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "json-pointer": {"type": "string", "format": "json-pointer", "maxLength": 9},
    "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    "prefix": {"type": "array", "prefixItems": [{"const": 1}, SHORT], "items": False},
    "tuple of old": {"type": "array", "items": [{"const": 1}], "additionalItems": False,
                     "$schema": "http://json-schema.org/draft-07/schema#"},
    "object": {"type": "object", "properties": {"a": SHORT, "b": {"type": "boolean"}},
               "required": ["a"], "additionalProperties": False},
    "order": {"type": "object", "properties": {"z": {"const": 1}, "a": {"const": 2}},
              "required": ["a", "z"], "additionalProperties": False},
    "names": {"type": "object", "patternProperties": {"^[xy]$": {"type": "integer", "maximum": 9,
              "minimum": 0}}, "additionalProperties": False, "maxProperties": 2},
    "least one": {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
                  "minProperties": 1, "additionalProperties": False},
    "anyOf": {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": ["no"]}]},
    "oneOf": {"oneOf": [{"type": "boolean"}, {"const": "yes"}]},
    "allOf": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]},
    "ref": {"$defs": {"colour": {"enum": ["red", "blue"]}},
            "type": "array", "items": {"$ref": "#/$defs/colour"}, "maxItems": 2},
    "anchor": {"$defs": {"x": {"$anchor": "it", "type": "boolean"}}, "$ref": "#it"},
    "list": {"$defs": {"list": {"type": ["object", "null"], "required": ["rest"], "properties": {
             "rest": {"$ref": "#/$defs/list"}}, "additionalProperties": False}},
             "$ref": "#/$defs/list"},
    "dependent": {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
                  "dependentRequired": {"a": ["b"]}, "additionalProperties": False},
    "dependent schema": {"type": "object", "properties": {"a": {"const": 1}, "b": {"enum": [2, 3]}},
                         "dependentSchemas": {"a": {"required": ["b"],
                         "properties": {"b": {"const": 3}}}}, "additionalProperties": False},
    "dependencies": {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2},
                     "c": {"const": 3}}, "dependencies": {"a": ["b"], "b": {"required": ["c"]}},
                     "additionalProperties": False, "required": ["a"],
                     "$schema": "http://json-schema.org/draft-07/schema#"},
    "oneOf of references": {"$defs": {"one": {"type": "object", "properties": {"k": {"const": 1}},
                            "required": ["k"], "additionalProperties": False}, "flag": {"type":
                            "boolean"}}, "oneOf": [{"$ref": "#/$defs/one"},
                            {"$ref": "#/$defs/flag"}]},
    "closed": {"type": "object", "properties": {"a": {"const": 1}},
               "unevaluatedProperties": False},
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Model:
    return toy_model(context_length=600, prefill_chunk=16)[0]


@pytest.mark.few(36)
@pytest.mark.parametrize("name", SCHEMAS)
def test_instances_of_schemas(model: Model, name: str) -> None:
    schema = SCHEMAS[name]
    grammar = Grammar.json_schema(schema)
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    whole = 0
    for seed in range(6):
        found = model.generate("a", grammar=grammar, seed=seed, **RANDOM)
        if found.finish_reason == "stop":
            whole += 1
            value = json.loads(found.text)
            assert validator.is_valid(value), found.text
            # Of these there are several ways to write them.
            if name not in ("number range", "const", "names"):
                assert found.text == json.dumps(value, ensure_ascii=False)
    assert whole >= 3


@pytest.mark.parametrize(
    "pattern",
    [r"[a-f]{3,9}", r"\d{4}-\d\d", r"(yes|no)( (yes|no)){0,3}", r"^é{2}x?$", r"(?i)abc", r"a/b\.c"],
)
def test_regular_expressions(model: Model, pattern: str) -> None:
    grammar = Grammar.regex(pattern)
    for seed in range(5):
        found = model.generate("a", grammar=grammar, seed=seed, **RANDOM)
        assert found.finish_reason == "stop"
        assert re.fullmatch(pattern, found.text), found.text


def test_least_tokens(model: Model) -> None:
    """The text continues up to ``min_tokens`` where the grammar allows it."""
    ends = dict.fromkeys(model.tokenizer.eog_ids, 90.0)
    options: dict[str, Any] = {"logit_bias": ends, "temperature": 0.0, "min_tokens": 5}
    assert model.generate("a", grammar=Grammar.regex("b*"), **options).text == "bbbbb"
    assert model.generate("a", grammar=Grammar.regex("b{3}"), **options).text == "bbb"


def test_choices(model: Model) -> None:
    texts = ["a", "ab", "abc d", '\x7f\n"\\', "日本"]
    grammar = Grammar.choice(texts)
    found = {
        model.generate(f"{seed}", grammar=grammar, seed=seed, **RANDOM).text for seed in range(80)
    }
    assert found == set(texts)


def test_a_choice_of_nothing_is_empty(model: Model) -> None:
    found = model.generate("a", grammar=Grammar.choice([""]))
    assert (found.text, found.token_ids, found.finish_reason) == ("", [], "stop")


def test_gbnf(model: Model) -> None:
    text = r"""
root  ::= ("x" | item)+ end   # a comment
item  ::= "\u00e9" [0-9a-c]{2} |
          "-" .
end   ::= "\x21"
"""
    grammar = Grammar.gbnf(text)
    for seed in range(8):
        found = model.generate("a", grammar=grammar, seed=seed, **RANDOM)
        if found.finish_reason == "stop":
            assert re.fullmatch(r"(x|é[0-9a-c]{2}|-.)+!", found.text), found.text


def test_lark_with_a_schema_and_a_token(model: Model) -> None:
    grammar = Grammar.lark('start: "call " %json {"type": "boolean"} <s> "."')
    for seed in range(3):
        found = model.generate("a", grammar=grammar, seed=seed, **RANDOM)
        assert found.text in ("call true.", "call false.")
        assert 1 in found.token_ids  # <s>


def test_control_tokens_come_of_no_text(model: Model) -> None:
    found = model.generate("a", grammar=Grammar.choice(["<s>"]))
    assert (found.text, found.finish_reason) == ("<s>", "stop")
    assert all(token >= FIRST_BYTE for token in found.token_ids)


def test_any_white_space(model: Model) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    one_line = {
        model.generate("a", grammar=Grammar.json_schema(schema), seed=s, **RANDOM).text
        for s in range(5)
    }
    assert one_line == {'{"a": 1}'}
    grammar = Grammar.json_schema(schema, whitespace=True)
    texts = [model.generate("a", grammar=grammar, seed=s, **RANDOM) for s in range(5)]
    assert {repr(json.loads(c.text)) for c in texts if c.finish_reason == "stop"} <= {"{'a': 1}"}
    assert len({c.text for c in texts}) > 1


@pytest.mark.full
def test_json_object(model: Model) -> None:
    for seed in range(3):
        found = model.generate("a", grammar=Grammar.json_object(), seed=seed, **RANDOM)
        assert found.text.startswith("{")
        if found.finish_reason == "stop":
            assert isinstance(json.loads(found.text), dict)
