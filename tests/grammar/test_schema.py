"""Every keyword of a schema is enforced, noted or refused, and its path is named."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pydantic
import pytest
from llguidance import LLTokenizer
from pydantic import TypeAdapter

from trinity import InputError
from trinity.grammar.grammar import Grammar
from trinity.grammar.keywords import REFUSED
from trinity.grammar.limits import DEEPEST, LONGEST
from trinity.grammar.patterns import rust_pattern
from trinity.grammar.schema import read_schema


def refusal(schema: Any) -> str:
    with pytest.raises(InputError) as caught:
        Grammar.json_schema(schema)
    return str(caught.value)


def states(schema: Any) -> dict[str, str]:
    return {keyword.path: keyword.state for keyword in read_schema(schema).keywords}


NEEDS = {"minContains": "contains", "maxContains": "contains"}


@pytest.mark.parametrize("keyword", sorted(REFUSED))
def test_refused_keywords_are_named_with_their_path(keyword: str) -> None:
    inner: dict[str, Any] = {
        keyword: {"type": "string", "pattern": "a"},
        **({NEEDS[keyword]: {}} if keyword in NEEDS else {}),
    }
    if keyword == "if":
        inner["then"] = False
    schema = {"type": "object", "properties": {"a/b": {"items": inner}}}
    assert f"#/properties/a~1b/items/{keyword}" in refusal({**schema}) or keyword in NEEDS
    assert states(schema)[f"#/properties/a~1b/items/{keyword}"] == "refused"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"requried": ["a"]}, "#/requried: an unknown keyword of JSON Schema; did you mean req"),
        ({"minlength": 3}, "#/minlength: an unknown keyword of JSON Schema; did you mean minL"),
        ({"type": "strng"}, "#/type: expected one of array, boolean"),
        ({"type": []}, "#/type: expected at least one type"),
        ({"minLength": -1}, "#/minLength: expected an integer from 0"),
        ({"minLength": True}, "#/minLength: expected an integer"),
        ({"maxItems": 2.5}, "#/maxItems: expected an integer"),
        ({"minimum": "3"}, "#/minimum: expected a number"),
        ({"maximum": 2**60}, "#/maximum: expected a number of at most 53 bits"),
        ({"enum": [1, 2**53 + 1]}, "#/enum: expected a number of at most 53 bits"),
        ({"enum": []}, "#/enum: expected a list of values"),
        ({"multipleOf": 0}, "#/multipleOf: expected a number above 0"),
        ({"required": "a"}, "#/required: expected a list of names"),
        ({"properties": []}, "#/properties: expected an object"),
        ({"anyOf": []}, "#/anyOf: expected a list of schemas"),
        ({"items": 3}, "#/items: a schema is an object, true or false, not a number"),
        ({"properties": {"a": None}}, "#/properties/a: a schema is an object"),
        ({"pattern": 3}, "#/pattern: expected text, found a number"),
        ({"format": "datetime"}, "#/format: an unknown format; did you mean date-time?"),
        ({"format": "regex"}, "#/format: the format 'regex' is not enforced; write a pattern"),
        ({"$ref": "http://x.y/z"}, "#/$ref: 'http://x.y/z' is outside of the document"),
        ({"$ref": "other.json#/a"}, "#/$ref: 'other.json#/a' is outside of the document"),
        ({"$ref": "#/$defs/a"}, "#/$ref: there is nothing at #/$defs/a"),
        ({"$ref": "#a"}, "#/$ref: the document has no anchor 'a'"),
        ({"$ref": 3}, "#/$ref: expected text, found a number"),
        ({"$schema": "http://x.y/z"}, "#/$schema: 'http://x.y/z' is an unknown version"),
        ({"minProperties": 3}, "#/minProperties: it may exceed the number of required"),
        ({"nullable": True}, '#/nullable: without a single type: write "null" among the types'),
        ({"type": "string", "const": "a", "nullable": True}, "#/nullable: without a single type"),
        ({"dependentRequired": {"a": "b"}}, "#/dependentRequired: expected a list of names, found"),
        ({"dependentRequired": {"a": {}}}, "#/dependentRequired: expected a list of names, found"),
        ({"dependentSchemas": {"a": []}}, "#/dependentSchemas: expected a schema, found"),
        ({"dependencies": {"a": 3}}, "#/dependencies: expected a list of names or a schema, found"),
        ({"dependencies": []}, "#/dependencies: expected an object, found []"),
        ({"dependencies": {"a": {"contains": {}}}}, "#/dependencies/a/contains: "),
        ({"prefixItems": [{}], "items": [{}]},
         "#/items: items is a list of schemas, which is not allowed together with prefixItems"),
        ({"$defs": {"a": {"contains": {}}}, "items": {"$ref": "#/$defs/a"}},
         "#/$defs/a/contains: "),
        ({"properties": {"a": {"$id": "b", "items": {"$ref": "#/x"}}}},
         "#/properties/a/items/$ref: references within a part that has an $id"),
        # What llguidance refuses, with the part that is at fault.
        ({"properties": {"a": {"items": {"pattern": "a(?=b)"}}}}, "#/properties/a/items: "),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {"pattern": "a"}]}}},
         "#/properties/a: "),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "#: "),
        ({"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}, "enforced: #"),
        ({"items": {"allOf": [{"not": {}}]}, "minItems": 1, "type": "array"},
         "enforced: #/items/allOf/0: Unsatisfiable"),
        ({"$ref": "#", "type": "object"}, ""),
        (False, ""),
        ([], "#: a schema is an object, true or false, not a list"),
        ("[", "is not valid JSON"),
        ('{"const": NaN}', "NaN is not valid JSON"),
        ({"const": float("inf")}, "is not valid JSON"),
        ({"const": {1, 2}}, "is not valid JSON"),
        (3.5, "#: a schema is an object"),
        ("{" + '"items": {' * 2000 + "}" * 2001, "levels deep"),
        (json.dumps({"const": "x" * LONGEST}), f"the limit is {LONGEST}"),
    ],
)  # fmt: skip
def test_what_is_refused(schema: Any, message: str) -> None:
    assert message in refusal(schema)


def test_depth() -> None:
    def nested(levels: int) -> Any:
        schema: Any = {"type": "null"}
        for _ in range(levels):
            schema = {"items": schema}
        return schema

    Grammar.json_schema({"type": "array", **nested(DEEPEST // 2)})
    assert "levels deep" in refusal(nested(DEEPEST + 1))


def test_notes_are_no_rules() -> None:
    schema = {"title": "a", "x-order": 3, "_format": "b", "description": "c", "type": "null",
              "uniqueItems": False, "then": {"contains": {}}, "format": "colour",
              "properties": {"a": {"type": "string", "format": "country-code"}}}  # fmt: skip
    found = states(schema)
    rules = ("#/type", "#/properties", "#/properties/a/type")
    assert {found.pop(path) for path in rules} == {"enforced"}
    assert set(found.values()) == {"note"}


def test_only_definitions_that_are_used_count() -> None:
    schema = {"$defs": {"a": {"contains": {}}, "b": {"type": "null"}}, "$ref": "#/$defs/b"}
    assert states(schema) == {"#/$ref": "enforced", "#/$defs/b/type": "enforced"}
    Grammar.json_schema(schema)


def test_references_of_all_kinds() -> None:
    schema = {
        "$id": "https://x.y/z",
        "definitions": {"a b": {"$anchor": "here", "type": "null"}, "c~d/e": {"type": "null"}},
        "prefixItems": [{"$ref": "#here"}, {"$ref": "#/definitions/a%20b"},
                        {"$ref": "https://x.y/z#/definitions/c~0d~1e"},
                        {"$ref": "#/prefixItems/0"}, {"$ref": "#"}],
    }  # fmt: skip
    assert "refused" not in states(schema).values()
    Grammar.json_schema(schema)


def test_the_schema_that_was_given_stays_as_it_is() -> None:
    schema = {"type": "string", "format": "date", "$schema": "http://json-schema.org/schema#"}
    before = json.dumps(schema)
    Grammar.json_schema(schema)
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.b", "a[^\n\r\u2028\u2029]b"),
        (r"a\.b", r"a\.b"),
        ("[.]", "[.]"),
        ("[[&&a]", r"[\[\&\&a]"),
        ("a{,3}", r"a\{,3}"),
        (r"[^\]]", r"[^[\x00]\]]"),
        ("[^]", r"[^[\x00]]"),
        (r"[\x00-a]", r"[\x00-a&&[^\x00]]"),
        (r"[^\x00-a]", r"[^[\x00]\x00-a]"),
        (r"\u{61}\p{L}", r"\u{61}[\p{L}&&[^\x00]]"),
    ],
)
def test_patterns_in_another_syntax(pattern: str, expected: str) -> None:
    assert rust_pattern(pattern) == expected


@pytest.mark.parametrize("pattern", [r"\Aa", r"a\Z", r"[\S]"])
def test_patterns_that_would_be_misread(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\\"):
        rust_pattern(pattern)
    assert "#/pattern: " in refusal({"pattern": pattern})


@pytest.mark.parametrize(
    "pattern",
    ['^[^"]$', r"^[^\\]$", r"^[^a]$", r"^[\x00-!]$", r"^\p{Cc}$", r"^\W$", r"^[\p{Cc}a]$",
     r"^[\u0000-\u0021]$", r"^\P{L}$", "^.$", r"^[^\u0000-\u001f]$", r'^[^-"]$', r'^[^^"]$'],
)  # fmt: skip
def test_quotes_and_backslashes_are_characters(pattern: str) -> None:
    """Characters that a class excludes are written with JSON escapes."""
    grammar = Grammar.json_schema({"type": "string", "pattern": pattern})
    validator = jsonschema_rs.validator_for({"pattern": pattern})
    for character in '"\\/a-^é!\x01\x1f':
        matcher = grammar.compiled(LLTokenizer("byte"), {})
        raw = list(json.dumps(character, ensure_ascii=False).encode())
        taken = matcher.try_consume_tokens(raw) == len(raw) and matcher.is_accepting()
        assert taken == validator.is_valid(character), character


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"type": "integer"}, ["9007199254740992", "-9007199254740992", "0"], ["9007199254740993"]),
        ({"type": ["null", "integer"]}, ["null", "7"], ["-10000000000000000"]),
        ({"type": "integer", "minimum": 3}, ["3", "9007199254740992"], ["2", "9007199254740993"]),
        ({"type": "integer", "exclusiveMaximum": 3}, ["2"], ["3", "-9007199254740993"]),
        ({"type": "number"}, ["10000000000000000", "1e300", "0.25"], []),
        ({"anyOf": [{"type": "integer"}, {"const": "x"}]}, ['"x"', "7"], ["10000000000000000"]),
        ({"not": {"type": "number"}}, ["null"], ["7"]),
    ],
)
def test_integers_have_at_most_53_bits(schema: Any, taken: list[str], refused: list[str]) -> None:
    check_texts(schema, taken, refused)


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"type": "string", "nullable": True}, ["null", '"a"'], ["7"]),
        ({"type": "string", "nullable": False}, ['"a"'], ["null"]),
        ({"type": "string", "enum": ["a"], "nullable": True}, ["null", '"a"'], ['"b"']),
        ({"nullable": True, "enum": ["a", None], "type": "string"}, ["null", '"a"'], ['"b"']),
        ({"type": "integer", "nullable": True}, ["null", "7"], ["10000000000000000", '"a"']),
        ({"type": "string", "format": "date", "nullable": True}, ["null", '"2026-11-26"'], ['"a"']),
        (
            {"type": "object", "properties": {"a": {"type": "array", "nullable": True}},
             "required": ["a"], "additionalProperties": False},
            ['{"a": null}', '{"a": []}'], ['{"a": 1}', "null"],
        ),
    ],
)  # fmt: skip
def test_nullable_of_openapi(schema: Any, taken: list[str], refused: list[str]) -> None:
    assert set(states(schema).values()) <= {"enforced", "note"}
    check_texts(schema, taken, refused)


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"type": "array", "items": {"enum": [1]}, "min_items": 1, "max_items": 2},
         ["[1]", "[1, 1]"], ["[]", "[1, 1, 1]"]),
        ({"type": "array", "items": {"enum": [1]}, "min_items": 1, "minItems": 2},
         ["[1, 1]"], ["[1]"]),
        ({"type": "string", "min_length": 2, "max_length": 3}, ['"ab"', '"abc"'],
         ['"a"', '"abcd"']),
        ({"type": "object", "properties": {"min_items": {"enum": [1]}},
          "additionalProperties": False, "min_properties": 1}, ['{"min_items": 1}'], ["{}"]),
        ({"type": "integer", "exclusive_minimum": 3, "multiple_of": 2, "maximum": 9},
         ["4", "6", "8"], ["2", "3", "5", "10"]),
    ],
)  # fmt: skip
def test_limits_in_pythons_spelling(schema: Any, taken: list[str], refused: list[str]) -> None:
    """browser-use and Google's libraries write ``min_items`` and the like."""
    assert set(states(schema).values()) == {"enforced"}
    check_texts(schema, taken, refused)


