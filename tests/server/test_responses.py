"""OpenAI's Responses API, checked with the types and stream parser of its client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from tests.server.asgi import strict
from tests.server.named_events import named_events
from trinity.conversation.parts import CallArguments, CallStart, Reasoning, Text
from trinity.model import Model
from trinity.runtime.generation import Timings
from trinity.runtime.sampling.logprobs import TokenLogprob
from trinity.server.endpoints.logprobs import ChatLogprob
from trinity.server.endpoints.responses.create import empty_response
from trinity.server.endpoints.responses.items import messages_of
from trinity.server.endpoints.responses.request import ResponsesRequest
from trinity.server.endpoints.responses.writer import ResponseWriter
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.job import End, Update
from trinity.server.schemas import decoded, encode

PATH = "/v1/responses"
GREEDY = {"temperature": 0, "max_output_tokens": 12}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
PIECES = (
    Update(0, (Reasoning("I think"),), token_ids=(1, 2)),
    Update(0, (), token_ids=(3,)),
    Update(0, (Reasoning(" so."), Text("Let me")), token_ids=(4, 5)),
    Update(0, (Text(" see."),), (TokenLogprob(6, -0.5, " see."),), token_ids=(6,)),
    Update(0, (CallStart(0, "call1", "weather"), CallArguments(0, '{"ci')), token_ids=(7,)),
    Update(0, (CallArguments(0, 'ty": "Paris"}'), CallStart(1, "call2", "clock")), token_ids=(8,)),
    Update(0, (CallArguments(1, "{}"),), token_ids=(9,)),
)
END = End(0, "stop", Timings(prompt_tokens=20, cached_tokens=5, completion_tokens=9), called=True)


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={"input": "Who was Pierre?", **GREEDY, **body})
    assert response.status_code == 200, response.text
    Response.model_validate(strict(response.text))
    return strict(response.text)


def refused(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={"input": "hi", **body})
    assert response.status_code == 400, response.text
    return strict(response.text)["error"]


def written(
    updates: Sequence[Update], end: End, custom: Sequence[str] = ()
) -> tuple[Any, list[Any]]:
    """Return the final response, and all events as a client receives them."""
    body = ResponsesRequest(input="hi")
    writer = ResponseWriter(
        empty_response(body, "m", 1),
        lambda found: [ChatLogprob(one.text, one.logprob, [], []) for one in found],
        custom=custom,
    )
    found = [strict(encode(event)) for event in writer.begin()]
    for piece in updates:
        found += [strict(encode(event)) for event in writer.add(piece)]
    found += [strict(encode(event)) for event in writer.end(end)]
    return strict(encode(writer.response)), found


def accumulated(events: Sequence[Any]) -> Any:
    """Return the response that OpenAI's client accumulates before the last event."""
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events[:-1]:
        state.handle_event(EVENT.validate_python(event))
    return state._ResponseStreamState__current_snapshot  # type: ignore[attr-defined]


