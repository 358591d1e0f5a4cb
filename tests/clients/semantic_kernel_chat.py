"""Semantic Kernel: its chat completions and embeddings by OpenAI's and Ollama's APIs."""

# packages: semantic-kernel[ollama]==1.45.0

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.ollama import (
    OllamaChatCompletion,
    OllamaChatPromptExecutionSettings,
    OllamaTextEmbedding,
)
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
    OpenAITextEmbedding,
)
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

LOOP = asyncio.new_event_loop()
SETTINGS: dict[str, Any] = {
    "openai": OpenAIChatPromptExecutionSettings,
    "ollama": OllamaChatPromptExecutionSettings,
}


class Person(BaseModel):
    """A person."""

    name: str
    age: int


class Weather:
    """The plugin."""

    @kernel_function(name="get_weather", description="The weather of a city.")
    def get_weather(self, city: str) -> str:
        """The weather of a city."""
        return f"18 degrees in {city}"


def made(kind: str, *, scripted: bool = True) -> Any:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    if kind == "ollama":
        return OllamaChatCompletion(ai_model_id=name, host=url)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    return OpenAIChatCompletion(ai_model_id=name, async_client=client)


def asked(text: str) -> ChatHistory:
    history = ChatHistory(system_message="Be short.")
    history.add_user_message(text)
    return history


async def chat(kind: str) -> None:
    found = await made(kind, scripted=False).get_chat_message_content(
        asked("Say hello."), SETTINGS[kind]()
    )
    assert str(found)


async def streamed(kind: str) -> None:
    text = ""
    async for piece in made(kind).get_streaming_chat_message_content(
        asked("Say hello."), SETTINGS[kind]()
    ):
        text += str(piece)
    assert text == "Hello! How can I help you today?"


async def tools(kind: str) -> None:
    kernel = Kernel()
    kernel.add_plugin(Weather(), "sky")
    settings = SETTINGS[kind](function_choice_behavior=FunctionChoiceBehavior.Auto())
    history = asked("Say hello.")
    found = await made(kind).get_chat_message_content(history, settings, kernel=kernel)
    assert str(found) == "Hello! How can I help you today?"


async def structured(kind: str) -> None:
    settings = SETTINGS[kind]()
    if kind == "ollama":
        settings.format = Person.model_json_schema()
    else:
        settings.response_format = Person
    found = await made(kind).get_chat_message_content(
        asked("A Person called Ann as JSON, please."), settings
    )
    assert Person.model_validate_json(str(found)) == Person(name="Ann", age=40)


async def embeddings(kind: str) -> None:
    service: Any
    if kind == "ollama":
        service = OllamaTextEmbedding(ai_model_id=EMBEDDER, host=URL)
    else:
        client = AsyncOpenAI(base_url=f"{URL}/v1", api_key="none")
        service = OpenAITextEmbedding(ai_model_id=EMBEDDER, async_client=client)
    assert (await service.generate_embeddings(["a", "b"])).shape == (2, 384)


for one in SETTINGS:
    for call in (chat, streamed, tools, structured, embeddings):
        row(f"{one} {call.__name__}")(lambda one=one, call=call: LOOP.run_until_complete(call(one)))


if __name__ == "__main__":
    main()
