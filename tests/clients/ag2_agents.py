"""ag2: agents by chat completions, by responses, and by Ollama's and Anthropic's APIs."""

# packages: ag2[openai,ollama,anthropic]==1.2.1

from __future__ import annotations

import asyncio
from typing import Any

from ag2 import Agent
from ag2.config import AnthropicConfig, OllamaConfig, OpenAIConfig, OpenAIResponsesConfig
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

LOOP = asyncio.new_event_loop()  # the clients' connections close late
KINDS: Any = (OpenAIConfig, OpenAIResponsesConfig, OllamaConfig, AnthropicConfig)
QUESTION = "What is the weather in Paris?"
ANSWER = "It is 18 degrees in Paris."


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(kind: Any, *, scripted: bool = True, streaming: bool = False, **more: Any) -> Agent:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    if kind is OllamaConfig:
        config = kind(model=name, host=url, streaming=streaming)
    else:
        path = "" if kind is AnthropicConfig else "/v1"
        config = kind(model=name, base_url=url + path, api_key="none", streaming=streaming)
    return Agent("assistant", config=config, **more)


async def ask(kind: Any) -> None:
    assert (await agent(kind, scripted=False).ask("Say hello.")).body


async def streamed(kind: Any) -> None:
    assert (await agent(kind, streaming=True).ask("Say hello.")).body.startswith("Hello")


async def tool(kind: Any) -> None:
    assert (await agent(kind, tools=[get_weather]).ask(QUESTION)).body == ANSWER


async def tool_streamed(kind: Any) -> None:
    asked = agent(kind, streaming=True, tools=[get_weather])
    assert (await asked.ask(QUESTION)).body == ANSWER


async def two_turns(kind: Any) -> None:
    reply = await agent(kind, tools=[get_weather]).ask(QUESTION)
    assert (await reply.ask("Thank you.")).body == ANSWER


async def structured(kind: Any) -> None:
    reply = await agent(kind, scripted=False, response_schema=Person).ask("Ann is 40 years old.")
    assert isinstance(await reply.content(), Person)


async def usage(kind: Any) -> None:
    found = await (await agent(kind).ask("Say hello.")).usage()
    assert found.total.prompt_tokens > 0
    assert found.total.completion_tokens > 0


for one in KINDS:
    for call in (ask, streamed, tool, tool_streamed, two_turns, structured, usage):
        row(f"{one.__name__} {call.__name__}")(
            lambda one=one, call=call: LOOP.run_until_complete(call(one))
        )


if __name__ == "__main__":
    main()
