"""Google's Agent Development Kit: agents by LiteLLM's providers for four APIs."""

# packages: google-adk==2.13.0 litellm==1.110.2

from __future__ import annotations

import asyncio
import os
from typing import Any

from rows import SCRIPTED, SCRIPTED_URL, main, row

os.environ |= {"OLLAMA_API_BASE": SCRIPTED_URL, "OPENAI_API_KEY": "none",
               "ANTHROPIC_API_KEY": "none"}  # fmt: skip

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel

HELLO = "Hello! How can I help you today?"
QUESTION = "What is the weather in Paris?"
ANSWER = "It is 18 degrees in Paris."


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(kind: str, **more: Any) -> LlmAgent:
    url = SCRIPTED_URL if kind in ("ollama_chat", "anthropic") else f"{SCRIPTED_URL}/v1"
    model = LiteLlm(model=f"{kind}/{SCRIPTED}", api_base=url)
    return LlmAgent(name="agent", model=model, instruction="Be short.", **more)


async def answers(asked: LlmAgent, *texts: str, stream: bool) -> list[str]:
    """The final texts of a session with one turn for each text."""
    runner = InMemoryRunner(agent=asked, app_name="rows")
    session = await runner.session_service.create_session(app_name="rows", user_id="user")
    mode = RunConfig(streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE)
    found = []
    for text in texts:
        said = ""
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in runner.run_async(
            user_id="user", session_id=session.id, new_message=message, run_config=mode
        ):
            assert not event.error_code, event.error_message
            if event.is_final_response() and not event.partial and event.content:
                said = "".join(part.text or "" for part in event.content.parts)
        found.append(said)
    return found


def ask(asked: LlmAgent, *texts: str, stream: bool = False) -> list[str]:
    return asyncio.run(answers(asked, *texts, stream=stream))


def chat(kind: str) -> None:
    assert ask(agent(kind), "Say hello.") == [HELLO]


def stream(kind: str) -> None:
    assert ask(agent(kind), "Say hello.", stream=True) == [HELLO]


def tools(kind: str) -> None:
    assert ask(agent(kind, tools=[get_weather]), QUESTION, "Thank you.") == [ANSWER, ANSWER]


def tools_streamed(kind: str) -> None:
    assert ask(agent(kind, tools=[get_weather]), QUESTION, stream=True) == [ANSWER]


def output_schema(kind: str) -> None:
    (found,) = ask(agent(kind, output_schema=Person), "A Person called Ann as JSON, please.")
    assert Person.model_validate_json(found) == Person(name="Ann", age=40)


for one in ("openai", "ollama_chat", "hosted_vllm", "anthropic"):
    for call in (chat, stream, tools, tools_streamed, output_schema):
        row(f"{one}/ {call.__name__}")(lambda one=one, call=call: call(one))


if __name__ == "__main__":
    main()