def test_answer_is_the_models(client: TestClient, model: Model) -> None:
    answer = post(client, instructions="Be short.", metadata={"a": "b"})
    prompt = (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWho was Pierre?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    alone = model.generate(prompt, parse_special=True, temperature=0, max_tokens=12)
    (item,) = answer["output"]
    assert item["content"][0]["text"] == alone.text
    assert (answer["status"], item["status"]) == ("incomplete", "incomplete")
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["usage"]["input_tokens"] == alone.prompt_tokens
    assert answer["usage"]["output_tokens"] == 12
    assert answer["metadata"] == {"a": "b"}
    assert answer["instructions"] == "Be short."


def test_stream_is_the_answer(client: TestClient) -> None:
    response = client.post(PATH, json={"input": "Who was Pierre?", "stream": True, **GREEDY})
    events = named_events(response.content)
    for event in events:
        EVENT.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    whole = post(client)
    assert events[-1]["type"] == "response.incomplete"
    last = events[-1]["response"]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    assert accumulated(events).output[0].content[0].text == whole["output"][0]["content"][0]["text"]


def test_reasoning_text_and_calls_are_items() -> None:
    response, _ = written(PIECES, END)
    Response.model_validate(response)
    assert [item["type"] for item in response["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    reasoning, message, weather, clock = response["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "I think so."}]
    assert message["content"][0]["text"] == "Let me see."
    assert [one["token"] for one in message["content"][0]["logprobs"]] == [" see."]
    assert (weather["name"], weather["arguments"]) == ("weather", '{"city": "Paris"}')
    assert (clock["call_id"], clock["arguments"]) == ("call2", "{}")
    assert response["status"] == "completed"
    assert response["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 29,
    }


def test_events_come_in_their_order_and_make_the_response() -> None:
    response, events = written(PIECES, END)
    for event in events:
        EVENT.validate_python(event)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    ids = {item["id"] for item in response["output"]}
    assert {event["item_id"] for event in events if "item_id" in event} == ids
    snapshot = accumulated(events)
    for mine, theirs in zip(response["output"], snapshot.output, strict=True):
        assert theirs.type == mine["type"]
        if mine["type"] == "function_call":
            assert theirs.arguments == mine["arguments"]
        elif mine["type"] == "message":  # the client leaves reasoning as it was added
            assert theirs.content[0].text == mine["content"][0]["text"]
    deltas = [e["delta"] for e in events if e["type"] == "response.reasoning_text.delta"]
    assert "".join(deltas) == response["output"][0]["content"][0]["text"]
    assert events[-1]["response"] == response
    # What was under way when the item began.
    assert events[2]["item"]["content"] == []
    assert events[16]["item"]["arguments"] == ""


def test_an_empty_answer_is_a_message() -> None:
    response, _ = written([], End(0, "stop", Timings()))
    assert response["output"][0]["content"][0]["text"] == ""


def test_logprobs(client: TestClient) -> None:
    answer = post(client, top_logprobs=2, include=["message.output_text.logprobs"])
    found = answer["output"][0]["content"][0]["logprobs"]
    assert len(found) == 12
    assert {len(one["top_logprobs"]) for one in found} == {2}
    assert post(client)["output"][0]["content"][0]["logprobs"] == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "function", "nam": "f"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "sound"}}}, "text.format.type"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"temperature": -3}, "temperature"),
        ({"max_output_tokens": -2}, "max_output_tokens"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"input": []}, "input"),
        ({"background": True, "store": False}, "background"),
        ({"input": None}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].id"),
        ({"input": [{"type": 5}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].image_url",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "a",
                        "output": [{"type": "input_image"}]}]}, "input[0].output[0].image_url",
        ),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_by_its_name(
    client: TestClient, body: dict[str, Any], param: str
) -> None:
    error = refused(client, **body)
    assert error["param"] == param, error
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"), ({"client_metadata": {}}, None),
        ({"tools": [{"type": "namespace", "name": "x", "tools": []}]}, "tools[0]"),
        ({"tools": [{"type": "local_shell"}]}, "tools[0]"), ({"service_tier": "flex"}, None),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"text": {"verbosity": "high"}}, "text.verbosity"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
        ({"max_tool_calls": 0}, "max_tool_calls"), ({"moderation": {"a": 1}}, "moderation"),
        ({"return_progress": True}, "return_progress"),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_named(
    client: TestClient, body: dict[str, Any], name: str | None
) -> None:
    response = client.post(PATH, json={"input": "Who was Pierre?", **GREEDY, **body})
    assert response.status_code == 200, response.text
    assert (name or next(iter(body))) in response.headers["x-trinity-ignored"]
    assert output_of(strict(response.text)) == output_of(post(client))


def output_of(response: Any) -> str:
    return str(response["output"][0]["content"][0]["text"])


def test_too_long_an_input_is_refused_with_both_counts(client: TestClient) -> None:
    error = refused(client, input="war " * 2000)
    assert error["code"] == "context_length_exceeded"
    assert (error["n_ctx"], error["n_prompt_tokens"] > 2000) == (512, True)


def test_items_become_messages() -> None:
    items: list[Any] = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [],
         "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I ask.", "annotations": []}]},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "rain"},
        {"type": "function_call_output", "call_id": "b",
         "output": [{"type": "input_text", "text": "noon"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Now again."}]},
        {"type": "function_call", "call_id": "c", "name": "clock", "arguments": "{}"},
    ]  # fmt: skip
    found = messages_of(Ignored(), items)
    assert [one["role"] for one in found] == [
        "system", "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert found[1]["content"] == "Weather?"
    assert (found[2]["content"], found[2]["reasoning_content"]) == ("I ask.", "Hm.")
    assert [call["id"] for call in found[2]["tool_calls"]] == ["a", "b"]
    assert [(one["tool_call_id"], one["content"]) for one in found[3:5]] == [
        ("a", "rain"),
        ("b", "noon"),
    ]
    assert (found[5]["content"], found[5]["reasoning_content"]) == (None, "Now again.")


def test_a_result_needs_no_id() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "output": "rain", "name": "weather", "call_id": None},
    ]
    assert messages_of(Ignored(), items)[-1] == {
        "role": "tool", "name": "weather", "content": "rain",
    }  # fmt: skip


def test_a_response_goes_back_in_as_it_came() -> None:
    response, _ = written(PIECES, END)
    (message,) = messages_of(Ignored(), response["output"])
    assert message["content"] == "Let me see."
    assert message["reasoning_content"] == "I think so."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather", "clock"]


def job_of(**body: Any) -> Any:
    request = decoded(Ignored(), msgspec.json.encode({"input": "hi", **body}), ResponsesRequest)
    return request.job(Ignored(), request.box(Ignored()))


def test_choices_of_tools() -> None:
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in "fgh"]
    assert job_of(tools=tools).tool_choice == "auto"
    assert job_of(tools=tools, tool_choice="required").tool_choice == "required"
    assert job_of(tools=tools, tool_choice={"type": "function", "name": "g"}).tool_choice == "g"
    some = job_of(
        tools=tools, parallel_tool_calls=False,
        tool_choice={"type": "allowed_tools", "mode": "required",
                     "tools": [{"type": "function", "name": "h"}]},
    )  # fmt: skip
    assert [tool["function"]["name"] for tool in some.tools] == ["h"]
    assert (some.tool_choice, some.parallel_tool_calls) == ("required", False)


