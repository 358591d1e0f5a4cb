"""openai-agents: agents by chat completions and by responses."""

# packages: openai-agents==0.24.0

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

set_tracing_disabled(True)
LOOP = asyncio.new_event_loop()  # a client keeps the loop of its first call
QUESTION = "What is the weather in Paris?"
ANSWER = "It is 18 degrees in Paris."


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(kind: Any, *, scripted: bool = True, **more: Any) -> Agent[Any]:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    settings = ModelSettings(max_tokens=100, **more.pop("settings", {}))
    model = kind(model=name, openai_client=client)
    return Agent(name="Helper", model=model, model_settings=settings, **more)


def run(made: Agent[Any], text: Any = QUESTION, **more: Any) -> Any:
    return LOOP.run_until_complete(Runner.run(made, text, **more))


def plain(kind: Any) -> None:
    assert run(agent(kind), "Hi.").final_output == "Hello! How can I help you today?"


def streamed(kind: Any) -> None:
    async def consume() -> str:
        found = Runner.run_streamed(agent(kind), "Hi.")
        async for _event in found.stream_events():
            pass
        return str(found.final_output)

    assert LOOP.run_until_complete(consume()) == "Hello! How can I help you today?"


def tool(kind: Any) -> None:
    assert run(agent(kind, tools=[get_weather])).final_output == ANSWER


def tool_required(kind: Any) -> None:
    made = agent(kind, tools=[get_weather], settings={"tool_choice": "required"})
    assert run(made).final_output == ANSWER


def output_type(kind: Any) -> None:
    found = run(agent(kind, scripted=False, output_type=Person), "Invent a person.").final_output
    assert found.age in (30, 40)


def handoff(kind: Any) -> None:
    other = agent(kind, handoff_description="Knows everything.")
    assert run(agent(kind, handoffs=[other]), "Hi.").final_output


def conversation(kind: Any) -> None:
    made = agent(kind, tools=[get_weather])
    first = run(made)
    again = [*first.to_input_list(), {"role": "user", "content": "Thanks."}]
    assert run(made, again).final_output == ANSWER


def output_and_tools(kind: Any) -> None:
    made = agent(kind, scripted=False, output_type=Person, tools=[get_weather])
    with suppress(MaxTurnsExceeded):  # a small model may call the tool again and again
        run(made, "Invent a person.", max_turns=2)


FEATURES = {
    "run": plain, "run_streamed": streamed, "function tool": tool,
    "function tool, tool_choice=required": tool_required, "output_type pydantic": output_type,
    "handoff": handoff, "conversation to_input_list": conversation,
    "output_type + tools": output_and_tools,
}  # fmt: skip
for name, kind in (("chat", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)):
    for feature, call in FEATURES.items():
        row(f"{name} {feature}")(lambda call=call, kind=kind: call(kind))


if __name__ == "__main__":
    main()
