"""AutoGen: its clients of OpenAI's and Ollama's APIs, and an agent with a tool."""

# packages: autogen-ext[openai,ollama]==0.7.5 autogen-agentchat==0.7.5

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily, UserMessage
from autogen_ext.models.ollama import OllamaChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

LOOP = asyncio.new_event_loop()
ABOUT: Any = {
    "vision": False, "function_calling": True, "json_output": True, "structured_output": True,
    "family": ModelFamily.UNKNOWN,
}  # fmt: skip


class Person(BaseModel):
    """A person."""

    name: str
    age: int


async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def made(kind: str, *, scripted: bool = True, **more: Any) -> Any:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    if kind == "ollama":
        return OllamaChatCompletionClient(model=name, host=url, model_info=ABOUT, **more)
    return OpenAIChatCompletionClient(
        model=name, base_url=f"{url}/v1", api_key="none", model_info=ABOUT, **more
    )


def said(text: str) -> list[Any]:
    return [UserMessage(content=text, source="user")]


async def create(kind: str) -> None:
    found = await made(kind, scripted=False).create(said("Say hello."))
    assert found.content
    assert found.usage.completion_tokens > 0


async def streamed(kind: str) -> None:
    pieces = [one async for one in made(kind).create_stream(said("Say hello."))]
    assert pieces[-1].content == "Hello! How can I help you today?"


async def structured(kind: str) -> None:
    found = await made(kind).create(
        said("A Person called Ann as JSON, please."), json_output=Person
    )
    assert Person.model_validate_json(found.content) == Person(name="Ann", age=40)


async def agent(kind: str) -> None:
    assistant = AssistantAgent(
        "assistant", model_client=made(kind), tools=[get_weather], reflect_on_tool_use=True
    )
    found = await assistant.run(task="What is the weather in Paris?")
    assert found.messages[-1].content == "It is 18 degrees in Paris."


async def agent_streamed(kind: str) -> None:
    assistant = AssistantAgent(
        "assistant", model_client=made(kind), tools=[get_weather], reflect_on_tool_use=True,
        model_client_stream=True,
    )  # fmt: skip
    found = [one async for one in assistant.run_stream(task="What is the weather in Paris?")]
    assert found[-1].messages[-1].content == "It is 18 degrees in Paris."


for one in ("openai", "ollama"):
    for call in (create, streamed, structured, agent, agent_streamed):
        row(f"{one} {call.__name__}")(lambda one=one, call=call: LOOP.run_until_complete(call(one)))


if __name__ == "__main__":
    main()
