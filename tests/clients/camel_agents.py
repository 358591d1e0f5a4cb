"""CAMEL: agents by its models for servers of OpenAI's API, with tools, streams and embeddings."""

# packages: camel-ai==0.2.90 mcp<2 litellm==1.110.2

from __future__ import annotations

import os
import sys
from typing import Any

# The package wants a vocabulary of OpenAI's, which LiteLLM contains.
os.environ["TIKTOKEN_CACHE_DIR"] = next(
    folder
    for path in sys.path
    if os.path.isdir(folder := os.path.join(path, "litellm/litellm_core_utils/tokenizers"))
)

from camel.agents import ChatAgent
from camel.embeddings import OpenAICompatibleEmbedding
from camel.models import BaseModelBackend, ModelFactory
from camel.types import ModelPlatformType
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

HELLO = "Hello! How can I help you today?"
PARIS = "What is the weather in Paris?"


class Person(BaseModel):
    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city (str): The city.
    """
    return f"18 degrees in {city}"


def made(
    platform: str, url: str = SCRIPTED_URL, model: str = SCRIPTED, **settings: Any
) -> BaseModelBackend:
    return ModelFactory.create(
        model_platform=ModelPlatformType[platform], model_type=model, url=f"{url}/v1",
        api_key="none", model_config_dict=settings or None,
    )  # fmt: skip


for _name in ("OPENAI_COMPATIBLE_MODEL", "OLLAMA", "VLLM", "LMSTUDIO", "SGLANG", "OPENAI"):

    @row(f"{_name}: chat")
    def _(name: str = _name) -> None:
        found = ChatAgent("Be short.", model=made(name)).step("Hi.")
        assert found.msgs[0].content == HELLO

    @row(f"{_name}: a tool")
    def _(name: str = _name) -> None:
        found = ChatAgent("Help.", model=made(name), tools=[get_weather]).step(PARIS)
        assert found.msgs[0].content == "It is 18 degrees in Paris."


for _name in ("OPENAI_COMPATIBLE_MODEL", "OLLAMA", "VLLM"):

    @row(f"{_name}: structured output")
    def _(name: str = _name) -> None:
        agent = ChatAgent("Help.", model=made(name))
        found = agent.step("A Person called Ann as JSON, please.", response_format=Person)
        assert found.msgs[0].parsed == Person(name="Ann", age=40)

    @row(f"{_name}: a stream")
    def _(name: str = _name) -> None:
        agent = ChatAgent("Help.", model=made(name, stream=True), stream_accumulate=True)
        [*_, last] = agent.step("Hi.")
        assert last.msgs[0].content == HELLO

    @row(f"{_name}: a stream with a tool")
    def _(name: str = _name) -> None:
        model = made(name, stream=True)
        agent = ChatAgent("Help.", model=model, tools=[get_weather], stream_accumulate=True)
        [*_, last] = agent.step(PARIS)
        assert "It is 18 degrees in Paris." in last.msgs[0].content


@row("a published model")
def _() -> None:
    model = made("OPENAI_COMPATIBLE_MODEL", URL, CHAT, max_tokens=8, temperature=0.0)
    assert ChatAgent("Be short.", model=model).step("Say hello.").msgs[0].content


@row("embeddings")
def _() -> None:
    embedder = OpenAICompatibleEmbedding(EMBEDDER, api_key="none", url=f"{URL}/v1")
    assert len(embedder.embed("Hello")) == 384


if __name__ == "__main__":
    main()