@pytest.mark.parametrize("version", [1, 3, 4, 5, 7])
def test_uuids_of_one_version(version: int) -> None:
    """pydantic's UUID4 and the like; RFC 9562 has the digits of version and variant."""
    made = [f"00000000-0000-{version}000-{variant}000-00000000000F" for variant in "89aBc7"]
    texts = [json.dumps(text) for text in (*made, made[0].replace(f"-{version}", "-2"))]
    schema = {"type": "string", "format": f"uuid{version}"}
    check_texts(schema, texts[:4], texts[4:])
    valid: type = getattr(pydantic, f"UUID{version}")
    for text in texts[:4]:
        TypeAdapter(valid).validate_json(text)


INTEGER = {"type": "integer"}
AB = {"type": "string", "enum": ["a", "b"]}


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        (  # zod's record
            {"type": "object", "propertyNames": {"type": "string"},
             "additionalProperties": INTEGER},
            ["{}", '{"x": 1, "y": 2}'], ['{"x": "1"}'],
        ),
        (  # zod's record with an enum as key
            {"type": "object", "propertyNames": AB, "additionalProperties": INTEGER,
             "required": ["a", "b"]},
            ['{"a": 1, "b": 2}'], ['{"a": 1}', '{"a": 1, "b": "2"}', '{"a": 1, "b": 2, "c": 3}'],
        ),
        (  # pydantic's dict with Literal keys
            {"type": "object", "propertyNames": {"enum": ["a", "b"]},
             "additionalProperties": INTEGER},
            ["{}", '{"b": 2}', '{"a": 1, "b": 2}'], ['{"c": 1}'],
        ),
        (
            {"type": "object", "propertyNames": {"const": "a"}, "properties": {"a": INTEGER}},
            ["{}", '{"a": 1}'], ['{"a": "x"}', '{"b": 1}'],
        ),
        ({"type": "object", "propertyNames": AB}, ["{}", '{"a": [1], "b": "x"}'], ['{"c": 1}']),
    ],
)  # fmt: skip
def test_names_of_properties(schema: Any, taken: list[str], refused: list[str]) -> None:
    assert set(states(schema).values()) == {"enforced"}
    check_texts(schema, taken, refused)


@pytest.mark.parametrize(
    "more",
    [
        {"propertyNames": {"pattern": "^a"}},
        {"propertyNames": {"type": "integer"}},
        {"propertyNames": {"enum": ["a", 1]}},
        {"propertyNames": AB, "properties": {"c": {}}},
        {"propertyNames": AB, "patternProperties": {"^c": {}}},
    ],
)
def test_other_names_of_properties_are_refused(more: dict[str, Any]) -> None:
    assert "#/propertyNames: only a list of names is" in refusal({"type": "object", **more})


def check_texts(schema: Any, taken: list[str], refused: list[str]) -> None:
    """Check that the grammar of a schema accepts some texts and refuses others."""
    grammar = Grammar.json_schema(schema)
    table = LLTokenizer("byte")
    for text, expected in [*((one, True) for one in taken), *((one, False) for one in refused)]:
        matcher = grammar.compiled(table, {})
        ids = table.tokenize_str(text)
        whole = matcher.try_consume_tokens(ids) == len(ids)
        assert (whole and matcher.is_accepting()) is expected, text
