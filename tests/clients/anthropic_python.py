"""The official anthropic package for Python."""

# packages: anthropic==2.14.0

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import anthropic
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
scripted = anthropic.Anthropic(base_url=SCRIPTED_URL, api_key="none", max_retries=0)
HELLO: Any = [{"role": "user", "content": "Say hello."}]
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"name": "get_weather", "description": "Weather of a city", "input_schema": SCHEMA}
GREEDY = {"temperature": 0}  # which this version of the package does not know
ask: Any = partial(client.messages.create, model=CHAT, max_tokens=12, messages=HELLO)
beta: Any = partial(client.beta.messages.create, model=CHAT, max_tokens=12, messages=HELLO)


class Person(BaseModel):
    """A form of answers."""

    name: str
    age: int


def text_of(message: Any) -> str:
    """The text of an answer's only block."""
    (block,) = message.content
    return str(block.text)


@row("create")
def _() -> None:
    answer = ask()
    assert text_of(answer)
    assert answer.usage.output_tokens <= 12
    assert answer.stop_reason in ("end_turn", "max_tokens")


@row("stream")
def _() -> None:
    with client.messages.stream(
        model=CHAT, max_tokens=12, messages=HELLO, extra_body=GREEDY
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(final) == text_of(ask(extra_body=GREEDY))


@row("parse pydantic")
def _() -> None:
    told: Any = [{"role": "user", "content": "Tom is 30. Answer as JSON."}]
    found = client.messages.parse(
        model=CHAT,
        max_tokens=300,
        messages=told,
        output_format=Person,
        extra_body=GREEDY,
    )
    assert isinstance(found.parsed_output, Person)


@row("count_tokens")
def _() -> None:
    count = client.messages.count_tokens(model=CHAT, messages=HELLO).input_tokens
    usage = ask().usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens


PARAMETERS: dict[str, dict[str, Any]] = {
    "thinking={'type': 'adaptive'}": {"thinking": {"type": "adaptive"}},
    "thinking_enabled={'type': 'enabled', 'budget_tokens': 1024}": {
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1030,
        "stop_sequences": [".", "\n", "!"],
    },
    "output_config={'effort': 'high'}": {"output_config": {"effort": "high"}},
    "service_tier=auto": {"service_tier": "auto"},
    "inference_geo=us": {"inference_geo": "us"},
    "cache_control={'type': 'ephemeral'}": {"cache_control": {"type": "ephemeral"}},
    "container=x": {"container": "x"},
    "metadata={'user_id': 'u'}": {"metadata": {"user_id": "u"}},
    "top_k=5": {"extra_body": {"top_k": 5}},
    "temperature=1.0": {"extra_body": {"temperature": 1.0}},
    "tools=[]": {"tools": []},
    "thinking adaptive + output_config.effort (what Claude Code sends)": {
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
    },
    "tool with extra keys (strict, cache_control, eager_input_streaming, defer_loading)": {
        "tools": [{**TOOL, "strict": True, "cache_control": {"type": "ephemeral"},
                   "eager_input_streaming": True, "defer_loading": True,
                   "input_examples": [{"city": "Paris"}]}],
    },
}  # fmt: skip


def with_parameters(**parameters: Any) -> None:
    """An answer with further parameters."""
    assert ask(**parameters).usage.output_tokens


for name, parameters in PARAMETERS.items():
    row(name if " " in name.partition("=")[0] else f"create {name}")(
        partial(with_parameters, **parameters)
    )


@row("create mcp_servers=[]")
def _() -> None:
    assert beta(mcp_servers=[]).usage.output_tokens


@row("create betas=None")
def _() -> None:
    assert ask(extra_body={"betas": None}).usage.output_tokens


@row("beta: context_management")
def _() -> None:
    edits = [{"type": "clear_tool_uses_20250919"}]
    betas = ["context-management-2025-06-27"]
    assert beta(context_management={"edits": edits}, betas=betas).usage.output_tokens


@row("client tools bash_20250124 / text_editor")
def _() -> None:
    tools: Any = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "memory_20250818", "name": "memory"},
    ]
    answer = scripted.messages.create(
        model=SCRIPTED,
        max_tokens=100,
        tools=tools,
        messages=[{"role": "user", "content": "List the files here with bash."}],
    )
    (call,) = answer.content
    assert (call.type, call.name, call.input) == ("tool_use", "bash", {"command": "ls"})
    assert answer.stop_reason == "tool_use"


@row("server tools are left out")
def _() -> None:
    raw = client.messages.with_raw_response.create(
        model=CHAT,
        max_tokens=12,
        messages=HELLO,
        tools=[{"type": "web_search_20250305", "name": "web_search"}],
    )
    assert raw.headers["x-trinity-ignored"] == "tools[0]"


