"""Home Assistant: the calls of its Ollama and OpenAI integrations, by its clients' versions."""

# packages: ollama==0.5.1 openai==2.15.0

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx
import ollama
import openai
from openai.types.responses import (
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseTextDeltaEvent,
)
from rows import CHAT, DEMO, SCRIPTED, SCRIPTED_URL, URL, main, row

# The program itself needs another Python, so these are the calls of its files
# components/ollama/entity.py and components/openai_conversation/entity.py (2026.2.3).
HELLO = "Hello! How can I help you today?"
SYSTEM = (
    "You are a voice assistant for Home Assistant.\nAnswer questions about the world truthfully.\n"
    "Answer in plain text. Keep it simple and to the point.\nCurrent time is 10:00:00."
)
# As voluptuous_openapi writes the parameters of the assistant's tools.
SLOTS = {
    "name": {"type": "string"}, "area": {"type": "string"}, "floor": {"type": "string"},
    "domain": {"type": "array", "items": {"type": "string"}},
    "device_class": {"type": "array", "items": {"type": "string", "enum": ["awning", "blind"]}},
}  # fmt: skip
INTENTS = {
    "HassTurnOn": ("Turns on/opens a device or entity.", SLOTS),
    "HassSetVolume": ("Sets the volume of a media player.", {**SLOTS, "volume_level": {
        "type": "integer", "minimum": 0, "maximum": 100}}),
    "HassCancelAllTimers": ("Cancels all timers.", {"area": {"type": "string"}}),
    "GetLiveContext": ("Provides real-time information about the current state.", {}),
    "get_weather": ("The weather of a city.", {"city": {"type": "string"}}),
}  # fmt: skip
PERSON = {
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "number"}},
    "required": ["name", "age"],
}  # fmt: skip


