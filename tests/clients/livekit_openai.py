"""LiveKit's plugin for OpenAI's APIs: voice agents by chat completions and by responses, speech."""

# packages: livekit-plugins-openai==1.8.9

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import av
import numpy as np
from livekit import rtc
from livekit.agents import Agent, AgentSession, ChatContext, function_tool
from livekit.agents.llm import LLM
from livekit.agents.utils import http_context
from livekit.plugins import openai
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, SPEECH, URL, main, row

HELLO = "Hello! How can I help you today?"
PARIS = "What is the weather in Paris?"


class Person(BaseModel):
    name: str
    age: int


@function_tool
async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def asked(text: str) -> ChatContext:
    context = ChatContext.empty()
    context.add_message(role="system", content="You are a voice assistant.")
    context.add_message(role="user", content=text)
    return context


def verified(run: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def in_session() -> None:
        async with http_context.open():  # as in an agent's job
            await run()

    return lambda: asyncio.run(in_session())


MODELS: dict[str, Callable[..., LLM]] = {
    "chat completions": lambda url=SCRIPTED_URL, model=SCRIPTED, **more: openai.LLM(
        model=model, base_url=f"{url}/v1", api_key="none", **more
    ),
    "with_ollama": lambda url=SCRIPTED_URL, model=SCRIPTED, **more: openai.LLM.with_ollama(
        model=model, base_url=f"{url}/v1", **more
    ),
    "responses": lambda url=SCRIPTED_URL, model=SCRIPTED, **more: openai.responses.LLM(
        model=model, base_url=f"{url}/v1", api_key="none", **more
    ),
    "responses by HTTP": lambda url=SCRIPTED_URL, model=SCRIPTED, **more: openai.responses.LLM(
        model=model, base_url=f"{url}/v1", api_key="none", use_websocket=False, **more
    ),
}

for _name, _made in MODELS.items():

    @row(f"{_name}: a stream")
    @verified
    async def _(made: Callable[..., LLM] = _made) -> None:
        text, used = "", 0
        async with made().chat(chat_ctx=asked("Hi.")) as stream:
            async for part in stream:
                text += (part.delta and part.delta.content) or ""
                used = part.usage.completion_tokens if part.usage else used
        assert text == HELLO
        assert used > 0

    @row(f"{_name}: a tool call")
    @verified
    async def _(made: Callable[..., LLM] = _made) -> None:
        found = await made().chat(chat_ctx=asked(PARIS), tools=[get_weather]).collect()
        [call] = found.tool_calls
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})

    @row(f"{_name}: a required tool call, one at a time")
    @verified
    async def _(made: Callable[..., LLM] = _made) -> None:
        stream = made().chat(
            chat_ctx=asked(PARIS), tools=[get_weather], tool_choice="required",
            parallel_tool_calls=False,
        )  # fmt: skip
        [call] = (await stream.collect()).tool_calls
        assert json.loads(call.arguments) == {"city": "Paris"}

    @row(f"{_name}: an agent's session with a tool")
    @verified
    async def _(made: Callable[..., LLM] = _made) -> None:
        async with AgentSession(llm=made()) as session:
            await session.start(Agent(instructions="Help.", tools=[get_weather]))
            result = await session.run(user_input=PARIS)
            result.expect.next_event().is_function_call(name="get_weather")
            result.expect.next_event().is_function_call_output()
            last = result.expect.next_event().is_message(role="assistant")
            assert last.event().item.text_content == "It is 18 degrees in Paris."


@row("chat completions: a response format")
@verified
async def _() -> None:
    stream = MODELS["chat completions"]().chat(
        chat_ctx=asked("A Person called Ann as JSON, please."), response_format=Person
    )
    assert Person.model_validate_json((await stream.collect()).text) == Person(name="Ann", age=40)


@row("chat completions: options, a published model")
@verified
async def _() -> None:
    model = MODELS["chat completions"](
        URL, CHAT, temperature=0.5, top_p=0.9, max_completion_tokens=8, user="me",
        reasoning_effort="none", verbosity="low", service_tier="default", prompt_cache_key="k",
        safety_identifier="s", metadata={"a": "b"},
    )  # fmt: skip
    assert (await model.chat(chat_ctx=asked("Say hello.")).collect()).text


def spoken(name: str) -> Any:
    """The samples of a clip, as a microphone gives them."""
    with av.open(str(Path(os.environ["TRINITY_SPOKEN"]) / name)) as file:
        mono = av.AudioResampler("s16", "mono", 24_000)
        parts = [one.to_ndarray() for frame in file.decode(audio=0) for one in mono.resample(frame)]
    data = np.concatenate(parts, axis=1).tobytes()
    return rtc.AudioFrame(data, sample_rate=24_000, num_channels=1,
                          samples_per_channel=len(data) // 2)  # fmt: skip


for _name, _more in {
    "STT": {},
    "STT with options": {"prompt": "A coat.", "temperature": 0},
}.items():

    @row(_name)
    @verified
    async def _(more: dict[str, Any] = _more) -> None:
        stt = openai.STT(model=SPEECH, base_url=f"{URL}/v1", api_key="none", **more)
        found = await stt.recognize(spoken("en2.opus"))
        # With the prompt, the model hears "lean your coat".
        assert "your coat by the door" in found.alternatives[0].text, found


if __name__ == "__main__":
    main()
