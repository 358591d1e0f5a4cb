"""haystack-ai: generators and embedders of OpenAI's API."""

# packages: haystack-ai==3.4.1

from __future__ import annotations

from typing import Any, Literal

from haystack import Document
from haystack.components.agents import Agent
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import (
    OpenAIChatGenerator,
    OpenAIResponsesChatGenerator,
)
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

KEY = Secret.from_token("none")


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def generator(*, scripted: bool = False, **more: Any) -> OpenAIChatGenerator:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    more = {"generation_kwargs": {"max_tokens": 60}, **more}
    return OpenAIChatGenerator(api_key=KEY, model=name, api_base_url=f"{url}/v1", **more)


@row("OpenAIChatGenerator")
def _() -> None:
    assert generator().run([ChatMessage.from_user("Say hello.")])["replies"][0].text


@row("OpenAIChatGenerator streaming_callback")
def _() -> None:
    pieces: list[str] = []
    made = generator(streaming_callback=lambda one: pieces.append(one.content))
    assert made.run([ChatMessage.from_user("Say hello.")])["replies"][0].text == "".join(pieces)


@row("OpenAIChatGenerator response_format pydantic")
def _() -> None:
    made = generator(generation_kwargs={"max_tokens": 60, "response_format": Person})
    (reply,) = made.run([ChatMessage.from_user("Invent a person.")])["replies"]
    assert Person.model_validate_json(reply.text)


@row("Agent with tool")
def _() -> None:
    made = Agent(chat_generator=generator(scripted=True), tools=[get_weather])
    made.warm_up()
    found = made.run(messages=[ChatMessage.from_user("What is the weather in Paris?")])
    assert found["messages"][-1].text == "It is 18 degrees in Paris."


@row("OpenAITextEmbedder / DocumentEmbedder")
def _() -> None:
    more: Any = {"api_key": KEY, "model": EMBEDDER, "api_base_url": f"{URL}/v1"}
    assert len(OpenAITextEmbedder(**more).run("Hi.")["embedding"]) == 384
    (found,) = OpenAIDocumentEmbedder(**more).run([Document(content="Hi.")])["documents"]
    assert len(found.embedding) == 384


@row("OpenAIResponsesChatGenerator")
def _() -> None:
    made = OpenAIResponsesChatGenerator(
        api_key=KEY, model=SCRIPTED, api_base_url=f"{SCRIPTED_URL}/v1"
    )
    (reply,) = made.run([ChatMessage.from_user("Hi.")])["replies"]
    assert reply.text == "Hello! How can I help you today?"


if __name__ == "__main__":
    main()
