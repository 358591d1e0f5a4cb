"""Calls of OpenAI's Python client against a server:

python scripts/clients/openai_calls.py --base-url http://127.0.0.1:8080 --model demo
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import openai
from openai import OpenAI
from pydantic import BaseModel, Field

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from scripts.clients.calls import Calls, arguments, refused  # noqa: E402

calls = Calls()
HELLO: Any = [{"role": "user", "content": "Who was Prince Andrew?"}]
GREEDY: Any = {"temperature": 0, "max_tokens": 12}
SCHEMA: Any = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT: Any = {
    "type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True},
}  # fmt: skip
PLACE: Any = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Moscow", "Paris"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": PLACE},
}
CLOCK: Any = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}
RESPONSES_WEATHER: Any = {
    "type": "function", "name": "weather", "description": "The weather.", "parameters": PLACE,
    "strict": True,
}  # fmt: skip
ROOM: Any = {"temperature": 0, "max_tokens": 120}


class Person(BaseModel):
    name: Annotated[str, Field(max_length=8)]
    age: Literal[1, 2, 3]


def check_person(text: str | None) -> None:
    found = json.loads(text or "")
    assert set(found) == {"name", "age"}, found
    assert isinstance(found["name"], str)
    assert found["age"] in (1, 2, 3)


def check_weather(call: Any) -> None:
    assert call.type == "function"
    assert call.id
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Moscow", "Paris")


@calls("models.list")
def _(client: OpenAI, model: str) -> None:
    assert model in [one.id for one in client.models.list()]


@calls("models.retrieve")
def _(client: OpenAI, model: str) -> None:
    assert client.models.retrieve(model).id == model


@calls("chat")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=HELLO, **GREEDY)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@calls("chat, streamed: the same text")
def _(client: OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=HELLO, **GREEDY)
    with client.chat.completions.create(
        model=model, messages=HELLO, stream=True, **GREEDY
    ) as chunks:
        found = list(chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in found)
    assert text == whole.choices[0].message.content
    assert found[0].choices[0].delta.role == "assistant"
    assert found[-1].choices[0].finish_reason == whole.choices[0].finish_reason


@calls("chat, streamed: usage")
def _(client: OpenAI, model: str) -> None:
    chunks = client.chat.completions.create(
        model=model, messages=HELLO, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    *rest, last = chunks
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 0
    assert all(one.usage is None for one in rest)


@calls("chat, streamed: left early")
def _(client: OpenAI, model: str) -> None:
    with client.chat.completions.create(
        model=model, messages=HELLO, stream=True, max_tokens=200
    ) as chunks:
        next(iter(chunks))


@calls("chat: a conversation")
def _(client: OpenAI, model: str) -> None:
    messages: Any = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "Who are you?"}]},
    ]
    answer = client.chat.completions.create(model=model, messages=messages, **GREEDY)
    assert answer.choices[0].message.content


@calls("chat: the second time from the cache")
def _(client: OpenAI, model: str) -> None:
    for _ in range(2):
        answer = client.chat.completions.create(model=model, messages=HELLO, **GREEDY)
    assert answer.usage is not None
    details = answer.usage.prompt_tokens_details
    assert details is not None
    assert (details.cached_tokens or 0) > 0


@calls("chat: max_completion_tokens")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, temperature=0, max_completion_tokens=2
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


@calls("chat: stop")
def _(client: OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=HELLO, **GREEDY)
    text = whole.choices[0].message.content or ""
    word = text.split()[1]
    answer = client.chat.completions.create(model=model, messages=HELLO, stop=[word], **GREEDY)
    assert answer.choices[0].message.content == text.partition(word)[0]
    assert answer.choices[0].finish_reason == "stop"


@calls("chat: seed")
def _(client: OpenAI, model: str) -> None:
    texts = [
        client.chat.completions.create(
            model=model, messages=HELLO, seed=7, temperature=1.5, max_tokens=12
        ).choices[0].message.content
        for _ in range(2)
    ]  # fmt: skip
    assert texts[0] == texts[1]


@calls("chat: n = 3")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, n=3, seed=1, temperature=1.5, max_tokens=12
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


@calls("chat: logit_bias")
def _(client: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "messages": HELLO, "temperature": 0, "max_tokens": 1}
    first = client.chat.completions.create(**asked, logprobs=True).choices[0].message.content
    bias = {str(token): -100 for token in range(3, 1500)}
    other = client.chat.completions.create(**asked, logit_bias=bias).choices[0].message.content
    assert first != other


@calls("chat: logprobs")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, logprobs=True, top_logprobs=3, **GREEDY
    )
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.content
    assert answer.usage is not None
    assert len(found.content) >= answer.usage.completion_tokens
    for one in found.content:
        assert math.isfinite(one.logprob)
        assert one.logprob <= 0
        assert len(one.top_logprobs) == 3
        assert one.top_logprobs[0].logprob >= one.logprob
    text = b"".join(bytes(one.bytes or []) for one in found.content).decode()
    assert (answer.choices[0].message.content or "").strip() in text


@calls("chat, streamed: logprobs")
def _(client: OpenAI, model: str) -> None:
    chunks = client.chat.completions.create(
        model=model, messages=HELLO, logprobs=True, stream=True, **GREEDY
    )
    found = [
        one
        for chunk in chunks
        if chunk.choices[0].logprobs
        for one in chunk.choices[0].logprobs.content or []
    ]
    assert len(found) >= 1


@calls("chat: json_object")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, response_format={"type": "json_object"}, temperature=0
    )
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)
    else:
        assert (answer.choices[0].message.content or "").lstrip().startswith("{")


@calls("chat: json_schema strict")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, response_format=FORMAT, **ROOM
    )
    check_person(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"


@calls("chat, streamed: json_schema strict")
def _(client: OpenAI, model: str) -> None:
    chunks = client.chat.completions.create(
        model=model, messages=HELLO, response_format=FORMAT, stream=True, **ROOM
    )
    check_person("".join(chunk.choices[0].delta.content or "" for chunk in chunks))


@calls("chat.parse: a pydantic model")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.parse(
        model=model, messages=HELLO, response_format=Person, temperature=0,
        max_tokens=200, seed=1,
    )  # fmt: skip
    assert isinstance(answer.choices[0].message.parsed, Person)


@calls("chat: tools, one forced")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, tools=[CLOCK, WEATHER], **ROOM,
        tool_choice={"type": "function", "function": {"name": "weather"}},
    )  # fmt: skip
    assert answer.choices[0].message.tool_calls
    check_weather(answer.choices[0].message.tool_calls[0])


@calls("chat: tools, required, not parallel")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, tools=[WEATHER], tool_choice="required",
        parallel_tool_calls=False, **ROOM,
    )  # fmt: skip
    (call,) = answer.choices[0].message.tool_calls or []
    check_weather(call)
    assert answer.choices[0].finish_reason == "tool_calls"


@calls("chat, streamed: tools, one forced")
def _(client: OpenAI, model: str) -> None:
    with client.chat.completions.stream(
        model=model, messages=HELLO, tools=[WEATHER], **ROOM, parallel_tool_calls=False,
        tool_choice={"type": "function", "function": {"name": "weather"}},
    ) as events:  # fmt: skip
        answer = events.get_final_completion()
    (call,) = answer.choices[0].message.tool_calls or []
    check_weather(call)


@calls("chat: tools, auto")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, tools=[WEATHER, CLOCK], tool_choice="auto", **GREEDY
    )
    message = answer.choices[0].message
    assert message.content or message.tool_calls
    for call in message.tool_calls or []:
        assert call.type == "function"
        json.loads(call.function.arguments)


@calls("chat: tools, none")
def _(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, tools=[WEATHER], tool_choice="none", **GREEDY
    )
    assert not answer.choices[0].message.tool_calls


@calls("chat: a tool's result")
def _(client: OpenAI, model: str) -> None:
    call = {"id": "call00001", "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}  # fmt: skip
    messages: Any = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "content": "rain"},
    ]
    answer = client.chat.completions.create(
        model=model, messages=messages, tools=[WEATHER], **GREEDY
    )
    assert answer.choices[0].message.role == "assistant"


@calls("completions")
def _(client: OpenAI, model: str) -> None:
    answer = client.completions.create(model=model, prompt="Prince Andrew", **GREEDY)
    assert answer.choices[0].text


@calls("completions, streamed: the same text")
def _(client: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "prompt": "Prince Andrew", **GREEDY}
    whole = client.completions.create(**asked).choices[0].text
    chunks = client.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole


@calls("completions: echo and logprobs of several prompts")
def _(client: OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt=["Prince Andrew", "Pierre"], echo=True, logprobs=2, temperature=0,
        max_tokens=3,
    )  # fmt: skip
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text.lstrip().startswith("Prince Andrew")
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens


@calls("embeddings")
def _(client: OpenAI, model: str) -> None:
    vector = client.embeddings.create(model=model, input="Prince Andrew").data[0].embedding
    assert abs(sum(x * x for x in vector) - 1) < 1e-3
    plain = client.embeddings.create(model=model, input="Prince Andrew", encoding_format="float")
    assert max(abs(a - b) for a, b in zip(vector, plain.data[0].embedding, strict=True)) < 0.05


@calls("embeddings: several, of fewer dimensions")
def _(client: OpenAI, model: str) -> None:
    answer = client.embeddings.create(model=model, input=["one", "two", "three"], dimensions=8)
    assert [one.index for one in answer.data] == [0, 1, 2]
    assert {len(one.embedding) for one in answer.data} == {8}
    assert answer.usage.prompt_tokens > 0


@calls("responses")
def _(client: OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model, input="Who was Prince Andrew?", instructions="Be short.", temperature=0,
        max_output_tokens=12, metadata={"a": "b"},
    )  # fmt: skip
    assert answer.output_text or answer.output
    assert answer.usage is not None
    assert answer.usage.output_tokens > 0
    assert answer.metadata == {"a": "b"}


@calls("responses, streamed: the same text")
def _(client: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "input": HELLO, "temperature": 0, "max_output_tokens": 12}
    whole = client.responses.create(**asked)
    found = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in found] == list(range(len(found)))
    assert (found[0].type, found[1].type) == ("response.created", "response.in_progress")
    deltas = [event.delta for event in found if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert found[-1].type in ("response.completed", "response.incomplete")


@calls("responses: its answer goes back in")
def _(client: OpenAI, model: str) -> None:
    asked: Any = {"model": model, "temperature": 0, "max_output_tokens": 6}
    conversation: Any = [{"role": "user", "content": "Hello"}]
    conversation += client.responses.create(input=conversation, **asked).output
    conversation.append({"role": "user", "content": "Go on"})
    assert client.responses.create(input=conversation, **asked).output


@calls("responses: logprobs")
def _(client: OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model, input="Hello", temperature=0, max_output_tokens=6, top_logprobs=2,
        include=["message.output_text.logprobs"],
    )  # fmt: skip
    message: Any = next(item for item in answer.output if item.type == "message")
    assert message.content[0].logprobs
    assert len(message.content[0].logprobs[0].top_logprobs) == 2


@calls("responses: tools, one forced")
def _(client: OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model, input=HELLO, tools=[RESPONSES_WEATHER], temperature=0,
        tool_choice={"type": "function", "name": "weather"}, max_output_tokens=120,
    )  # fmt: skip
    found: Any = [item for item in answer.output if item.type == "function_call"]
    assert found[0].name == "weather"
    assert json.loads(found[0].arguments)["city"] in ("Moscow", "Paris")


@calls("responses: json_schema strict")
def _(client: OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model, input=HELLO, temperature=0, max_output_tokens=120,
        text={"format": {"type": "json_schema", "name": "p", "schema": SCHEMA, "strict": True}},
    )  # fmt: skip
    check_person(answer.output_text)


@calls("async: eight at the same time")
def _(client: OpenAI, model: str) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(
            base_url=client.base_url, api_key=client.api_key, max_retries=0
        ) as other:
            answers = await asyncio.gather(
                *(
                    other.chat.completions.create(
                        model=model, messages=HELLO, seed=seed, temperature=2.0, max_tokens=24
                    )
                    for seed in range(8)
                )
            )
            return [answer.choices[0].message.content for answer in answers]

    together = asyncio.run(ask())
    assert len(together) == 8
    assert len(set(together)) > 1


@calls("error: a model that does not exist")
def _(client: OpenAI, model: str) -> None:
    def call() -> object:
        return client.chat.completions.create(model="no-such-model", messages=HELLO)

    assert refused(openai.NotFoundError, call, "no-such-model").code == "model_not_found"


@calls("a parameter that does not exist")
def _(client: OpenAI, model: str) -> None:
    response = client.chat.completions.with_raw_response.create(
        model=model, messages=HELLO, max_tokens=5, extra_body={"temperatur": 1}
    )
    assert response.headers["x-trinity-ignored"] == "temperatur"


@calls("error: a parameter out of range")
def _(client: OpenAI, model: str) -> None:
    def call() -> object:
        return client.chat.completions.create(model=model, messages=HELLO, top_p=3)

    refused(openai.BadRequestError, call, "top_p")


@calls("error: too long a prompt")
def _(client: OpenAI, model: str) -> None:
    messages: Any = [{"role": "user", "content": "war and peace " * 40_000}]

    def call() -> object:
        return client.chat.completions.create(model=model, messages=messages)

    assert refused(openai.BadRequestError, call).code == "context_length_exceeded"


@calls("error: a response that is not kept")
def _(client: OpenAI, model: str) -> None:
    def call() -> object:
        return client.responses.create(model=model, input="a", previous_response_id="resp_1")

    assert refused(openai.BadRequestError, call).param == "previous_response_id"


def client_of(base_url: str, api_key: str = "none") -> OpenAI:
    """A client that never tries again."""
    return OpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0)


if __name__ == "__main__":
    given = arguments("calls of OpenAI's client")
    failed = calls.run(client_of(given.base_url, given.api_key), given.model, given.calls)
    sys.exit(bool(failed))
