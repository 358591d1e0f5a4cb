"""Anthropic's Messages API, checked with the types and stream parser of its client."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, MessageTokensCount, ModelInfo, RawMessageStreamEvent
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from tests.server.anthropic_calls import GREEDY, HELLO, PATH, post
from tests.server.asgi import strict
from tests.server.named_events import named_events
from trinity.conversation.parts import CallArguments, CallStart, Reasoning, Text
from trinity.model import Model
from trinity.runtime.generation import Timings
from trinity.server.endpoints.anthropic.answer import MessageWriter
from trinity.server.errors import ApiError
from trinity.server.job import End, Update
from trinity.server.schemas import encode

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
PIECES = (
    Update(0, (Reasoning("I think"),)),
    Update(0, (Reasoning(" so."), Text("Let me"))),
    Update(0, (Text(" see."), CallStart(0, "call1", "weather"), CallArguments(0, '{"ci'))),
    Update(0, (CallArguments(0, 'ty": "Paris"}'), CallStart(1, "call2", "clock"))),
    Update(0, (CallArguments(1, "{}"),)),
)
TIMINGS = Timings(prompt_tokens=20, cached_tokens=5, completion_tokens=9)
CALLED = End(0, "stop", TIMINGS, called=True)


def written(
    updates: Sequence[Update], end: End, *, most: int = 9, **options: Any
) -> tuple[Any, list[Any]]:
    writer = MessageWriter("m", 20, most, **options)
    found = [strict(encode(event)) for event in writer.begin()]
    for piece in updates:
        found += [strict(encode(event)) for event in writer.add(piece)]
    found += [strict(encode(event)) for event in writer.end(end)]
    return strict(encode(writer.message)), found


def accumulated(events: Sequence[Any]) -> Any:
    snapshot, buffers = None, dict[int, bytes]()
    for event in events:
        if event["type"] != "ping":
            snapshot = accumulate_event(
                event=EVENT.validate_python(event), current_snapshot=snapshot, json_bufs=buffers
            )
    return snapshot


def test_answer_is_the_models(client: TestClient, model: Model) -> None:
    answer = post(client, system="Be short.")
    prompt = (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWho was Pierre?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    alone = model.generate(prompt, parse_special=True, temperature=0, max_tokens=12)
    assert answer["content"] == [{"type": "text", "text": alone.text}]
    assert answer["stop_reason"] == "max_tokens"
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == alone.prompt_tokens
    assert usage["output_tokens"] == 12


def test_stream_is_the_answer(client: TestClient) -> None:
    response = client.post(PATH, json={"messages": HELLO, "stream": True, **GREEDY})
    events = named_events(response.content)
    assert [event["type"] for event in events[:3]] == [
        "message_start",
        "ping",
        "content_block_start",
    ]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    whole, found = post(client), accumulated(events)
    assert found.content[0].text == whole["content"][0]["text"]
    assert found.stop_reason == whole["stop_reason"]
    assert found.usage.output_tokens == 12


def test_thinking_text_and_calls_are_blocks() -> None:
    message, events = written(PIECES, CALLED)
    Message.model_validate(message)
    assert message["content"] == [
        {"type": "thinking", "thinking": "I think so.", "signature": ""},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call1", "name": "weather", "input": {"city": "Paris"}},
        {"type": "tool_use", "id": "call2", "name": "clock", "input": {}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert message["usage"] == {
        "input_tokens": 15,
        "output_tokens": 9,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 0,
    }
    snapshot = accumulated(events)
    dumped = snapshot.model_dump(mode="json")
    assert [block["type"] for block in dumped["content"]] == [b["type"] for b in message["content"]]
    assert dumped["content"][0]["thinking"] == "I think so."
    assert dumped["content"][2]["input"] == {"city": "Paris"}
    assert dumped["usage"]["cache_read_input_tokens"] == 5
    indices = [event["index"] for event in events if "index" in event]
    assert indices == sorted(indices)
    # Blocks begin empty.
    starts = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    assert [start.get("text", start.get("thinking", "")) for start in starts] == [""] * 4


def test_thinking_may_be_left_out() -> None:
    message, events = written(PIECES, CALLED, shows_thinking=False)
    assert message["content"][0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert not [e for e in events if e.get("delta", {}).get("type") == "thinking_delta"]


@pytest.mark.parametrize(
    ("end", "most", "reason", "stop"),
    [
        (End(0, "stop", TIMINGS), 50, "end_turn", None),
        (End(0, "stop", TIMINGS, stop="x"), 50, "stop_sequence", "x"),
        (End(0, "length", TIMINGS), 9, "max_tokens", None),
        (End(0, "length", TIMINGS), 50, "model_context_window_exceeded", None),
        (CALLED, 50, "tool_use", None),
    ],
)
def test_why_it_stopped(end: End, most: int, reason: str, stop: str | None) -> None:
    message, events = written([Update(0, (Text("a"),))], end, most=most)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop)
    own = {"token_hash": end.token_hash}
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": stop} | own


def test_a_call_that_was_cut_has_no_input() -> None:
    message, _ = written(PIECES[:3], End(0, "length", TIMINGS))
    assert message["content"][-1]["input"] == {}
    assert message["stop_reason"] == "max_tokens"


def test_stop_sequences(client: TestClient) -> None:
    whole = post(client)["content"][0]["text"]
    word = whole.split()[1]
    answer = post(client, stop_sequences=[word])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", word)
    assert answer["content"][0]["text"] == whole.partition(word)[0]


def test_count_tokens_counts_what_is_evaluated(client: TestClient) -> None:
    response = client.post(f"{PATH}/count_tokens", json={"messages": HELLO, "system": "a b"})
    count = MessageTokensCount.model_validate(strict(response.text)).input_tokens
    usage = post(client, system="a b")["usage"]
    assert count == usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_models_have_anthropics_fields_for_its_clients(client: TestClient) -> None:
    plain = strict(client.get("/v1/models").text)
    found = strict(client.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).text)
    assert (found["has_more"], found["first_id"], found["last_id"]) == (False, "demo", "demo")
    (one,) = found["data"]
    ModelInfo.model_validate(one)
    assert (one["type"], one["id"], one["display_name"]) == ("model", "demo", "demo")
    assert datetime.fromisoformat(one["created_at"]).timestamp() == one["created"]
    assert one["max_input_tokens"] == one["context_length"]
    retrieved = client.get("/v1/models/demo", headers={"anthropic-version": "2023-06-01"})
    assert strict(retrieved.text) == one
    assert plain["data"] == [{key: one[key] for key in plain["data"][0]}]
    assert not {"type", "display_name"} & plain["data"][0].keys()


def test_errors_have_anthropics_form_everywhere(client: TestClient) -> None:
    body = {"messages": HELLO, **GREEDY}
    for path, kwargs, kind in (
        (PATH, {"json": {**body, "model": "nope"}}, "not_found_error"),
        (PATH, {"content": b"{"}, "invalid_request_error"),
        (f"{PATH}/nothing", {"json": {}}, "not_found_error"),
        (PATH, {"json": body, "headers": {"host": "evil.example"}}, "permission_error"),
    ):
        found = strict(client.post(path, **kwargs).text)  # type: ignore[arg-type]
        assert (found["type"], found["error"]["type"]) == ("error", kind)
    long = client.post(PATH, json={**body, "messages": [{"role": "user", "content": "a " * 2000}]})
    assert "512" in strict(long.text)["error"]["message"]


def test_a_failure_ends_a_stream_with_an_error(client: TestClient) -> None:
    from trinity.server.service import Answers

    def break_down(*arguments: Any) -> Any:
        raise ApiError(503, "the server is stopping")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_read", break_down)
        response = client.post(PATH, json={"messages": HELLO, "stream": True, **GREEDY})
    assert named_events(response.content)[-1] == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the server is stopping"},
    }
