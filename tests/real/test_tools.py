"""Calls and forms of SmolLM2, whose chat template knows no tools, with a server's defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.conftest import GetModel
from tests.server.asgi import events
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

PATH = "/v1/chat/completions"
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "maximum": 120},
    },
    "required": ["name", "age"],
}


def function(name: str, key: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {key: {"type": "string", "maxLength": 20}},
        "required": [key],
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [function("get_weather", "city"), function("get_time", "zone")]
KEYS = {"get_weather": {"city"}, "get_time": {"zone"}}
NAMED = {"type": "function", "function": {"name": "get_time"}}
FORM = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}


@pytest.fixture(scope="module")
def client(real_model: GetModel) -> Iterator[TestClient]:
    path = real_model("smollm2")
    with trinity.load(path, context_length=2048) as model:
        served = Served("smol", str(path), lambda: model, model=model)
        app = make_app(Models([served], any_name=True), ServerOptions())
        with TestClient(app, base_url="http://localhost") as client:
            yield client


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={"messages": ASK, "max_tokens": 80, **body})
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return choice


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_forced_call_comes_once_and_ends_the_answer(
    client: TestClient, choice: Any, seed: int
) -> None:
    answer = post(client, tools=TOOLS, tool_choice=choice, seed=seed)
    (call,) = answer["message"]["tool_calls"]
    assert answer["finish_reason"] == "tool_calls"
    assert not answer["message"]["content"]
    assert json.loads(call["function"]["arguments"]).keys() == KEYS[call["function"]["name"]]
    assert choice == "required" or call["function"]["name"] == "get_time"


def test_deltas_of_a_named_call_are_one_json_object(client: TestClient) -> None:
    body = {"messages": ASK, "tools": TOOLS, "tool_choice": NAMED, "stream": True, "seed": 1}
    found = events(client.post(PATH, json=body).content)[:-1]
    deltas = [call for one in found for call in one["choices"][0]["delta"].get("tool_calls") or ()]
    text = "".join(delta["function"]["arguments"] for delta in deltas)
    assert json.loads(text).keys() == {"zone"}
    assert {delta["index"] for delta in deltas} == {0}


@pytest.mark.parametrize("most", range(8, 30, 3))
def test_a_call_that_is_cut_is_no_text_and_no_broken_json(client: TestClient, most: int) -> None:
    answer = post(client, tools=TOOLS, tool_choice="required", seed=1, max_tokens=most)
    assert not answer["message"]["content"]
    for call in answer["message"].get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])
        assert arguments.keys() <= KEYS[call["function"]["name"]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["alone", "with tools"])
def test_a_schema_has_the_properties_that_it_names(
    client: TestClient, tools: Any, seed: int
) -> None:
    given = {} if tools is None else {"tools": tools}
    answer = post(client, response_format=FORM, seed=seed, **given)
    if answer["message"].get("tool_calls"):
        assert (tools, answer["finish_reason"]) == (TOOLS, "tool_calls")
    else:
        assert json.loads(answer["message"]["content"]).keys() == {"name", "age"}
        assert answer["finish_reason"] == "stop"
