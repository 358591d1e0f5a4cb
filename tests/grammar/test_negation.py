"""The keyword "not" allows exactly what the negated schema does not."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grammar.test_disjoint import DEFINITIONS, INSTANCES, NAMES, VALUES, ref, resolved
from tests.matrix import parts
from tests.toy_model import toy_model
from trinity import InputError
from trinity.grammar.disjoint import Disjoint
from trinity.grammar.grammar import Grammar
from trinity.grammar.negation import Negation, NoNegationError, other_texts
from trinity.grammar.schema import read_schema

COUNTS = st.integers(0, 3)
SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries({}, optional={
        "type": st.sampled_from(["null", "string", "object", "number", "array"])
        | st.lists(st.sampled_from(["null", "string", "number"]), min_size=1, unique=True),
        "const": VALUES, "enum": st.lists(VALUES, min_size=1), "title": st.just("a"),
    })
    | st.fixed_dictionaries({}, optional={
        "minLength": COUNTS, "maxLength": COUNTS, "minItems": COUNTS, "maxItems": COUNTS,
        "minProperties": COUNTS, "maxProperties": COUNTS, "minimum": COUNTS, "maximum": COUNTS,
        "exclusiveMinimum": COUNTS, "exclusiveMaximum": COUNTS, "items": st.just({}),
    })
    | st.sampled_from(["text", "circle", "either"]).map(ref),
    lambda inner: st.fixed_dictionaries({}, optional={
        "properties": st.dictionaries(NAMES, inner), "required": st.lists(NAMES, unique=True),
        "not": inner, "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=3),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
    }),
    max_leaves=5,
)  # fmt: skip


def negation() -> Negation:
    return Negation(resolved, Disjoint(resolved).all)


def validator(schema: Any) -> Any:
    return jsonschema_rs.validator_for({"$defs": DEFINITIONS, "allOf": [schema]})


@pytest.mark.full
@pytest.mark.parametrize("part", parts(4))
@settings(max_examples=300, deadline=None)
@given(schema=SCHEMAS, values=st.lists(INSTANCES, min_size=5, max_size=20))
def test_the_others_fit(part: int, schema: Any, values: list[Any]) -> None:
    try:
        negated = negation().of(schema)
    except NoNegationError:
        return
    before, after = validator(schema), validator(negated)
    for value in values:
        assert before.is_valid(value) != after.is_valid(value), value


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"pattern": "a"}, "pattern"),
        ({"type": "integer"}, "type"),
        ({"type": [{}]}, "type"),
        ({"const": [1]}, "const"),
        ({"const": "a" * 65}, "const"),
        ({"enum": list(range(101))}, "enum"),
        ({"items": {"type": "null"}}, "items"),
        ({"additionalProperties": False}, "additionalProperties"),
        ({"format": "date"}, "format"),
        ({"requried": ["a"]}, "requried"),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, "oneOf"),
        ({"$ref": "#/$defs/text", "type": "null"}, "$ref"),
        (ref("around"), "a part of it"),
        (ref("nowhere"), "a part of it"),
        ({"properties": {"a": 3}}, "a part of it"),
        ({"minimum": "a"}, "minimum"),
        ({"exclusiveMinimum": True}, "exclusiveMinimum"),
    ],
)
def test_what_is_not_negated(schema: Any, fault: str) -> None:
    with pytest.raises(NoNegationError) as caught:
        negation().of(schema)
    assert str(caught.value) == fault
    if fault not in ("requried", "a part of it", "$ref"):
        with pytest.raises(InputError, match=rf"#/not: .*{fault} cannot be rewritten"):
            Grammar.json_schema({"not": schema})


def test_bounds_of_older_schemas() -> None:
    for excluded in (True, False):
        negated = negation().of({"minimum": 3, "exclusiveMinimum": excluded})
        assert validator(negated).is_valid(3) == excluded
        assert validator(negated).is_valid(2)
        assert not validator(negated).is_valid(4)


@pytest.mark.parametrize("texts", [{"a"}, {"", "ab", "ac"}, {"abc", "ab"}, {'"\\', "]^-"}, {"é\n"}])
def test_other_texts(texts: set[str]) -> None:
    grammar = Grammar.json_schema({"type": "string", "pattern": f"^{other_texts(texts)}$"})
    near = texts | {text[:-1] for text in texts} | {text + "a" for text in texts} | {"x", "aa", "é"}
    for text in near:
        assert takes(grammar, text) == (text not in texts), text


def takes(grammar: Grammar, value: Any) -> bool:
    """Whether the grammar accepts a value byte by byte."""
    from llguidance import LLTokenizer

    matcher = grammar.compiled(LLTokenizer("byte"), {})
    raw = json.dumps(value, ensure_ascii=False).encode()
    return bool(matcher.try_consume_tokens(list(raw)) == len(raw) and matcher.is_accepting())


EITHER: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
}
ONE = [{"a": 1}, {"b": 2}]
BOTH = [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({**EITHER, "not": {"required": ["a", "b"]}}, [*ONE, {}], BOTH),
        ({**EITHER, "not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}}, [{}],
         [*ONE, *BOTH]),
        ({**EITHER, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, ONE, [{}, *BOTH]),
        ({**EITHER, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, [*BOTH, {"b": 1}],
         [{"a": 1}]),
        ({**EITHER, "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]},
          "else": {"properties": {"b": False}}}, [{"a": 1, "b": 2}, {"a": 2}, {"b": 1}],
         [{"a": 1}, {"a": 2, "b": 1}, {}]),
        ({"type": "string", "not": {"enum": ["a", "bc"]}}, ["", "b", "ab", "bcd"], ["a", "bc", 1]),
        ({"type": "number", "not": {"const": 2}}, [1, 1.5, 2.5, 3], [2, "a"]),
        ({"not": {"type": ["string", "array", "object"]}}, [1, None, True], ["a", [], {}]),
        ({"oneOf": [{"type": "number"}, {"minimum": 3}]}, [2, "a", None], [3, 4.5]),
    ],
)  # fmt: skip
def test_keywords_in_other_words(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    assert [k for k in read_schema(schema).keywords if k.state == "refused"] == []
    check = jsonschema_rs.validator_for(schema)
    assert [check.is_valid(value) for value in (*valid, *invalid)] == (
        [True] * len(valid) + [False] * len(invalid)
    )
    grammar = Grammar.json_schema(schema, open_objects=True)
    assert [value for value in valid if not takes(grammar, value)] == []
    assert [value for value in invalid if takes(grammar, value)] == []


def test_paths_are_those_of_the_schema() -> None:
    schema = {
        "if": {"required": ["a"]},
        "then": {"minLength": 1, "contains": {}},
        "not": {"not": {"uniqueItems": True}},
    }
    found = {keyword.path: keyword for keyword in read_schema(schema).keywords}
    states = {path: keyword.state for path, keyword in found.items()}
    assert states["#/then/minLength"] == states["#/if"] == states["#/then"] == "enforced"
    assert states["#/then/contains"] == "refused"
    assert states["#/not"] == "refused"
    assert found["#/not"].name == "not"
    assert not any("~" in path for path in states)


def test_answers_keep_to_it() -> None:
    model, _ = toy_model(context_length=400, prefill_chunk=16)
    schema = {**EITHER, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    check, grammar = (
        jsonschema_rs.validator_for(schema),
        Grammar.json_schema(schema, open_objects=True),
    )
    for seed in range(6):
        found = model.generate("a", grammar=grammar, seed=seed, temperature=6.0, top_k=0)
        if found.finish_reason == "stop":
            assert check.is_valid(json.loads(found.text)), found.text
