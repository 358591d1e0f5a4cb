"""langgraph: agents and graphs over models of OpenAI's, Ollama's and Anthropic's APIs."""

# packages: langgraph==1.2.24 langchain==1.5.2 langchain-openai==1.7.4
# packages: langchain-ollama==1.1.0 langchain-anthropic==1.7.10

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel
from rows import SCRIPTED, SCRIPTED_URL, main, row

LOOP = asyncio.new_event_loop()  # langchain-openai keeps its async client, which keeps its loop
ASKED: Any = {"messages": [("user", "What is the weather in Paris?")]}
ANSWER = "It is 18 degrees in Paris."


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def completions() -> BaseChatModel:
    return ChatOpenAI(base_url=f"{SCRIPTED_URL}/v1", api_key="none", model=SCRIPTED)


def responses() -> BaseChatModel:
    return ChatOpenAI(
        base_url=f"{SCRIPTED_URL}/v1", api_key="none", model=SCRIPTED, use_responses_api=True
    )


def ollama() -> BaseChatModel:
    return ChatOllama(base_url=SCRIPTED_URL, model=SCRIPTED)


def messages_api() -> BaseChatModel:
    return ChatAnthropic(base_url=SCRIPTED_URL, api_key="none", model_name=SCRIPTED)


def agent(model: BaseChatModel) -> None:
    found = create_agent(model, [get_weather]).invoke(ASKED)["messages"]
    assert [one.type for one in found] == ["human", "ai", "tool", "ai"]
    assert found[-1].text == ANSWER


def streamed(model: BaseChatModel) -> None:
    parts = create_agent(model, [get_weather]).stream(ASKED, stream_mode="messages")
    found = [part for part, told in parts if told["langgraph_node"] == "model"]
    assert "".join(one.text for one in found).endswith(ANSWER)
    assert len(found) > 3


def asynchronous(model: BaseChatModel) -> None:
    async def run() -> Any:
        return await create_agent(model, [get_weather]).ainvoke(ASKED)

    assert LOOP.run_until_complete(run())["messages"][-1].text == ANSWER


def remembered(model: BaseChatModel) -> None:
    """A second turn, whose history has the calls and their results."""
    asked = create_agent(model, [get_weather], checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "1"}}
    asked.invoke(ASKED, thread)
    found = asked.invoke({"messages": [("user", "Thank you.")]}, thread)["messages"]
    assert len(found) == 6
    assert found[-1].text == ANSWER


def structured(model: BaseChatModel) -> None:
    asked = create_agent(model, [], response_format=Person)
    text = "Tom is 30 years old: which Person is that?"
    found = asked.invoke({"messages": [("user", text)]})
    assert found["structured_response"] == Person(name="Tom", age=30)


def graph(model: BaseChatModel) -> None:
    def say(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    built = StateGraph(MessagesState).add_node("say", say).add_edge(START, "say").compile()
    found = built.invoke({"messages": [("user", "Say hello.")]})
    assert found["messages"][-1].text.startswith("Hello")


for make in (completions, responses, ollama, messages_api):
    for call in (agent, streamed, asynchronous, remembered, structured, graph):
        row(f"{make.__name__}: {call.__name__}")(lambda make=make, call=call: call(make()))


if __name__ == "__main__":
    main()
