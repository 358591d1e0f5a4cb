"""Pydantic AI's model for Anthropic."""

# packages: pydantic-ai-slim[anthropic]==2.62.0

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

NOT_NATIVE = "the client allows this only for Anthropic's own models"


class Person(BaseModel):
    """A form of answers."""

    name: str
    age: int


def model(name: str = CHAT) -> AnthropicModel:
    """A model of one of the servers."""
    url = SCRIPTED_URL if name == SCRIPTED else URL
    return AnthropicModel(name, provider=AnthropicProvider(api_key="none", base_url=url))


def agent(name: str = CHAT, most: int = 12, **options: Any) -> Any:
    """An agent with an answer of some length."""
    return Agent(model(name), model_settings={"max_tokens": most}, **options)


@row("run text")
def _() -> None:
    assert agent().run_sync("Say hello.").output


@row("run_stream")
def _() -> None:
    async def run() -> str:
        async with agent().run_stream("Say hello.") as answer:
            return "".join([one async for one in answer.stream_text(delta=True)])

    assert asyncio.run(run())


@row("output_type pydantic (tool output)")
def _() -> None:
    found = agent(most=300, output_type=Person).run_sync("Tom is 30 years old.").output
    assert isinstance(found, Person)


@row("NativeOutput", excused=NOT_NATIVE)
def _() -> None:
    agent(most=300, output_type=NativeOutput(Person)).run_sync("Tom is 30 years old.")


@row("PromptedOutput")
def _() -> None:
    asked = agent(SCRIPTED, most=100, output_type=PromptedOutput(Person))
    found = asked.run_sync("A Person called Ann as JSON, please.").output
    assert found == Person(name="Ann", age=40)


@row("function tool + output")
def _() -> None:
    asked = agent(SCRIPTED, most=100)

    @asked.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return f"18 degrees in {city}"

    assert asked.run_sync("What is the weather in Paris?").output == "It is 18 degrees in Paris."


@row("message history")
def _() -> None:
    asked = agent()
    first = asked.run_sync("Say hello.")
    second = asked.run_sync("Say it again.", message_history=first.new_messages())
    assert second.output


if __name__ == "__main__":
    main()
