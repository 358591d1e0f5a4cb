"""Numbers that no machine type can hold, in every field of every body, never give status 500."""

from __future__ import annotations

import json
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from starlette.testclient import TestClient

from trinity.server.endpoints import ENDPOINTS

DIGITS = "9" * 5000
HUGE = "1" + "0" * 400  # no float
VALUES = (
    DIGITS, f'"{DIGITS}"', HUGE, f'{{"{DIGITS}": 1}}', f'{{"5": {HUGE}}}', f"[[1, {HUGE}]]",
    f'{{"type": "json_schema", "json_schema": {{"name": "a", "schema": {{"const": {HUGE}}}}}}}',
    f'[{{"type": "function", "function": {{"name": "f", "parameters": {{"const": {HUGE}}}}}}}]',
)  # fmt: skip
# Words of Python that a client has no use for.
RAW = ("Exceeds the limit", "set_int_max", "OverflowError", "object has no", "NoneType")
BODIES = {
    one.body: one.path
    for one in ENDPOINTS
    if one.method == "POST" and isinstance(one.body, type) and "{" not in one.path
}


@pytest.mark.few(1)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_every_field(client: TestClient, body: type[msgspec.Struct]) -> None:
    fields = {one.encode_name: one for one in msgspec.structs.fields(body)}
    given = least(body)
    given |= {
        name: value
        for name, value in {
            "model": "demo", "max_tokens": 1, "n_predict": 1, "max_output_tokens": 1,
            "options": {"num_predict": 1}, "messages": [{"role": "user", "content": "hi"}],
            "input": "hi", "documents": ["hi"], "content": "hi",
        }.items()
        if name in fields
    }  # fmt: skip
    if "max_tokens" in given:
        given.pop("n_predict", None)
    for name in fields:
        for value in VALUES:
            others = {key: one for key, one in given.items() if key != name}
            text = json.dumps({**others, name: None}).replace("null}", f"{value}}}")
            answer = client.post(BODIES[body], content=text)
            assert answer.status_code < 500 or answer.status_code == 501, (name, value[:60])
            assert not any(word in answer.text for word in RAW), answer.text[:500]


def least(kind: Any) -> Any:
    """Return the smallest value of a type."""
    origin = get_origin(kind)
    if origin is Annotated:
        return least(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return "hi" if str in get_args(kind) else least(get_args(kind)[0])
    if origin is list:
        return [least(get_args(kind)[0])]
    if origin is Literal:
        return get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        tag = kind.__struct_config__
        found = {
            one.encode_name: least(one.type) for one in msgspec.structs.fields(kind) if one.required
        }
        return found | ({tag.tag_field: tag.tag} if tag.tag_field else {})
    return {int: 1, float: 1.0, bool: True, type(None): None, dict: {}}.get(origin or kind, "hi")


def test_a_token_id_of_many_digits_is_named(client: TestClient) -> None:
    ask = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    answer = client.post("/v1/chat/completions", json={**ask, "logit_bias": {DIGITS: 1}})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "logit_bias has a token id of 5000 digits"
    assert answer.json()["error"]["param"] == "logit_bias"
