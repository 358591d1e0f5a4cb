"""LiteLLM's providers for Ollama and Anthropic."""

# packages: litellm==1.110.2

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import litellm
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

HELLO = [{"role": "user", "content": "Say hello."}]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
NO_TOOL_CHOICE = "Ollama's API has no `tool_choice`"


class Person(BaseModel):
    """A form of answers."""

    name: str
    age: int


def ask(provider: str, model: str = CHAT, **parameters: Any) -> Any:
    """An answer by a provider."""
    base = SCRIPTED_URL if model == SCRIPTED else URL
    given = {"messages": HELLO, "max_tokens": 12, **parameters}
    return litellm.completion(model=f"{provider}/{model}", api_base=base, api_key="none", **given)


def chat(provider: str) -> None:
    answer = ask(provider)
    assert answer.choices[0].message.content
    assert 0 < answer.usage.completion_tokens <= 13


def stream(provider: str) -> None:
    pieces = [one.choices[0].delta.content or "" for one in ask(provider, stream=True)]
    assert "".join(pieces)


def sampling(provider: str) -> None:
    answer = ask(provider, temperature=0.5, top_p=0.9, stop=["\n\n\n"], seed=1, drop_params=True)
    assert answer.choices[0].message.content


def tools_auto(provider: str) -> None:
    answer = ask(provider, SCRIPTED, messages=QUESTION, tools=TOOLS, max_tokens=100)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def round_trip(provider: str) -> None:
    given = {"tools": TOOLS, "max_tokens": 100}
    first = ask(provider, SCRIPTED, messages=QUESTION, **given).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "18 degrees"}
    answer = ask(provider, SCRIPTED, messages=[*QUESTION, first.model_dump(), result], **given)
    assert answer.choices[0].message.content == "It is 18 degrees in Paris."


def form(provider: str) -> None:
    asked = [{"role": "user", "content": "Tom is 30 years old. Answer as JSON."}]
    answer = ask(provider, messages=asked, response_format=Person, max_tokens=300, temperature=0)
    Person.model_validate_json(answer.choices[0].message.content)


def json_object(provider: str) -> None:
    asked = [{"role": "user", "content": "A Person called Ann as JSON, please."}]
    form = {"type": "json_object"}
    answer = ask(provider, SCRIPTED, messages=asked, response_format=form, max_tokens=100)
    assert json.loads(answer.choices[0].message.content) == {"name": "Ann", "age": 40}


CALLS: dict[str, Callable[[str], None]] = {
    "chat": chat, "stream": stream, "sampling params": sampling, "tools auto": tools_auto,
    "tool round trip": round_trip, "response_format pydantic": form, "json_object": json_object,
}  # fmt: skip
for provider in ("ollama", "ollama_chat", "anthropic"):
    for name, call in CALLS.items():
        row(f"{provider}/ {name}")(partial(call, provider))


def required(provider: str) -> None:
    answer = ask(
        provider, messages=QUESTION, tools=TOOLS, tool_choice="required", max_tokens=300,
        temperature=0,
    )  # fmt: skip
    (call,) = answer.choices[0].message.tool_calls
    assert "city" in json.loads(call.function.arguments)


row("ollama_chat/ tools required", excused=NO_TOOL_CHOICE)(partial(required, "ollama_chat"))
row("anthropic/ tools required")(partial(required, "anthropic"))


def more(provider: str, **parameters: Any) -> None:
    assert ask(provider, **parameters).choices[0].message.content


row("ollama/ num_ctx=8192")(partial(more, "ollama", num_ctx=8192))
row("ollama_chat/ num_ctx=8192")(partial(more, "ollama_chat", num_ctx=8192))
row("ollama_chat/ keep_alive")(partial(more, "ollama_chat", keep_alive="8m"))
row("anthropic/ thinking")(
    partial(
        more,
        "anthropic",
        thinking={"type": "enabled", "budget_tokens": 1024},
        max_tokens=1030,
        allowed_openai_params=["thinking"],
    )
)
row("anthropic/ cache_control")(
    partial(more, "anthropic", messages=[{"role": "user", "content": [
        {"type": "text", "text": "Say hello.", "cache_control": {"type": "ephemeral"}}]}])
)  # fmt: skip


@row("anthropic/ acompletion")
def _() -> None:
    asked = litellm.acompletion(
        model=f"anthropic/{CHAT}", messages=HELLO, api_base=URL, api_key="none", max_tokens=12
    )
    assert asyncio.run(asked).choices[0].message.content


@row("anthropic_messages passthrough (litellm.anthropic.messages)")
def _() -> None:
    asked = litellm.anthropic.messages.acreate(
        model=f"anthropic/{CHAT}", messages=HELLO, api_base=URL, api_key="none", max_tokens=12
    )
    assert asyncio.run(asked)["content"][0]["text"]


@row("embedding ollama/")
def _() -> None:
    found = litellm.embedding(
        model=f"ollama/{EMBEDDER}", input=["Hello", "War and peace"], api_base=URL
    )
    assert [len(one["embedding"]) for one in found.data] == [384, 384]


@row("ollama get_model_info (api/show)")
def _() -> None:
    info = litellm.get_model_info(f"ollama/{CHAT}", api_base=URL)
    assert info["litellm_provider"] == "ollama"


if __name__ == "__main__":
    main()
