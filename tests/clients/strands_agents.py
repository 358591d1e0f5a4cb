"""Strands Agents: its models for OpenAI's chat completions, Ollama's and Anthropic's APIs."""

# packages: strands-agents[openai,ollama,anthropic]==1.62.0

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.ollama import OllamaModel
from strands.models.openai import OpenAIModel

QUESTION = "What is the weather in Paris?"
ANSWER = "It is 18 degrees in Paris."
LIMIT = 256  # the client raises an error where an answer reaches it


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(kind: str, *, scripted: bool = True, **more: Any) -> Agent:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    model: Any
    if kind == "OllamaModel":
        model = OllamaModel(url, model_id=name, max_tokens=LIMIT)
    elif kind == "AnthropicModel":
        client = {"base_url": url, "api_key": "none"}
        model = AnthropicModel(client_args=client, model_id=name, max_tokens=LIMIT)
    else:
        client = {"base_url": f"{url}/v1", "api_key": "none"}
        model = OpenAIModel(client_args=client, model_id=name, params={"max_tokens": LIMIT})
    return Agent(model=model, callback_handler=None, **more)


def ask(kind: str) -> None:
    assert str(agent(kind, scripted=False)("Say hello.")).strip()


def system(kind: str) -> None:
    found = agent(kind, system_prompt="Be short.")("Hi.")
    assert found.stop_reason == "end_turn"


def tools(kind: str) -> None:
    assert str(agent(kind, tools=[get_weather])(QUESTION)).strip().endswith(ANSWER)


def two_turns(kind: str) -> None:
    asked = agent(kind, tools=[get_weather])
    asked(QUESTION)
    assert str(asked("Thank you.")).strip().endswith(ANSWER)


def structured(kind: str) -> None:
    found = agent(kind)(
        "Tom is 30 years old: which Person is that?", structured_output_model=Person
    )
    assert found.structured_output == Person(name="Tom", age=30)


def usage(kind: str) -> None:
    found = agent(kind)("Say hello.").metrics.accumulated_usage
    assert found["inputTokens"] > 0
    assert found["outputTokens"] > 0


for one in ("OpenAIModel", "OllamaModel", "AnthropicModel"):
    for call in (ask, system, tools, two_turns, structured, usage):
        row(f"{one} {call.__name__}")(lambda one=one, call=call: call(one))


if __name__ == "__main__":
    main()
