"""agno: agents by seven models of OpenAI's, Ollama's and Anthropic's APIs, and its embedders."""

# packages: agno==3.1.10 openai==3.57.0 ollama==0.6.3 anthropic==2.14.0

from __future__ import annotations

from typing import Any

from agno.agent import Agent
from agno.knowledge.embedder.ollama import OllamaEmbedder
from agno.knowledge.embedder.openai import OpenAIEmbedder
from agno.models.anthropic import Claude
from agno.models.llama_cpp import LlamaCpp
from agno.models.lmstudio import LMStudio
from agno.models.ollama import Ollama
from agno.models.openai import OpenAIResponses
from agno.models.openai.like import OpenAILike
from agno.models.vllm import VLLM
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

MODELS: Any = (OpenAILike, OpenAIResponses, VLLM, LMStudio, LlamaCpp, Ollama, Claude)
QUESTION = "What is the weather in Paris?"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(kind: Any, *, scripted: bool = False, **options: Any) -> Agent:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    if kind is Ollama:
        model = Ollama(id=name, host=url)
    elif kind is Claude:
        model = Claude(id=name, api_key="none", client_params={"base_url": url})
    else:
        model = kind(id=name, api_key="none", base_url=f"{url}/v1")
    return Agent(model=model, telemetry=False, **options)


def run(kind: Any) -> None:
    assert agent(kind).run("Say hello.").content


def stream(kind: Any) -> None:
    events = agent(kind, scripted=True).run("Say hello.", stream=True)
    assert "Hello" in "".join(getattr(event, "content", None) or "" for event in events)


def tools(kind: Any) -> None:
    found = agent(kind, scripted=True, tools=[get_weather]).run(QUESTION)
    assert [call.tool_name for call in found.tools] == ["get_weather"]
    assert found.content == "It is 18 degrees in Paris."


def tools_streamed(kind: Any) -> None:
    asked = agent(kind, scripted=True, tools=[get_weather])
    events = list(asked.run(QUESTION, stream=True, stream_events=True))
    assert "ToolCallCompleted" in [event.event for event in events]
    assert events[-1].content == "It is 18 degrees in Paris."


def output_schema(kind: Any) -> None:
    found = agent(kind, output_schema=Person).run("A Person called Ann, 40 years old.")
    assert isinstance(found.content, Person)


def json_mode(kind: Any) -> None:
    asked = agent(kind, scripted=True, output_schema=Person, use_json_mode=True)
    assert asked.run("A Person called Ann as JSON, please.").content == Person(name="Ann", age=40)


for one in MODELS:
    for call in (run, stream, tools, tools_streamed, output_schema, json_mode):
        row(f"{one.__name__} {call.__name__}")(lambda one=one, call=call: call(one))


@row("OllamaEmbedder")
def _() -> None:
    embedder = OllamaEmbedder(id=EMBEDDER, host=URL, dimensions=384)
    assert len(embedder.get_embedding("Hello")) == 384


@row("OpenAIEmbedder")
def _() -> None:
    embedder = OpenAIEmbedder(id=EMBEDDER, base_url=f"{URL}/v1", api_key="none", dimensions=384)
    assert len(embedder.get_embedding("Hello")) == 384


if __name__ == "__main__":
    main()
