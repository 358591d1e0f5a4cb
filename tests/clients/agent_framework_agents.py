"""Microsoft's Agent Framework: agents by OpenAI's two APIs, by Ollama's and by Anthropic's."""

# packages: agent-framework-core==1.23.0 agent-framework-openai==1.17.0
# packages: agent-framework-ollama==1.0.0b261022 agent-framework-anthropic==1.0.0b261022

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent, tool
from agent_framework.anthropic import AnthropicClient
from agent_framework.ollama import OllamaChatClient
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from pydantic import BaseModel
from rows import SCRIPTED, SCRIPTED_URL, main, row

HELLO = "Hello! How can I help you today?"
QUESTION = "What is the weather in Paris?"
ANSWER = "It is 18 degrees in Paris."


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool(approval_mode="never_require")
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def anthropic() -> AnthropicClient:
    client = AsyncAnthropic(base_url=SCRIPTED_URL, api_key="none")
    return AnthropicClient(model=SCRIPTED, anthropic_client=client)


def openai(kind: Any) -> Any:
    return lambda: kind(model=SCRIPTED, base_url=f"{SCRIPTED_URL}/v1", api_key="none")


CLIENTS = {
    "OpenAIChatCompletionClient": openai(OpenAIChatCompletionClient),
    "OpenAIChatClient (responses)": openai(OpenAIChatClient),
    "OllamaChatClient": lambda: OllamaChatClient(model=SCRIPTED, host=SCRIPTED_URL),
    "AnthropicClient": anthropic,
}


def agent(name: str, **more: Any) -> Agent:
    return Agent(client=CLIENTS[name](), instructions="Be short.", **more)


async def chat(name: str) -> None:
    assert (await agent(name).run("Say hello.")).text == HELLO


async def streamed(asked: Agent, text: str) -> str:
    """The whole text; updates with ``merge_mode`` "replace" repeat what came before."""
    stream = asked.run(text, stream=True)
    assert [update async for update in stream]
    return str((await stream.get_final_response()).text)


async def stream(name: str) -> None:
    assert await streamed(agent(name), "Say hello.") == HELLO


async def tools(name: str) -> None:
    assert (await agent(name, tools=[get_weather]).run(QUESTION)).text == ANSWER


async def tools_streamed(name: str) -> None:
    assert await streamed(agent(name, tools=[get_weather]), QUESTION) == ANSWER


async def two_turns(name: str) -> None:
    asked = agent(name, tools=[get_weather])
    session = asked.create_session()
    await asked.run(QUESTION, session=session)
    assert (await asked.run("Thank you.", session=session)).text == ANSWER


async def structured(name: str) -> None:
    found = await agent(name).run(
        "A Person called Ann as JSON, please.", options={"response_format": Person}
    )
    assert found.value == Person(name="Ann", age=40)


for one in CLIENTS:
    for call in (chat, stream, tools, tools_streamed, two_turns, structured):
        row(f"{one} {call.__name__}")(lambda one=one, call=call: asyncio.run(call(one)))


if __name__ == "__main__":
    main()
