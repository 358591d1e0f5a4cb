"""Tools of OpenAI's chat completions: functions, custom tools, and the older functions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import events
from trinity.conversation.parts import CallArguments, CallStart, Part, Reasoning, Text
from trinity.server.endpoints.chat_answer import Deltas, Gathered, InContent
from trinity.server.endpoints.tools import Toolbox, functions_box, input_of, toolbox
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.schemas import encode

CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "Who was Prince Andrew?"}]
RANK = {"type": "object", "properties": {"r": {"enum": [1, 2]}}, "required": ["r"],
        "additionalProperties": False}  # fmt: skip
LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": RANK}}
ASK_FOR: Any = {"type": "function", "function": {"name": "ask", "parameters": RANK}}
PATCH: Any = {
    "type": "custom",
    "custom": {
        "name": "patch",
        "description": "Edit a file.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "x"'}},
    },
}
HEADER = "x-trinity-ignored"


def post(client: TestClient, **body: Any) -> Any:
    body = {"messages": ASK, "max_tokens": 200, "seed": 1, **body}
    response = client.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    return response


def test_tools_have_one_form_whichever_api_wrote_them() -> None:
    nested = toolbox(Ignored(), [LOOK, PATCH], None)
    flat = toolbox(
        Ignored(),
        [{"type": "function", **LOOK["function"]},
         {"type": "custom", "name": "patch", "description": "Edit a file.",
          "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}}], None
    )  # fmt: skip
    assert nested == flat
    assert nested.custom == {"patch"}
    look, patch = (one["function"] for one in nested.functions)
    assert look == {"name": "look", "parameters": RANK}
    assert patch["parameters"]["required"] == ["input"]
    assert 'start: "x"' in patch["description"]


@pytest.mark.parametrize(
    ("choice", "word"),
    [
        (None, "auto"), ("auto", "auto"), ("none", "none"), ("required", "required"),
        ({"type": "auto"}, "auto"), ({"type": "any"}, "required"),
        ({"type": "function", "function": {"name": "look"}}, "look"),
        ({"type": "function", "name": "look"}, "look"),
        ({"type": "custom", "custom": {"name": "patch"}}, "patch"),
        ({"type": "custom", "name": "patch"}, "patch"), ({"type": "tool", "name": "ask"}, "ask"),
    ],
)  # fmt: skip
def test_choices(choice: Any, word: str) -> None:
    box = toolbox(Ignored(), [LOOK, ASK_FOR, PATCH], choice)
    assert (box.choice, box.names) == (word, ["look", "ask", "patch"])


@pytest.mark.parametrize("nested", [True, False])
def test_allowed_tools_are_those_that_can_be_called(nested: bool) -> None:
    named = [{"type": "function", "function": {"name": "ask"}}, {"type": "mcp", "name": "x"}]
    allowed = {"mode": "required", "tools": named}
    choice = {"type": "allowed_tools", **({"allowed_tools": allowed} if nested else allowed)}
    box = toolbox(Ignored(), [LOOK, ASK_FOR, PATCH], choice)
    assert (box.choice, box.names) == ("required", ["ask"])


@pytest.mark.parametrize(
    "choice",
    [
        "always", "look", {"type": "function", "function": {"name": "other"}}, {}, {"type": 1},
        {"type": "function"}, {"type": "web_search_preview"}, {"type": "mcp", "server_label": "x"},
        {"type": "allowed_tools"}, {"type": "allowed_tools", "mode": "auto", "tools": []},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]},
    ],
)  # fmt: skip
def test_a_choice_that_cannot_be_met_is_refused(choice: Any) -> None:
    with pytest.raises(ApiError) as error:
        toolbox(Ignored(), [LOOK], choice)
    assert error.value.param == "tool_choice"


def test_tools_of_other_types_are_ignored_unless_forced(client: TestClient) -> None:
    others = [{"type": "web_search"}, {"type": "mcp", "server_label": "x", "server_url": "y"}]
    answer = post(client, tools=[LOOK, *others], max_tokens=1)
    assert answer.headers[HEADER] == "tools[1], tools[2]"
    alone = post(client, tools=[LOOK], max_tokens=1)
    assert answer.json()["usage"]["prompt_tokens"] == alone.json()["usage"]["prompt_tokens"]
    for choice in ("required", {"type": "web_search"}):
        body = {"messages": ASK, "tools": others, "tool_choice": choice}
        assert client.post(CHAT, json=body).status_code == 400


PARTS: list[Part] = [
    Text("Well."), CallStart(0, "c0", "patch"), CallArguments(0, '{"input": "a\\n'),
    CallArguments(0, 'b"}'), CallStart(1, "c1", "look"), CallArguments(1, '{"r"'),
    CallArguments(1, ": 1}"),
]  # fmt: skip


def as_json(one: object) -> Any:
    return json.loads(encode(one))


def test_a_call_of_a_custom_tool_has_its_input() -> None:
    box = toolbox(Ignored(), [LOOK, PATCH], None)
    gathered = Gathered(box)
    gathered.add(PARTS)
    assert as_json(gathered.message()) == {
        "role": "assistant",
        "content": "Well.",
        "refusal": None,
        "tool_calls": [
            {"id": "c0", "type": "custom", "custom": {"name": "patch", "input": "a\nb"}},
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"r": 1}'}},
        ],
    }
    deltas = Deltas(box)
    found = [as_json(one) for one in (*deltas.of(PARTS), *deltas.rest())]
    assert found == [
        {"content": "Well."},
        {"tool_calls": [{"index": 0, "id": "c0", "type": "custom",
                         "custom": {"name": "patch", "input": ""}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "a\nb"}}]},
        {"tool_calls": [{"index": 1, "id": "c1", "type": "function",
                         "function": {"name": "look", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"r"'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": ": 1}"}}]},
    ]  # fmt: skip


def test_the_last_input_comes_at_the_end() -> None:
    deltas = Deltas(toolbox(Ignored(), [PATCH], None))
    assert len(list(deltas.of(PARTS[1:3]))) == 1
    assert as_json(list(deltas.rest())) == [
        {"tool_calls": [{"index": 0, "custom": {"input": '{"input": "a\\n'}}]}
    ]


def test_the_input_is_in_the_arguments() -> None:
    assert input_of('{"input": "a \\"b\\""}') == 'a "b"'
    assert input_of('{"input": {"a": 1}}') == '{"a": 1}'
    assert input_of('{"input": "cut') == '{"input": "cut'  # no text is lost
    assert input_of("[]") == "[]"


def test_older_functions_are_called_once(client: TestClient) -> None:
    body = {"functions": [LOOK["function"]], "function_call": {"name": "look"}}
    (choice,) = post(client, **body).json()["choices"]
    assert choice["finish_reason"] == "function_call"
    call = choice["message"]["function_call"]
    assert (call["name"], json.loads(call["arguments"])["r"] in (1, 2)) == ("look", True)
    assert "tool_calls" not in choice["message"]
    found = [one for one in events(post(client, stream=True, **body).content) if one != "[DONE]"]
    pieces = [one["choices"][0]["delta"].get("function_call", {}) for one in found]
    assert [one["name"] for one in pieces if "name" in one] == ["look"]
    assert "".join(one.get("arguments", "") for one in pieces) == call["arguments"]
    assert found[-1]["choices"][0]["finish_reason"] == "function_call"


def test_tools_override_functions(client: TestClient) -> None:
    body = {"functions": [ASK_FOR["function"]], "tools": [LOOK], "tool_choice": "required"}
    answer = post(client, **body)
    assert answer.headers[HEADER] == "functions"
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "look"
    alone = client.post(CHAT, json={"messages": ASK, "function_call": {"name": "look"}})
    assert alone.json()["error"]["param"] == "function_call"


def test_older_choices() -> None:
    functions = [LOOK["function"], ASK_FOR["function"]]
    assert functions_box(Ignored(), functions, None).choice == "auto"
    assert functions_box(Ignored(), functions, "none").choice == "none"
    assert functions_box(Ignored(), functions, {"name": "ask"}).choice == "ask"
    with pytest.raises(ApiError) as error:
        functions_box(Ignored(), functions, {"name": "other"})
    assert error.value.param == "function_call"


def test_a_forced_custom_tool_is_called(client: TestClient) -> None:
    custom = {"type": "custom", "custom": {"name": "say"}}
    body = {"tools": [custom], "tool_choice": custom}
    (choice,) = post(client, **body).json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["custom"]["name"]) == ("custom", "say")
    assert call["custom"]["input"]


def test_reasoning_may_stay_in_the_text() -> None:
    shown = InContent()
    first = list(shown.of([Reasoning("So"), Reasoning(" it is.")]))
    second = list(shown.of([Text("Yes"), Text(".")]))
    assert first == [Text("<think>"), Text("So"), Text(" it is.")]
    assert second == [Text("</think>"), Text("Yes"), Text(".")]


def test_an_empty_toolbox_calls_nothing() -> None:
    assert toolbox(Ignored(), None, None) == toolbox(Ignored(), [], "auto") == Toolbox()