def parameters(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": []}


def verified(run: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(run())


async def by_ollama(
    user: str, url: str = SCRIPTED_URL, model: str = SCRIPTED, *, tools: bool = False,
    context: int = 8192, think: bool | None = False, schema: dict[str, Any] | None = None,
    keep_alive: int = -1,
) -> str:  # fmt: skip
    """The loop of OllamaBaseLLMEntity: the last answer."""
    client = ollama.AsyncClient(host=url)
    messages = [ollama.Message(role="system", content=SYSTEM),
                ollama.Message(role="user", content=user, images=None)]  # fmt: skip
    offered = [
        {"type": "function", "function": {
            "name": name, "parameters": parameters(slots), "description": about}}
        for name, (about, slots) in INTENTS.items()
    ]  # fmt: skip
    text = ""
    for _ in range(10):
        parts = await client.chat(
            model=model, messages=list(messages), tools=offered if tools else None, stream=True,
            keep_alive=f"{keep_alive}s", options={"num_ctx": context}, think=think, format=schema,
        )  # fmt: skip
        text, calls, ends = "", [], 0
        async for part in parts:
            message = part["message"]
            assert message.get("thinking") is None
            text += message.get("content") or ""
            calls += message.get("tool_calls") or []
            ends += bool(part.done)
        assert ends == 1
        messages.append(ollama.Message(role="assistant", content=text, tool_calls=calls or None))
        if not calls:
            break
        for call in calls:
            assert call["function"]["name"] == "get_weather"
            result = {"weather": f"18 degrees in {call['function']['arguments']['city']}"}
            messages.append(ollama.Message(role="tool", content=json.dumps(result)))
    return text


@row("ollama: set up")
@verified
async def _() -> None:
    listed = await ollama.AsyncClient(host=URL).list()
    names = [one["model"] for one in listed["models"]]
    assert {f"{CHAT}:latest", f"{DEMO}:latest"} <= set(names) or {CHAT, DEMO} <= set(names), names


@row("ollama: pull of a model that is there")
@verified
async def _() -> None:
    assert (await ollama.AsyncClient(host=URL).pull(CHAT)).status == "success"


@row("ollama: a conversation")
@verified
async def _() -> None:
    assert await by_ollama("Hi.") == HELLO


@row("ollama: the demo model")
@verified
async def _() -> None:
    assert await by_ollama("Who was Prince Andrew?", URL, DEMO)


@row("ollama: the tools of the assistant")
@verified
async def _() -> None:
    assert await by_ollama("What is the weather in Paris?", tools=True) == (
        "It is 18 degrees in Paris."
    )


@row("ollama: keep_alive 0, think unset")
@verified
async def _() -> None:
    assert await by_ollama("Hi.", keep_alive=0, think=None) == HELLO


@row("ollama: an AI task with a structure")
@verified
async def _() -> None:
    text = await by_ollama("A Person called Ann as JSON, please.", schema=PERSON)
    assert json.loads(text) == {"name": "Ann", "age": 40}


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key="none", base_url=f"{url}/v1", http_client=httpx.AsyncClient(),
    )  # fmt: skip


async def by_openai(
    user: str, url: str = SCRIPTED_URL, model: str = SCRIPTED, *, tools: bool = False,
    text: dict[str, Any] | None = None, limit: int = 3000,
) -> str:  # fmt: skip
    """The loop of OpenAIBaseLLMEntity: the last answer."""
    messages: list[Any] = [
        {"type": "message", "role": "developer", "content": SYSTEM},
        {"type": "message", "role": "user", "content": user},
    ]
    more: dict[str, Any] = {}
    if tools:
        more["tools"] = [
            {"type": "function", "name": name, "parameters": parameters(slots),
             "description": about, "strict": False}
            for name, (about, slots) in INTENTS.items()
        ]  # fmt: skip
        search = {"type": "web_search", "search_context_size": "medium"}
        more["tools"] += [search, {"type": "code_interpreter", "container": {"type": "auto"}}]
        more["include"] = ["code_interpreter_call.outputs"]
    if text is not None:
        more["text"] = text
    client = client_of(url)
    for _ in range(10):
        stream = await client.responses.create(
            model=model, input=messages, max_output_tokens=limit, user="01KABC", store=False,
            stream=True, top_p=1.0, temperature=1.0, prompt_cache_retention="24h", **more,
        )  # fmt: skip
        answer, calls = await transformed(stream)
        if answer:
            messages.append({"type": "message", "role": "assistant", "content": answer})
        for call in calls:
            city = json.loads(call.arguments)["city"]
            messages += [
                {"type": "function_call", "name": call.name, "arguments": call.arguments,
                 "call_id": call.call_id},
                {"type": "function_call_output", "call_id": call.call_id,
                 "output": json.dumps({"weather": f"18 degrees in {city}"})},
            ]  # fmt: skip
        if not calls:
            return answer
    return ""


async def transformed(stream: AsyncIterator[Any]) -> tuple[str, list[ResponseFunctionToolCall]]:
    """What _transform_stream makes of a stream's events."""
    answer, calls, used = "", [], 0
    current: ResponseFunctionToolCall | None = None
    async for event in stream:
        if isinstance(event, ResponseOutputItemAddedEvent):
            if isinstance(event.item, ResponseFunctionToolCall):
                current = event.item
        elif isinstance(event, ResponseTextDeltaEvent):
            answer += event.delta
        elif isinstance(event, ResponseFunctionCallArgumentsDeltaEvent):
            assert current is not None
            current.arguments += event.delta
        elif isinstance(event, ResponseFunctionCallArgumentsDoneEvent):
            assert current is not None
            assert current.arguments == event.arguments
            calls.append(current)
        elif isinstance(event, ResponseCompletedEvent):
            used = event.response.usage.output_tokens
        else:
            assert event.type not in ("response.failed", "response.incomplete", "error"), event
    assert used > 0
    return answer, calls


@row("openai: set up")
@verified
async def _() -> None:
    listed = await client_of(URL).with_options(timeout=10.0).models.list()
    assert CHAT in [one.id for one in listed.data]


@row("openai: a conversation")
@verified
async def _() -> None:
    assert await by_openai("Hi.") == HELLO


@row("openai: the tools of the assistant, with web search and code interpreter")
@verified
async def _() -> None:
    assert await by_openai("What is the weather in Paris?", tools=True) == (
        "It is 18 degrees in Paris."
    )


@row("openai: an AI task with a structure")
@verified
async def _() -> None:
    schema = {
        **PERSON, "strict": True, "additionalProperties": False,
        "properties": {**PERSON["properties"], "note": {"type": ["string", "null"]}},
        "required": ["name", "age", "note"],
    }  # fmt: skip
    form = {"format": {"type": "json_schema", "name": "person", "schema": schema}}
    text = await by_openai("Say something about Ann.", URL, CHAT, text=form, limit=200)
    assert set(json.loads(text)) == {"name", "age", "note"}


@row("openai: the location for web searches")
@verified
async def _() -> None:
    """As the settings ask for the user's city."""
    place = {
        "type": "object", "required": ["city", "region"], "additionalProperties": False,
        "properties": {"city": {"type": "string"}, "region": {"type": "string"}},
    }  # fmt: skip
    name = "approximate_location"
    form = {"format": {"type": "json_schema", "name": name, "strict": False, "schema": place}}
    made = await client_of(URL).responses.create(
        model=CHAT, store=False, text=form, max_output_tokens=200,
        input=[{"role": "system", "content": "Where are the following coordinates located: "
                "(48.85, 2.35)?"}],
    )  # fmt: skip
    assert {"city", "region"} == set(json.loads(made.output_text))


if __name__ == "__main__":
    main()
