"""oterm, a terminal client of Ollama: its lists of models and its chats with tools."""

# packages: oterm==0.26.1

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Any

from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

os.environ.update(
    OLLAMA_URL=SCRIPTED_URL, OTERM_DATA_DIR=tempfile.mkdtemp(), OPENAI_API_KEY="none",
    OPENAI_BASE_URL=f"{SCRIPTED_URL}/v1",
)  # fmt: skip

from oterm.agent import get_agent
from oterm.config import envConfig
from oterm.providers import ollama
from oterm.providers.capabilities import ModelCapabilities, get_capabilities
from pydantic_ai import Tool

LOOP = asyncio.new_event_loop()  # the package keeps its HTTP client, which keeps its loop


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def streamed(text: str, **more: Any) -> str:
    async def run() -> str:
        async with get_agent(**more).run_stream(text) as found:
            return "".join([part async for part in found.stream_text(delta=True)])

    return LOOP.run_until_complete(run())


@row("models")
def _() -> None:
    envConfig.OLLAMA_URL = URL
    assert CHAT in [one.model for one in ollama.list_models().models]
    envConfig.OLLAMA_URL = SCRIPTED_URL


@row("capabilities")
def _() -> None:
    # The template of this model lists no tools, so the model is not said to have them.
    assert get_capabilities("ollama", SCRIPTED) == ModelCapabilities()


@row("parameters of a model")
def _() -> None:
    ollama.parse_modelfile_parameters(ollama.show_model(SCRIPTED).parameters or "")


@row("context length of a loaded model")
def _() -> None:
    assert ollama.running_context_length(SCRIPTED) == 131_072


for name in ("ollama", "openai-responses"):

    @row(f"{name}: a stream")
    def _(name: str = name) -> None:
        found = streamed("Say hello.", provider=name, model=SCRIPTED, parameters={"seed": 1})
        assert found == "Hello! How can I help you today?"

    @row(f"{name}: a system prompt")
    def _(name: str = name) -> None:
        asked = get_agent(provider=name, model=SCRIPTED, system="Be short.")
        assert LOOP.run_until_complete(asked.run("Say hello.")).output

    @row(f"{name}: a tool")
    def _(name: str = name) -> None:
        asked = get_agent(provider=name, model=SCRIPTED, tools=[Tool(get_weather)])
        found = LOOP.run_until_complete(asked.run("What is the weather in Paris?"))
        assert found.output == "It is 18 degrees in Paris."


if __name__ == "__main__":
    main()
