"""The openai package: what answers contain, whole and streamed, and what errors say."""

# packages: openai==3.57.0

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from rows import CHAT, EMBEDDER, URL, main, row

client = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
root = OpenAI(base_url=URL, api_key="none", max_retries=0)  # for what is not below /v1
HELLO: Any = [{"role": "user", "content": "Say hello."}]
LONG: Any = [{"role": "user", "content": "war and peace " * 40_000}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORM: Any = {"name": "person", "schema": SCHEMA, "strict": True}
WEATHER: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Moscow", "Paris"]}},
    "required": ["city"],
}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}


def chat(**body: Any) -> Any:
    given = {"model": CHAT, "messages": HELLO, "max_tokens": 12, "temperature": 0}
    return client.chat.completions.create(**{**given, **body})


def complete(**body: Any) -> Any:
    given = {"model": CHAT, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    return client.completions.create(**{**given, **body})


def respond(**body: Any) -> Any:
    given = {"model": CHAT, "input": HELLO, "max_output_tokens": 12, "temperature": 0}
    return client.responses.create(**{**given, **body})


def check_person(text: str) -> None:
    found = json.loads(text)
    assert set(found) == {"name", "age"}
    assert isinstance(found["name"], str)
    assert found["age"] in (1, 2, 3)


def refused(kind: type[openai.APIError], **body: Any) -> Any:
    try:
        chat(**body)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


@row("chat: usage is the sum of prompt and completion")
def _() -> None:
    usage = chat().usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@row("chat, streamed: role, text and finish_reason of the whole answer")
def _() -> None:
    (whole,) = chat().choices
    found = [one.choices[0] for one in chat(stream=True)]
    assert "".join(one.delta.content or "" for one in found) == whole.message.content
    assert found[0].delta.role == "assistant"
    assert [one.finish_reason for one in found if one.finish_reason] == [whole.finish_reason]


@row("chat, streamed: usage comes alone and last")
def _() -> None:
    *rest, last = chat(stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.completion_tokens > 0
    assert all(one.usage is None for one in rest)


@row("chat, streamed: left early")
def _() -> None:
    with chat(stream=True, max_tokens=200) as chunks:
        next(iter(chunks))


@row("chat: cached_tokens the second time")
def _() -> None:
    messages = [{"role": "user", "content": "Say hello to everyone. " * 40}]
    for _ in range(2):
        answer = chat(messages=messages)
    assert answer.usage.prompt_tokens_details.cached_tokens > 100


@row("chat: max_completion_tokens")
def _() -> None:
    answer = chat(max_tokens=None, max_completion_tokens=2)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 2)


@row("chat: stop")
def _() -> None:
    text = chat().choices[0].message.content
    word = text.split()[1]
    (choice,) = chat(stop=[word]).choices
    assert (choice.message.content, choice.finish_reason) == (text.partition(word)[0], "stop")


@row("chat: the same seed gives the same text")
def _() -> None:
    texts = {chat(seed=7, temperature=1.5).choices[0].message.content for _ in range(2)}
    assert len(texts) == 1


@row("chat: n=3 with a seed gives different texts")
def _() -> None:
    choices = chat(n=3, seed=1, temperature=1.5).choices
    assert [one.index for one in choices] == [0, 1, 2]
    assert len({one.message.content for one in choices}) > 1


@row("chat: logit_bias -100 excludes a token")
def _() -> None:
    asked: Any = {"max_tokens": 1, "logprobs": True, "top_logprobs": 1}
    first = chat(**asked).choices[0].logprobs.content[0].token
    bias = {str(token): -100 for token in tokens(first)}
    assert chat(**asked, logit_bias=bias).choices[0].message.content != first


def tokens(text: str) -> list[int]:
    found: Any = root.post("/tokenize", body={"content": text}, cast_to=object)
    return list(found["tokens"])


@row("chat: logprobs cover the text")
def _() -> None:
    answer = chat(logprobs=True, top_logprobs=3)
    found = answer.choices[0].logprobs.content
    for one in found:
        assert math.isfinite(one.logprob)
        assert one.logprob <= 0
        assert len(one.top_logprobs) == 3
        assert one.top_logprobs[0].logprob >= one.logprob
    text = b"".join(bytes(one.bytes) for one in found).decode()
    assert answer.choices[0].message.content in text
    streamed = [
        one
        for chunk in chat(logprobs=True, stream=True)
        if chunk.choices[0].logprobs
        for one in chunk.choices[0].logprobs.content
    ]
    assert [one.token for one in streamed] == [one.token for one in found]


@row("chat: json_schema strict, whole and streamed")
def _() -> None:
    asked: Any = {
        "response_format": {"type": "json_schema", "json_schema": FORM},
        "max_tokens": 120,
    }
    answer = chat(**asked)
    check_person(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"
    chunks = chat(**asked, stream=True)
    check_person("".join(one.choices[0].delta.content or "" for one in chunks))


@row("chat: tools none")
def _() -> None:
    assert not chat(tools=[TOOL], tool_choice="none").choices[0].message.tool_calls


@row("chat: tools required, not parallel")
def _() -> None:
    answer = chat(tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=120)
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Moscow", "Paris")


@row("completions, streamed: the text of the whole answer")
def _() -> None:
    whole = complete().choices[0].text
    assert "".join(one.choices[0].text for one in complete(stream=True)) == whole


@row("completions: echo and logprobs of several prompts")
def _() -> None:
    prompts = ["Once upon a time", "The capital of France is"]
    choices = complete(prompt=prompts, echo=True, logprobs=2, max_tokens=3).choices
    assert [one.index for one in choices] == [0, 1]
    for prompt, choice in zip(prompts, choices, strict=True):
        assert choice.text.startswith(prompt)
        assert "".join(choice.logprobs.tokens) == choice.text
        assert choice.logprobs.token_logprobs[0] is None
        assert all(one <= 0 for one in choice.logprobs.token_logprobs[1:])


@row("embeddings: base64 and float, length 1, dimensions")
def _() -> None:
    asked: Any = {"model": EMBEDDER, "input": ["one", "two", "three"]}
    coded = client.embeddings.create(**asked)
    plain = client.embeddings.create(**asked, encoding_format="float")
    assert [one.index for one in plain.data] == [0, 1, 2]
    for one, other in zip(coded.data, plain.data, strict=True):
        pairs = zip(one.embedding, other.embedding, strict=True)
        assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in pairs)
        assert math.isclose(sum(a * a for a in one.embedding), 1, abs_tol=1e-3)
    short = client.embeddings.create(**asked, dimensions=8)
    assert {len(one.embedding) for one in short.data} == {8}


@row("embeddings: token ids, user")
def _() -> None:
    ids = [[101, 2028, 102], [101, 2048, 102]]
    found = client.embeddings.create(model=EMBEDDER, input=ids, user="me").data
    texts = client.embeddings.create(model=EMBEDDER, input=["one", "two"]).data
    for one, other in zip(found, texts, strict=True):
        assert math.isclose(
            sum(a * b for a, b in zip(one.embedding, other.embedding, strict=True)), 1, abs_tol=1e-3
        )


@row("beta.chat.completions.parse (old name)")
def _() -> None:
    found = client.beta.chat.completions.parse(
        model=CHAT, messages=HELLO, max_tokens=60,
        response_format={"type": "json_schema", "json_schema": FORM},
    )  # fmt: skip
    assert json.loads(found.choices[0].message.content)["age"] in (1, 2, 3)


@row("responses: usage, metadata")
def _() -> None:
    answer = respond(instructions="Be short.", metadata={"a": "b"})
    assert answer.output_text
    assert answer.usage.output_tokens > 0
    assert answer.metadata == {"a": "b"}


@row("responses, streamed: events and text of the whole answer")
def _() -> None:
    found = list(respond(stream=True))
    assert [one.sequence_number for one in found] == list(range(len(found)))
    assert [one.type for one in found[:2]] == ["response.created", "response.in_progress"]
    deltas = [one.delta for one in found if one.type == "response.output_text.delta"]
    assert "".join(deltas) == respond().output_text
    assert found[-1].type in ("response.completed", "response.incomplete")


@row("responses: logprobs")
def _() -> None:
    answer = respond(top_logprobs=2, include=["message.output_text.logprobs"])
    (message,) = (one for one in answer.output if one.type == "message")
    assert {len(one.top_logprobs) for one in message.content[0].logprobs} == {2}


@row("responses: json_schema strict")
def _() -> None:
    answer = respond(max_output_tokens=120, text={"format": {"type": "json_schema", **FORM}})
    check_person(answer.output_text)


@row("responses: a forced function")
def _() -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}
    choice: Any = {"type": "function", "name": "weather"}
    answer = respond(tools=[tool], tool_choice=choice, max_output_tokens=120)
    (call,) = (one for one in answer.output if one.type == "function_call")
    assert json.loads(call.arguments)["city"] in ("Moscow", "Paris")


@row("async client, 8 seeds at once")
def _() -> None:
    async def ask() -> list[Any]:
        async with AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as many:
            return await asyncio.gather(
                *(
                    many.chat.completions.create(
                        model=CHAT, messages=HELLO, seed=seed, temperature=2.0, max_tokens=24
                    )
                    for seed in range(8)
                )
            )

    texts = [one.choices[0].message.content for one in asyncio.run(ask())]
    assert len(texts) == 8
    assert len(set(texts)) > 1


@row("error: an unknown model has the code model_not_found")
def _() -> None:
    assert refused(openai.NotFoundError, model="no-such-model").code == "model_not_found"


@row("error: a value out of range names its parameter")
def _() -> None:
    assert refused(openai.BadRequestError, top_p=3).param == "top_p"


@row("error: too long a prompt has the code context_length_exceeded")
def _() -> None:
    error = refused(openai.BadRequestError, messages=LONG)
    assert error.code == "context_length_exceeded"


@row("error: a response that is not stored")
def _() -> None:
    told = None
    try:
        respond(previous_response_id="resp_1")
    except openai.BadRequestError as error:
        told = error.param
    assert told == "previous_response_id"


if __name__ == "__main__":
    main()