@row("tool round trip")
def _() -> None:
    first = scripted.messages.create(
        model=SCRIPTED, max_tokens=100, tools=[TOOL], messages=QUESTION
    )
    (call,) = first.content
    assert call.type == "tool_use"
    assert call.input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}
    history = [
        *QUESTION,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = scripted.messages.create(
        model=SCRIPTED, max_tokens=100, tools=[TOOL], messages=history
    )
    assert text_of(second) == "It is 18 degrees in Paris."


@row("tool stream")
def _() -> None:
    with scripted.messages.stream(
        model=SCRIPTED, max_tokens=100, tools=[TOOL], messages=QUESTION
    ) as stream:
        (call,) = stream.get_final_message().content
    assert call.type == "tool_use"
    assert call.input == {"city": "Paris"}


@row("tool_choice any: one call with all required keys")
def _() -> None:
    answer = ask(tools=[TOOL], tool_choice={"type": "any"}, max_tokens=300, extra_body=GREEDY)
    (call,) = answer.content
    assert call.name == "get_weather"
    assert isinstance(call.input["city"], str)


@row("system role message inside messages (beta mid-conversation-system)")
def _() -> None:
    messages = [*HELLO, {"role": "system", "content": "Be short."}]
    assert ask(messages=messages).usage.output_tokens


@row("assistant prefill")
def _() -> None:
    begun = [*QUESTION, {"role": "assistant", "content": "The weather in Paris is"}]
    answer = ask(messages=begun, extra_body=GREEDY)
    assert not text_of(answer).startswith("The weather in Paris is")


@row("document block text")
def _() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Tom is 30 years old."}
    document = {"type": "document", "source": source, "title": "Tom", "citations": None}
    asked = {"type": "text", "text": "How old is Tom?"}
    plain = ask(messages=[{"role": "user", "content": [asked]}])
    answer = ask(messages=[{"role": "user", "content": [document, asked]}])
    tokens = [one.usage.input_tokens + one.usage.cache_read_input_tokens for one in (plain, answer)]
    assert tokens[1] > tokens[0] + 5


def refused(kind: type[anthropic.APIError], call: Callable[[], object], part: str) -> Any:
    """The error of a call, whose message has a part."""
    found: anthropic.APIError | None = None
    try:
        call()
    except kind as error:
        found = error
    assert found is not None, f"{kind.__name__} was not raised"
    assert part in str(found), found
    return found


@row("image block (text model): a clear error")
def _() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    refused(anthropic.BadRequestError, lambda: ask(messages=messages), "the model reads only text")


@row("max_tokens is kept to")
def _() -> None:
    answer = ask(max_tokens=2)
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 2)


@row("stop_sequences, whole and streamed")
def _() -> None:
    whole = text_of(ask(extra_body=GREEDY))
    word = whole.split()[1]
    answer = ask(stop_sequences=[word], extra_body=GREEDY)
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", word)
    assert text_of(answer) == whole.partition(word)[0]
    with client.messages.stream(
        model=CHAT, max_tokens=12, messages=HELLO, stop_sequences=[word], extra_body=GREEDY
    ) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", word)


@row("top_k=1 is greedy")
def _() -> None:
    assert text_of(ask(extra_body={"top_k": 1})) == text_of(ask(extra_body=GREEDY))


@row("system as blocks with cache_control; cache_read_input_tokens the second time")
def _() -> None:
    text = "Be short and kind. " * 40
    system = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    for _ in range(2):
        answer = ask(system=system)
    assert answer.usage.cache_read_input_tokens > 100


@row("stream: order of the events")
def _() -> None:
    types = [event.type for event in ask(stream=True)]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) == {"content_block_delta"}


@row("stream left early")
def _() -> None:
    with client.messages.stream(model=CHAT, messages=HELLO, max_tokens=200) as stream:
        next(iter(stream))


@row("tool_choice none")
def _() -> None:
    answer = ask(tools=[TOOL], tool_choice={"type": "none"})
    assert all(block.type != "tool_use" for block in answer.content)


@row("tool_result with is_error and blocks; thinking of an earlier answer")
def _() -> None:
    called = {"type": "tool_use", "id": "call00001", "name": "get_weather",
              "input": {"city": "Paris"}}  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": "call00001", "is_error": True,
              "content": [{"type": "text", "text": "no such place"}]}  # fmt: skip
    thought = {"type": "thinking", "thinking": "A city.", "signature": ""}
    history = [
        *QUESTION,
        {"role": "assistant", "content": [thought, called]},
        {"role": "user", "content": [result]},
    ]
    assert ask(messages=history, tools=[TOOL]).content


@row("async client, 8 at once")
def _() -> None:
    async def run() -> list[Any]:
        async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", max_retries=0) as many:
            return await asyncio.gather(
                *(
                    many.messages.create(
                        model=CHAT, max_tokens=12, messages=HELLO, extra_body=GREEDY
                    )
                    for _ in range(8)
                )
            )

    assert all(text_of(one) for one in asyncio.run(run()))


@row("error: unknown model")
def _() -> None:
    error = refused(anthropic.NotFoundError, lambda: ask(model="no-such-model"), "no-such-model")
    assert (error.body["type"], error.body["error"]["type"]) == ("error", "not_found_error")


@row("error: too long a prompt, whole and streamed")
def _() -> None:
    messages = [{"role": "user", "content": "war and peace " * 40_000}]
    refused(anthropic.BadRequestError, lambda: ask(messages=messages), "tokens")
    refused(anthropic.BadRequestError, lambda: ask(messages=messages, stream=True), "tokens")


@row("models.list / retrieve")
def _() -> None:
    assert CHAT in [one.id for one in client.models.list()]
    found = client.models.retrieve(CHAT)
    assert (found.id, found.display_name, found.type) == (CHAT, CHAT, "model")
    assert found.created_at.year > 2020


@row("api_key header x-api-key / auth_token")
def _() -> None:
    other = anthropic.Anthropic(base_url=URL, auth_token="none", api_key=None)
    assert other.messages.create(model=CHAT, max_tokens=4, messages=HELLO).content


@row("messages.batches (clear 501 without --state)")
def _() -> None:
    refused(anthropic.InternalServerError, lambda: client.messages.batches.list(), "--state")


if __name__ == "__main__":
    main()
