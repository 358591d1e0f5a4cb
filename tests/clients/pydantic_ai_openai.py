"""pydantic-ai: agents by chat completions and by responses, its Ollama and vLLM providers."""

# packages: pydantic-ai-slim[openai]==2.62.0

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai import Agent, Embedder, NativeOutput, PromptedOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.vllm import VLLMProvider
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

QUESTION = "What is the weather in Paris?"
ANSWER = "It is 18 degrees in Paris."
KINDS: dict[str, Any] = {
    "openai chat": (OpenAIChatModel, OpenAIProvider),
    "openai responses": (OpenAIResponsesModel, OpenAIProvider),
    "ollama": (OllamaModel, OllamaProvider),
    "vllm": (OpenAIChatModel, VLLMProvider),
}


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def agent(kind: Any, *, scripted: bool = False, **more: Any) -> Agent[Any, Any]:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    model_class, provider = kind
    model = model_class(name, provider=provider(base_url=f"{url}/v1", api_key="none"))
    return Agent(model, model_settings={"max_tokens": 100}, **more)


def run_text(kind: Any) -> None:
    assert agent(kind, scripted=True).run_sync("Hi.").output == "Hello! How can I help you today?"


def run_stream(kind: Any) -> None:
    async def run() -> str:
        async with agent(kind, scripted=True).run_stream("Hi.") as found:
            return str(await found.get_output())

    assert asyncio.run(run()) == "Hello! How can I help you today?"


def tool_output(kind: Any) -> None:
    found = agent(kind, output_type=Person).run_sync("Invent a person.").output
    assert found.age in (30, 40)


def native_output(kind: Any) -> None:
    found = agent(kind, output_type=NativeOutput(Person)).run_sync("Invent a person.").output
    assert found.age in (30, 40)


def prompted_output(kind: Any) -> None:
    made = agent(kind, scripted=True, output_type=PromptedOutput(Person))
    assert made.run_sync("A Person called Ann as JSON, please.").output == Person(
        name="Ann", age=40
    )


def function_tool(kind: Any) -> None:
    made = agent(kind, scripted=True)

    @made.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"18 degrees in {city}"

    assert made.run_sync(QUESTION).output == ANSWER


def history(kind: Any) -> None:
    made = agent(kind, scripted=True)
    first = made.run_sync("Hi.")
    again = made.run_sync("Hi again.", message_history=first.all_messages())
    assert again.output == "Hello! How can I help you today?"


FEATURES = {
    "run text": run_text,
    "run_stream": run_stream,
    "output_type pydantic (tool output)": tool_output,
    "NativeOutput": native_output,
    "PromptedOutput": prompted_output,
    "function tool + output": function_tool,
    "message history": history,
}
for name, kind in KINDS.items():
    for feature, call in FEATURES.items():
        row(f"{name} {feature}")(lambda call=call, kind=kind: call(kind))


@row("Embedder openai")
def _() -> None:
    provider = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
    model = OpenAIEmbeddingModel(EMBEDDER, provider=provider)
    found = Embedder(model).embed_documents_sync(["one", "two"])
    assert [len(one) for one in found.embeddings] == [384, 384]


if __name__ == "__main__":
    main()
