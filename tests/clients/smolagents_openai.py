"""smolagents: its OpenAI and LiteLLM models, and a tool calling agent."""

# packages: smolagents[openai,litellm]==1.26.0

from __future__ import annotations

from typing import Any

from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row
from smolagents import CodeAgent, LiteLLMModel, OpenAIServerModel, ToolCallingAgent, tool

HI: Any = [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: the city
    """
    return f"18 degrees in {city}"


def model(*, scripted: bool = False) -> OpenAIServerModel:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    return OpenAIServerModel(name, api_base=f"{url}/v1", api_key="none", max_tokens=40)


@row("OpenAIServerModel generate")
def _() -> None:
    assert model().generate(HI).content


@row("OpenAIServerModel generate_stream")
def _() -> None:
    assert "".join(one.content or "" for one in model().generate_stream(HI))


@row("LiteLLMModel ollama_chat/")
def _() -> None:
    by_ollama = LiteLLMModel(f"ollama_chat/{CHAT}", api_base=URL, api_key="none", num_ctx=8192)
    assert by_ollama.generate(HI).content
    assert "".join(one.content or "" for one in by_ollama.generate_stream(HI))


@row("ToolCallingAgent (1 step)")
def _() -> None:
    agent = ToolCallingAgent([get_weather], model(scripted=True), max_steps=1, verbosity_level=0)
    agent.run("What is the weather in Paris?")
    calls = [
        call.name for step in agent.memory.steps for call in getattr(step, "tool_calls", None) or ()
    ]
    assert "get_weather" in calls, calls


@row("CodeAgent (1 step)")
def _() -> None:
    agent = CodeAgent([get_weather], model(scripted=True), max_steps=1, verbosity_level=0)
    assert agent.run("Say hello.") is not None


@row("CodeAgent use_structured_outputs_internally")
def _() -> None:
    agent = CodeAgent(
        [], model(), max_steps=1, verbosity_level=0, use_structured_outputs_internally=True
    )
    assert agent.run("Say hello.") is not None


if __name__ == "__main__":
    main()
