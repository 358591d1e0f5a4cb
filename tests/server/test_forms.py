"""Structured output, tools and reasoning in chat completions."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import events, strict

PATH = "/v1/chat/completions"
ASK = [{"role": "user", "content": "Who was Prince Andrew?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "rank": {"enum": ["prince", "count"]},
        "age": {"type": "integer", "maximum": 99},
    },
    "required": ["rank", "age"],
    "additionalProperties": False,
}
# The demo model's context is short.
RANK = {"type": "object", "properties": {"r": {"enum": [1, 2]}}, "required": ["r"],
        "additionalProperties": False}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": RANK}} for name in ("look", "ask")
]


def post(client: TestClient, status: int = 200, **body: Any) -> Any:
    response = client.post(PATH, json={"messages": ASK, "max_tokens": 200, "seed": 1, **body})
    assert response.status_code == status, response.text
    return strict(response.text)


def is_whole(value: Any) -> bool:
    return value["rank"] in ("prince", "count") and value["age"] <= 99 and len(value) == 2


@pytest.mark.parametrize("streams", [False, True])
def test_a_schema_is_kept_to(client: TestClient, streams: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
    body = {"response_format": form, "temperature": 1.5}
    if streams:
        response = client.post(PATH, json={"messages": ASK, "stream": True, "seed": 1, **body})
        pieces = [
            one["choices"][0]["delta"].get("content") for one in events(response.content)[:-1]
        ]
        text = "".join(piece or "" for piece in pieces)
    else:
        text = post(client, **body)["choices"][0]["message"]["content"]
    assert is_whole(json.loads(text))


@pytest.mark.parametrize(
    ("form", "allowed"),
    [
        ({"response_format": {"type": "json_object"}}, None),
        ({"response_format": {"type": "json_object", "schema": {"const": 42}}}, ["42"]),
        ({"response_format": {"type": "choice", "choices": ["yes", "no"]}}, ["yes", "no"]),
        ({"response_format": {"type": "grammar", "syntax": "regex", "definition": "[ab]{3}"}}, 3),
        (
            {"response_format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}},
            ["x"],
        ),
        ({"grammar": 'root ::= "a"{5,5}'}, ["aaaaa"]),
        ({"json_schema": {"const": "42"}}, ['"42"']),
    ],
)
def test_every_form_is_kept_to(client: TestClient, form: Any, allowed: Any) -> None:
    (choice,) = post(client, **form)["choices"]
    text = choice["message"]["content"]
    if allowed is None:
        assert choice["finish_reason"] == "length" or isinstance(json.loads(text), dict)
    elif allowed == 3:
        assert len(text) == 3
    else:
        assert text in allowed


@pytest.mark.parametrize(
    ("form", "param"),
    [
        (
            {"type": "json_schema", "json_schema": {"schema": {"type": "hiccup"}}},
            "response_format.json_schema.schema",
        ),
        ({"type": "json_object", "schema": {"type": 123}}, "response_format.schema"),
        ({"type": "json_object", "schema": 123}, "response_format.schema"),
        ({"type": "choice", "choices": []}, "response_format.choices"),
        ({"type": "grammar", "syntax": "lark", "definition": "?"}, "response_format.definition"),
        ({"type": "grammar", "syntax": "x", "definition": ""}, "response_format.syntax"),
    ],
)
def test_a_form_that_cannot_be_kept_to_is_refused(
    client: TestClient, form: Any, param: str
) -> None:
    assert post(client, 400, response_format=form)["error"]["param"] == param


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"look", "ask"}), ({"type": "function", "function": {"name": "ask"}}, {"ask"})],
)
def test_requirement_11_a_forced_function_is_called(
    client: TestClient, choice: Any, names: set[str]
) -> None:
    body = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    for seed in range(3):
        (answer,) = post(client, **body, seed=seed)["choices"]
        (call,) = answer["message"]["tool_calls"]
        assert answer["finish_reason"] == "tool_calls"
        assert call["function"]["name"] in names
        assert json.loads(call["function"]["arguments"])["r"] in (1, 2)


FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
REGEX = {"type": "grammar", "syntax": "regex", "definition": "(prince|count) [0-9]{2}"}


@pytest.mark.parametrize("form", [FORM, REGEX], ids=["schema", "regex"])
@pytest.mark.parametrize("choice", [None, "auto", "required", "none"])
def test_tools_beside_a_form_are_called_or_the_form_is_kept_to(
    client: TestClient, choice: str | None, form: Any
) -> None:
    """As in OpenAI's API, response_format constrains text; a tool call is not text."""
    given = {} if choice is None else {"tool_choice": choice}
    for seed in range(4):
        body = {"tools": TOOLS, "response_format": form, **given, "seed": seed}
        (answer,) = post(client, **body)["choices"]
        text, found = answer["message"]["content"], answer["message"].get("tool_calls")
        assert bool(found) != bool(text)
        assert answer["finish_reason"] == ("tool_calls" if found else "stop")
        if found:
            assert choice != "none"
            assert len(found) == 1
            assert json.loads(found[0]["function"]["arguments"])["r"] in (1, 2)
        else:
            assert choice != "required"
            wanted = r"(prince|count) \d\d"
            assert re.fullmatch(wanted, text) if form is REGEX else is_whole(json.loads(text))


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "ask"}}])
def test_a_forced_call_comes_once_where_the_template_knows_one(
    client: TestClient, choice: Any
) -> None:
    for seed in range(3):
        (answer,) = post(client, tools=TOOLS, tool_choice=choice, seed=seed)["choices"]
        assert len(answer["message"]["tool_calls"]) == 1
        assert answer["finish_reason"] == "tool_calls"
        assert not answer["message"]["content"]


def test_requirement_12_deltas_of_a_call_are_the_whole_call(client: TestClient) -> None:
    body = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "seed": 7}
    (call,) = post(client, **body)["choices"][0]["message"]["tool_calls"]
    response = client.post(PATH, json={"messages": ASK, "stream": True, **body})
    deltas = [
        delta
        for one in events(response.content)[:-1]
        for delta in one["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert [one["function"]["name"] for one in deltas if "name" in one["function"]] == [
        call["function"]["name"]
    ]
    assert "".join(one["function"]["arguments"] for one in deltas) == call["function"]["arguments"]


@pytest.mark.parametrize(
    "body",
    [
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"tool_choice": "required"},
        {"tools": [TOOLS[0], TOOLS[0]]},
        {"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'},
    ],
)
def test_what_cannot_be_done_is_refused(client: TestClient, body: Any) -> None:
    assert post(client, 400, **body)["error"]["message"]


def test_tools_and_their_results_are_part_of_the_prompt(client: TestClient) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"r": 1}'}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "he was a prince"},
    ]
    body = {"messages": messages, "tools": TOOLS}
    prompt = client.post("/apply-template", json=body).json()["prompt"]
    assert "he was a prince" in prompt
    assert '"look"' in prompt
    assert post(client, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=1)