def test_options_and_variables() -> None:
    job = job_of(
        temperature=0.5, top_p=0.5, max_output_tokens=7, seed=3, top_k=2, min_p=0.1, stop="x",
        presence_penalty=0.5, frequency_penalty=-1,
        reasoning={"effort": "none", "summary": "auto"}, chat_template_kwargs={"a": 1},
    )  # fmt: skip
    assert job.options == {
        "temperature": 0.5, "top_p": 0.5, "max_tokens": 7, "seed": 3, "top_k": 2, "min_p": 0.1,
        "stop": "x", "presence_penalty": 0.5, "frequency_penalty": -1,
    }  # fmt: skip
    assert (job.variables, job.effort) == ({"a": 1}, "none")
    assert job_of(text={"format": {"type": "text"}, "verbosity": "medium"}).options == {}


def test_a_response_has_the_fields_of_open_responses(client: TestClient) -> None:
    """The required fields of ResponseResource (openresponses.org); OpenRouter's SDK checks them."""
    found = post(client, presence_penalty=0.5)
    assert (found["presence_penalty"], found["frequency_penalty"]) == (0.5, 0.0)
    assert found.keys() >= {
        "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model",
        "previous_response_id", "instructions", "output", "error", "tools", "tool_choice",
        "truncation", "parallel_tool_calls", "text", "top_p", "presence_penalty",
        "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage",
        "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata",
        "safety_identifier", "prompt_cache_key",
    }  # fmt: skip


def test_a_failure_ends_a_stream_as_failed(client: TestClient, model: Model) -> None:
    def break_down(*arguments: Any, **options: Any) -> Any:
        raise ApiError(503, "the server is stopping")

    from trinity.server.service import Answers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_read", break_down)
        response = client.post(PATH, json={"input": "hi", "stream": True, **GREEDY})
    last = named_events(response.content)[-1]
    EVENT.validate_python(last)
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["message"] == "the server is stopping"


def test_figures_of_llama_cpp(client: TestClient) -> None:
    body = {"input": "Hello " * 40, "stream": True, **GREEDY}
    asked = client.post(
        "/responses", json={**body, "return_progress": True, "timings_per_token": True}
    )
    found = named_events(asked.content)
    parts = [one["prompt_progress"] for one in found if "prompt_progress" in one]
    assert parts
    assert all(part["cache"] <= part["processed"] <= part["total"] for part in parts)
    last = found[-1]
    assert parts[-1]["processed"] == parts[-1]["total"] == last["response"]["usage"]["input_tokens"]
    made = [one["timings"]["predicted_n"] for one in found if one["type"].endswith("text.delta")]
    assert made == sorted(made)
    assert made[-1] == last["timings"]["predicted_n"] == 12
    plain = named_events(client.post(PATH, json=body).content)
    assert [one["type"] for one in plain if "timings" in one] == [last["type"]]
    assert not any("prompt_progress" in one for one in plain)


def test_a_format_has_no_description_where_none_was_given(client: TestClient) -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "boolean"}}
    body = {"input": "x", "max_output_tokens": 4, "text": {"format": form}}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    assert "description" not in answer.json()["text"]["format"]


def test_items_of_clients_tools_become_calls() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Fix it."},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+x"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
        {"type": "local_shell_call", "call_id": "b", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "b", "output": "a.txt"},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {"type": "compaction", "encrypted_content": "y"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call_output", "call_id": "c", "output": {"ok": True}},
    ]
    found = messages_of(Ignored(), items)
    calls = [one["tool_calls"][0]["function"] for one in found if "tool_calls" in one]
    assert calls == [
        {"name": "patch", "arguments": '{"input": "+x"}'},
        {"name": "local_shell", "arguments": '{"command": ["ls"]}'},
        {"name": "f", "arguments": '{"a": 1}'},
    ]
    results = [one["content"] for one in found if one["role"] == "tool"]
    assert results == ["done", "a.txt", '{"ok": true}']


def test_a_custom_tools_call_is_an_item_with_its_input() -> None:
    pieces = [
        Update(0, (CallStart(0, "c0", "patch"), CallArguments(0, '{"input": "a'))),
        Update(0, (CallArguments(0, '\\nb"}'), CallStart(1, "c1", "clock"))),
        Update(0, (CallArguments(1, "{}"),)),
    ]
    response, events = written(pieces, END, custom=["patch"])
    for event in events:
        EVENT.validate_python(event)
    patch, clock = response["output"]
    assert (patch["type"], patch["call_id"], patch["input"]) == ("custom_tool_call", "c0", "a\nb")
    assert (clock["type"], clock["arguments"]) == ("function_call", "{}")
    assert [one["type"].removeprefix("response.") for one in events[2:6]] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert events[3]["delta"] == events[4]["input"] == "a\nb"
