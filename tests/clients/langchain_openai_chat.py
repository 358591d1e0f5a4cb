"""langchain-openai: ChatOpenAI by chat completions and by responses, OpenAI, OpenAIEmbeddings."""

# packages: langchain-openai==1.7.4 langchain==1.5.2

from __future__ import annotations

import asyncio
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

LOOP = asyncio.new_event_loop()  # the package keeps its async client, which keeps its loop
QUESTION = "What is the weather in Paris?"


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


@tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def chat(responses: bool, **more: Any) -> ChatOpenAI:
    more = {"max_tokens": 40, **more}
    return ChatOpenAI(
        base_url=f"{URL}/v1", api_key="none", model=CHAT, use_responses_api=responses,
        max_retries=0, **more,
    )  # fmt: skip


def scripted(responses: bool) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{SCRIPTED_URL}/v1", api_key="none", model=SCRIPTED, use_responses_api=responses
    )


def invoke(responses: bool) -> None:
    assert chat(responses, max_tokens=8).invoke("Say hello.").text


def stream(responses: bool) -> None:
    assert "".join(one.text for one in chat(responses, max_tokens=8).stream("Say hello."))


def asynchronous(responses: bool) -> None:
    async def run() -> None:
        model = chat(responses, max_tokens=8)
        found = [one.text async for one in model.astream("Say hello.")]
        assert "".join(found)
        assert len(await model.abatch(["a", "b"])) == 2

    LOOP.run_until_complete(run())


def several(responses: bool) -> None:
    messages = [SystemMessage("Be short."), HumanMessage("Hi."), AIMessage("Hello."),
                HumanMessage("And?")]  # fmt: skip
    assert chat(responses, max_tokens=8).invoke(messages).text


def bound(responses: bool) -> None:
    chat(responses, max_tokens=8).bind_tools([get_weather]).invoke("Hi.")


def forced(responses: bool) -> None:
    answer = chat(responses).bind_tools([get_weather], tool_choice="any").invoke("Hi.")
    assert [one["args"]["city"] in ("Paris", "Rome") for one in answer.tool_calls] == [True]


def round_trip(responses: bool) -> None:
    model = scripted(responses).bind_tools([get_weather])
    first = model.invoke(QUESTION)
    (call,) = first.tool_calls
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    assert model.invoke([HumanMessage(QUESTION), first, result]).text == (
        "It is 18 degrees in Paris."
    )


def structured(method: str | None) -> Any:
    def run(responses: bool) -> None:
        more = {} if method is None else {"method": method}
        found = chat(responses).with_structured_output(Person, **more).invoke("Invent a person.")
        assert found.age in (30, 40)

    return run


def json_mode(responses: bool) -> None:
    made = scripted(responses).with_structured_output(Person, method="json_mode")
    assert made.invoke("A Person called Ann as JSON, please.") == Person(name="Ann", age=40)


def stop(responses: bool) -> None:
    chat(responses, max_tokens=8).invoke("Say hello.", stop=["x"], temperature=0.5)


def agent(responses: bool) -> None:
    made = create_agent(scripted(responses), [get_weather])
    found = made.invoke({"messages": [HumanMessage(QUESTION)]})
    assert found["messages"][-1].text == "It is 18 degrees in Paris."


def structured_agent(responses: bool) -> None:
    made = create_agent(
        scripted(responses), [get_weather], response_format=ProviderStrategy(Person)
    )
    found = made.invoke({"messages": [HumanMessage("A Person called Ann as JSON, please.")]})
    assert found["structured_response"] == Person(name="Ann", age=40)


FEATURES: dict[str, Any] = {
    "invoke": invoke, "stream": stream, "astream / abatch": asynchronous,
    "system+ai+human messages": several, "bind_tools auto": bound,
    "bind_tools tool_choice any": forced, "tool messages round trip": round_trip,
    "with_structured_output default": structured(None),
    "with_structured_output function_calling": structured("function_calling"),
    "with_structured_output json_schema": structured("json_schema"),
    "json mode": json_mode, "stop words, temperature per call": stop, "create_agent": agent,
    "create_agent response_format=ProviderStrategy + tools": structured_agent,
}  # fmt: skip
for responses, name in ((False, "ChatOpenAI"), (True, "use_responses_api")):
    for feature, run in FEATURES.items():
        row(f"{name} {feature}")(lambda run=run, responses=responses: run(responses))


@row("OpenAI (completions)")
def _() -> None:
    model = OpenAI(base_url=f"{URL}/v1", api_key="none", model=CHAT, max_tokens=8)
    assert model.invoke("Once upon a time")


@row("ChatOpenAI reasoning_effort, logprobs, n, seed, extra_body")
def _() -> None:
    model = chat(
        False, max_tokens=4, reasoning_effort="low", logprobs=True, n=2, seed=1,
        extra_body={"top_k": 5},
    )  # fmt: skip
    assert model.invoke("Hi.").response_metadata["logprobs"]["content"]


@row("OpenAIEmbeddings check_embedding_ctx_length=False")
def _() -> None:
    model = OpenAIEmbeddings(
        base_url=f"{URL}/v1", api_key="none", model=EMBEDDER, check_embedding_ctx_length=False
    )
    assert len(model.embed_documents(["a", "b"])[0]) == 384


if __name__ == "__main__":
    main()
