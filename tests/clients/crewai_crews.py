"""crewai: its LLM class by OpenAI's API and by its Ollama and vLLM names, and crews with a tool."""

# packages: crewai==1.15.30

from __future__ import annotations

import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

PROVIDERS = ("openai", "hosted_vllm", "ollama", "ollama_chat")


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def model(provider: str, *, scripted: bool = True, **options: Any) -> LLM:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    base = url if provider.startswith("ollama") else f"{url}/v1"
    return LLM(model=f"{provider}/{name}", base_url=base, api_key="none", **options)


def kickoff(llm: LLM, asked: str, **options: Any) -> Any:
    agent = Agent(role="Clerk", goal="Answer", backstory="A clerk.", llm=llm, max_iter=4,
                  tools=options.pop("tools", []), verbose=False)  # fmt: skip
    task = Task(description=asked, expected_output="An answer", agent=agent, **options)
    return Crew(agents=[agent], tasks=[task]).kickoff()


def call(provider: str) -> None:
    assert "Hello" in model(provider).call("Say hello.")


def stream(provider: str) -> None:
    assert "Hello" in model(provider, stream=True).call("Say hello.")


def response_format(provider: str) -> None:
    found = model(provider, response_format=Person).call("A Person called Ann as JSON, please.")
    assert "Ann" in str(found)


def crew_with_a_tool(provider: str) -> None:
    found = kickoff(model(provider), "What is the weather in Paris?", tools=[get_weather])
    assert "It is 18 degrees in Paris." in found.raw


def output_pydantic(provider: str) -> None:
    llm = model(provider, scripted=False, max_tokens=60)
    assert kickoff(llm, "A Person called Ann, 40 years old.", output_pydantic=Person).raw


for one in PROVIDERS:
    for made in (call, stream, response_format, crew_with_a_tool, output_pydantic):
        row(f"{one}/ {made.__name__}")(lambda one=one, made=made: made(one))


if __name__ == "__main__":
    main()
