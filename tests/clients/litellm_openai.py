"""LiteLLM's providers of OpenAI's API: openai, hosted_vllm, llamafile, lm_studio and others."""

# packages: litellm==1.110.2 pydantic

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import litellm
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

litellm.suppress_debug_info = True
HELLO: Any = [{"role": "user", "content": "Say hello."}]
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
PROVIDERS = ("openai", "hosted_vllm", "llamafile", "lm_studio")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def complete(provider: str, url: str = URL, model: str = CHAT, **body: Any) -> Any:
    return litellm.completion(
        model=f"{provider}/{model}",
        api_base=f"{url}/v1",
        api_key="none",
        num_retries=0,
        **{"messages": HELLO, "max_tokens": 6, **body},
    )


def chat(provider: str) -> None:
    assert complete(provider).choices[0].message.content


def stream(provider: str) -> None:
    found = complete(provider, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in found)


def sampling(provider: str) -> None:
    body = {"temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["\n"], "presence_penalty": 0.1}
    assert complete(provider, **body).choices


def tools_auto(provider: str) -> None:
    answer = complete(
        provider, SCRIPTED_URL, SCRIPTED, messages=QUESTION, tools=TOOLS, max_tokens=100
    )
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def round_trip(provider: str) -> None:
    answer = complete(
        provider, SCRIPTED_URL, SCRIPTED, messages=QUESTION, tools=TOOLS, max_tokens=100
    )
    message = answer.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "18 degrees"}
    history = [*QUESTION, message, result]
    second = complete(
        provider, SCRIPTED_URL, SCRIPTED, messages=history, tools=TOOLS, max_tokens=100
    )
    assert second.choices[0].message.content == "It is 18 degrees in Paris."


def tools_required(provider: str) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
    answer = complete(provider, tools=[tool], tool_choice="required", max_tokens=100)
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def pydantic_format(provider: str) -> None:
    answer = complete(provider, response_format=Person, max_tokens=60)
    assert Person.model_validate_json(answer.choices[0].message.content)


def json_object(provider: str) -> None:
    answer = complete(provider, response_format={"type": "json_object"}, max_tokens=10)
    assert answer.choices[0].message.content.startswith("{")


FEATURES = {
    "chat": chat, "stream": stream, "sampling params": sampling, "tools auto": tools_auto,
    "tool round trip": round_trip, "tools required": tools_required,
    "response_format pydantic": pydantic_format, "json_object": json_object,
}  # fmt: skip
for provider in PROVIDERS:
    for feature, run in FEATURES.items():
        row(f"{provider}/ {feature}")(lambda run=run, provider=provider: run(provider))


@row("text-completion-openai/ chat, stream, sampling params")
def _() -> None:
    story: Any = [{"role": "user", "content": "Once upon a time, there was a"}]
    for body in ({}, {"temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["\n\n\n"]}):
        answer = complete("text-completion-openai", messages=story, **body)
        assert answer.choices[0].message.content
    found = complete("text-completion-openai", messages=story, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in found)


@row("openai/ reasoning_effort=low")
def _() -> None:
    assert complete("openai", reasoning_effort="low", allowed_openai_params=["reasoning_effort"])


@row("openai/ acompletion")
def _() -> None:
    async def run() -> Any:
        return await litellm.acompletion(
            model=f"openai/{CHAT}",
            api_base=f"{URL}/v1",
            api_key="none",
            messages=HELLO,
            max_tokens=4,
        )

    assert asyncio.run(run()).choices


@row("text_completion")
def _() -> None:
    answer = litellm.text_completion(
        model=f"text-completion-openai/{CHAT}",
        api_base=f"{URL}/v1",
        api_key="none",
        prompt="Once upon",
        max_tokens=4,
    )
    assert answer.choices[0].text


@row("responses() openai/")
def _() -> None:
    answer = litellm.responses(
        model=f"openai/{SCRIPTED}", api_base=f"{SCRIPTED_URL}/v1", api_key="none", input="Hi."
    )
    assert answer.output[0].content[0].text == "Hello! How can I help you today?"


@row("embedding openai/, hosted_vllm/")
def _() -> None:
    for provider in ("openai", "hosted_vllm"):
        answer = litellm.embedding(
            model=f"{provider}/{EMBEDDER}", api_base=f"{URL}/v1", api_key="none", input=["Hi."]
        )
        assert len(answer.data[0]["embedding"]) == 384


@row("rerank hosted_vllm/ (model is no reranker: clear error)")
def _() -> None:
    told = ""
    try:
        litellm.rerank(
            model=f"hosted_vllm/{CHAT}", api_base=URL, api_key="none", query="a", documents=["b"]
        )
    except Exception as error:
        told = str(error)
    assert "rerank" in told or "rank" in told, told


if __name__ == "__main__":
    main()
