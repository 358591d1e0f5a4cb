"""Calls of Anthropic's Python client against a server:

python scripts/clients/anthropic_calls.py --base-url http://127.0.0.1:8080 --model demo
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import anthropic
from anthropic import Anthropic

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from scripts.clients.calls import Calls, arguments, refused  # noqa: E402

calls = Calls()
HELLO: Any = [{"role": "user", "content": "Who was Prince Andrew?"}]
GREEDY: Any = {"max_tokens": 12, "extra_body": {"temperature": 0}}
ROOM: Any = {"max_tokens": 120, "extra_body": {"temperature": 0}}
PLACE: Any = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Moscow", "Paris"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"name": "weather", "description": "The weather.", "input_schema": PLACE}
CLOCK: Any = {"name": "clock", "input_schema": {"type": "object", "properties": {}}}
PERSON: Any = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CALLED: Any = [
    *HELLO,
    {"role": "assistant", "content": [
        {"type": "text", "text": "I ask."},
        {"type": "tool_use", "id": "call00001", "name": "weather", "input": {"city": "Paris"}},
    ]},
]  # fmt: skip


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def check_weather(message: Any) -> None:
    (block,) = [block for block in message.content if block.type == "tool_use"]
    assert block.id
    assert block.name == "weather"
    assert block.input["city"] in ("Moscow", "Paris"), block.input
    assert message.stop_reason == "tool_use"


@calls("messages")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(model=model, messages=HELLO, **GREEDY)
    assert (message.type, message.role, message.model) == ("message", "assistant", model)
    assert text_of(message)
    assert message.usage.output_tokens > 0
    assert message.stop_reason in ("end_turn", "max_tokens")


@calls("messages: max_tokens")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(model=model, messages=HELLO, max_tokens=2)
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 2


@calls("messages: system as text")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(model=model, messages=HELLO, system="Be short.", **GREEDY)
    assert message.content


@calls("messages: system as blocks with cache_control")
def _(client: Anthropic, model: str) -> None:
    system: Any = [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
    for _ in range(2):
        message = client.messages.create(model=model, messages=HELLO, system=system, **GREEDY)
    assert (message.usage.cache_read_input_tokens or 0) > 0


@calls("messages: content as blocks")
def _(client: Anthropic, model: str) -> None:
    blocks: Any = [{"type": "text", "text": "Who was"}, {"type": "text", "text": "Pierre?"}]
    message = client.messages.create(
        model=model, messages=[{"role": "user", "content": blocks}], **GREEDY
    )
    assert message.content


@calls("messages: a conversation")
def _(client: Anthropic, model: str) -> None:
    messages: Any = [
        *HELLO, {"role": "assistant", "content": "A prince."}, {"role": "user", "content": "And?"}
    ]  # fmt: skip
    assert client.messages.create(model=model, messages=messages, **GREEDY).content


@calls("messages: the answer goes back in")
def _(client: Anthropic, model: str) -> None:
    first = client.messages.create(model=model, messages=HELLO, **GREEDY)
    messages: Any = [*HELLO, first.to_param(), {"role": "user", "content": "Go on."}]
    assert client.messages.create(model=model, messages=messages, **GREEDY).content


@calls("messages: stop_sequences")
def _(client: Anthropic, model: str) -> None:
    whole = text_of(client.messages.create(model=model, messages=HELLO, **GREEDY))
    word = whole.split()[1]
    message = client.messages.create(model=model, messages=HELLO, stop_sequences=[word], **GREEDY)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", word)
    assert text_of(message) == whole.partition(word)[0]


@calls("messages: the same again at temperature 0")
def _(client: Anthropic, model: str) -> None:
    texts = {text_of(client.messages.create(model=model, messages=HELLO, **GREEDY)) for _ in "ab"}
    assert len(texts) == 1


@calls("messages: top_k and top_p")
def _(client: Anthropic, model: str) -> None:
    greedy = text_of(client.messages.create(model=model, messages=HELLO, **GREEDY))
    message = client.messages.create(
        model=model, messages=HELLO, max_tokens=12, extra_body={"top_k": 1, "top_p": 0.9}
    )
    assert text_of(message) == greedy


@calls("messages: metadata and service_tier")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model, messages=HELLO, metadata={"user_id": "someone"}, service_tier="auto", **GREEDY
    )
    assert message.content


@calls("messages: beta headers")
def _(client: Anthropic, model: str) -> None:
    headers = {"anthropic-beta": "some-beta-2026-01-01"}
    message = client.messages.create(model=model, messages=HELLO, extra_headers=headers, **GREEDY)
    assert message.content


@calls("streamed: the same text")
def _(client: Anthropic, model: str) -> None:
    whole = client.messages.create(model=model, messages=HELLO, **GREEDY)
    with client.messages.stream(model=model, messages=HELLO, **GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(whole) == text_of(final)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


@calls("streamed: the events' order")
def _(client: Anthropic, model: str) -> None:
    events = client.messages.create(model=model, messages=HELLO, stream=True, **GREEDY)
    types = [event.type for event in events]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) == {"content_block_delta"}


@calls("streamed: left early")
def _(client: Anthropic, model: str) -> None:
    with client.messages.stream(model=model, messages=HELLO, max_tokens=200) as stream:
        next(iter(stream))


@calls("streamed: stop_sequences")
def _(client: Anthropic, model: str) -> None:
    whole = text_of(client.messages.create(model=model, messages=HELLO, **GREEDY))
    word = whole.split()[1]
    with client.messages.stream(
        model=model, messages=HELLO, stop_sequences=[word], **GREEDY
    ) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", word)


@calls("count_tokens")
def _(client: Anthropic, model: str) -> None:
    count = client.messages.count_tokens(model=model, messages=HELLO).input_tokens
    usage = client.messages.create(model=model, messages=HELLO, **GREEDY).usage
    assert count == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@calls("count_tokens: system and tools count")
def _(client: Anthropic, model: str) -> None:
    plain = client.messages.count_tokens(model=model, messages=HELLO).input_tokens
    more = client.messages.count_tokens(model=model, messages=HELLO, system="Be short.")
    assert more.input_tokens > plain


@calls("tools: one forced")
def _(client: Anthropic, model: str) -> None:
    check_weather(
        client.messages.create(
            model=model, messages=HELLO, tools=[CLOCK, WEATHER], **ROOM,
            tool_choice={
                "type": "tool", "name": "weather", "disable_parallel_tool_use": True,
            },
        )
    )  # fmt: skip


@calls("tools: any")
def _(client: Anthropic, model: str) -> None:
    check_weather(
        client.messages.create(
            model=model, messages=HELLO, tools=[WEATHER], **ROOM,
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
        )
    )  # fmt: skip


@calls("tools, streamed: one forced")
def _(client: Anthropic, model: str) -> None:
    with client.messages.stream(
        model=model, messages=HELLO, tools=[WEATHER], **ROOM,
        tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    ) as stream:  # fmt: skip
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    check_weather(final)
    assert json.loads("".join(pieces))["city"] in ("Moscow", "Paris")


@calls("tools: auto")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model, messages=HELLO, tools=[WEATHER, CLOCK], tool_choice={"type": "auto"}, **GREEDY
    )
    called = any(block.type == "tool_use" for block in message.content)
    assert called == (message.stop_reason == "tool_use") or message.stop_reason == "max_tokens"


@calls("tools: none")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model, messages=HELLO, tools=[WEATHER], tool_choice={"type": "none"}, **GREEDY
    )
    assert all(block.type != "tool_use" for block in message.content)


@calls("tools: a result")
def _(client: Anthropic, model: str) -> None:
    result: Any = {"type": "tool_result", "tool_use_id": "call00001", "content": "rain"}
    messages: Any = [
        *CALLED,
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
    ]
    assert client.messages.create(model=model, messages=messages, tools=[WEATHER], **GREEDY)


@calls("tools: a failed result")
def _(client: Anthropic, model: str) -> None:
    result: Any = {
        "type": "tool_result", "tool_use_id": "call00001", "is_error": True,
        "content": [{"type": "text", "text": "no such place"}],
    }  # fmt: skip
    messages: Any = [*CALLED, {"role": "user", "content": [result]}]
    assert client.messages.create(model=model, messages=messages, tools=[WEATHER], **GREEDY)


@calls("thinking: disabled")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model, messages=HELLO, thinking={"type": "disabled"}, **GREEDY
    )
    assert all(block.type != "thinking" for block in message.content)


@calls("thinking: with a budget")
def _(client: Anthropic, model: str) -> None:
    asked: Any = {"type": "enabled", "budget_tokens": 20}

    def call() -> Any:
        return client.messages.create(model=model, messages=HELLO, max_tokens=40, thinking=asked)

    try:
        assert call().content
    except anthropic.BadRequestError:  # only a model that cannot think may say so
        refused(anthropic.BadRequestError, call, "knows no thinking")


@calls("thinking: of an earlier answer")
def _(client: Anthropic, model: str) -> None:
    thought: Any = {"type": "thinking", "thinking": "A book.", "signature": ""}
    messages: Any = [
        *HELLO,
        {"role": "assistant", "content": [thought, {"type": "text", "text": "A prince."}]},
        {"role": "user", "content": "And?"},
    ]
    assert client.messages.create(model=model, messages=messages, **GREEDY).content


@calls("output_config: a schema")
def _(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model, messages=HELLO, **ROOM,
        output_config={"format": {"type": "json_schema", "schema": PERSON}},
    )  # fmt: skip
    assert set(json.loads(text_of(message))) == {"name", "age"}


@calls("async: eight at the same time")
def _(client: Anthropic, model: str) -> None:
    async def ask() -> list[Any]:
        async with anthropic.AsyncAnthropic(
            base_url=client.base_url, api_key="none", max_retries=0
        ) as other:
            return await asyncio.gather(
                *(other.messages.create(model=model, messages=HELLO, **GREEDY) for _ in range(8))
            )

    assert len({text_of(message) for message in asyncio.run(ask())}) == 1


@calls("error: a model that does not exist")
def _(client: Anthropic, model: str) -> None:
    def call() -> object:
        return client.messages.create(model="no-such-model", messages=HELLO, **GREEDY)

    error = refused(anthropic.NotFoundError, call, "no-such-model")
    assert error.body["type"] == "error"
    assert error.body["error"]["type"] == "not_found_error"


@calls("a parameter that does not exist")
def _(client: Anthropic, model: str) -> None:
    response = client.messages.with_raw_response.create(
        model=model, messages=HELLO, max_tokens=5, extra_body={"temperatur": 1}
    )
    assert response.headers["x-trinity-ignored"] == "temperatur"


@calls("error: an image")
def _(client: Anthropic, model: str) -> None:
    image: Any = {
        "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }  # fmt: skip

    def call() -> object:
        messages: Any = [{"role": "user", "content": [image]}]
        return client.messages.create(model=model, messages=messages, **GREEDY)

    refused(anthropic.BadRequestError, call, "image")


@calls("error: too long a prompt")
def _(client: Anthropic, model: str) -> None:
    messages: Any = [{"role": "user", "content": "war and peace " * 40_000}]

    def call() -> object:
        return client.messages.create(model=model, messages=messages, **GREEDY)

    refused(anthropic.BadRequestError, call, "tokens")


@calls("error: too long a prompt, streamed")
def _(client: Anthropic, model: str) -> None:
    messages: Any = [{"role": "user", "content": "war and peace " * 40_000}]

    def call() -> object:
        return client.messages.create(model=model, messages=messages, stream=True, **GREEDY)

    refused(anthropic.BadRequestError, call, "tokens")


def client_of(base_url: str, api_key: str = "none") -> Anthropic:
    """A client that never tries again."""
    return Anthropic(base_url=base_url, api_key=api_key, max_retries=0)


if __name__ == "__main__":
    given = arguments("calls of Anthropic's client")
    failed = calls.run(client_of(given.base_url, given.api_key), given.model, given.calls)
    sys.exit(bool(failed))
