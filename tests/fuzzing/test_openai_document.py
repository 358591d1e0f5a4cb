"""How OpenAI's document is reduced and read."""

from __future__ import annotations

import jsonschema_rs

from tests.fuzzing.openai_document import nullable, reachable


def test_nullable_is_written_as_openapi_has_it_now() -> None:
    old = {"type": "object", "properties": {"a": {"enum": ["x"], "nullable": True}, "b": [1]}}
    schema = nullable(old)
    del schema["properties"]["b"]
    validator = jsonschema_rs.Draft202012Validator(schema)
    assert [validator.is_valid({"a": one}) for one in ("x", None, "y")] == [True, True, False]


def test_only_what_is_referred_to_is_kept() -> None:
    def refers(name: str) -> dict[str, str]:
        return {"$ref": f"#/components/{name}"}

    components = {
        "schemas": {"A": {"items": refers("schemas/B")}, "B": refers("schemas/A"), "C": {}},
        "responses": {"R": {"schema": refers("schemas/A")}, "S": {}},
    }
    found = reachable({"paths": [refers("responses/R")]}, components)
    assert {kind: set(names) for kind, names in found.items()} == {
        "responses": {"R"},
        "schemas": {"A", "B"},
    }
