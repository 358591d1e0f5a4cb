"""LangChain's chat models and embeddings for Ollama and Anthropic."""

# packages: langchain-ollama==1.1.0 langchain-anthropic==1.7.10 langchain==1.5.2

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

QUESTION = "What is the weather in Paris?"
NO_TOOL_CHOICE = "Ollama's API has no `tool_choice`"
NO_NETWORK = "the client wants `transformers` to count tokens"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return "18 degrees"


def ollama(model: str = CHAT, **options: Any) -> Any:
    """A chat model by Ollama's API."""
    url = SCRIPTED_URL if model == SCRIPTED else URL
    return ChatOllama(model=model, base_url=url, num_predict=options.pop("most", 12), **options)


def anthropic(model: str = CHAT, **options: Any) -> Any:
    """A chat model by Anthropic's API."""
    url = SCRIPTED_URL if model == SCRIPTED else URL
    return ChatAnthropic(
        model_name=model, base_url=url, api_key="none", max_tokens=options.pop("most", 12),
        max_retries=0, **options,
    )  # fmt: skip


def invoke(make: Callable[..., Any]) -> None:
    answer = make().invoke("Say hello.")
    assert answer.content
    assert answer.usage_metadata["output_tokens"] <= 13


def stream(make: Callable[..., Any]) -> None:
    pieces = list(make().stream("Say hello."))
    assert len(pieces) > 1
    assert "".join(str(one.text) for one in pieces)


def in_asyncio(make: Callable[..., Any]) -> None:
    async def run() -> None:
        model = make()
        assert [one async for one in model.astream("Say hello.")]
        assert len(await model.abatch(["Say hello.", "Say goodbye."])) == 2

    asyncio.run(run())


def history(make: Callable[..., Any]) -> None:
    messages = [SystemMessage("Be short."), HumanMessage("Hi."), AIMessage("Hello."),
                HumanMessage("Say goodbye.")]  # fmt: skip
    assert make().invoke(messages).content


def tools_auto(make: Callable[..., Any]) -> None:
    answer = make(SCRIPTED, most=100).bind_tools([get_weather]).invoke(QUESTION)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})


def tools_any(make: Callable[..., Any]) -> None:
    model = make(most=300, temperature=0).bind_tools([get_weather], tool_choice="any")
    (call,) = model.invoke(QUESTION).tool_calls
    assert call["name"] == "get_weather"


def tool_messages(make: Callable[..., Any]) -> None:
    model = make(SCRIPTED, most=100).bind_tools([get_weather])
    called = model.invoke(QUESTION)
    result = ToolMessage("18 degrees", tool_call_id=called.tool_calls[0]["id"])
    answer = model.invoke([HumanMessage(QUESTION), called, result])
    assert answer.text == "It is 18 degrees in Paris."


def structured(make: Callable[..., Any], method: str | None = None) -> None:
    more = {} if method is None else {"method": method}
    model = make(most=300, temperature=0).with_structured_output(Person, **more)
    found = model.invoke("Tom is 30 years old. Answer as JSON with name and age.")
    assert isinstance(found, Person)


def per_call(make: Callable[..., Any]) -> None:
    answer = make(most=60).invoke("Say hello.", stop=["o"])
    assert "o" not in answer.text


def agent(make: Callable[..., Any]) -> None:
    found = create_agent(make(SCRIPTED, most=100), [get_weather])
    messages = found.invoke({"messages": [HumanMessage(QUESTION)]})["messages"]
    assert messages[-1].text == "It is 18 degrees in Paris."


CALLS: dict[str, Callable[..., None]] = {
    "invoke": invoke,
    "stream": stream,
    "astream / abatch": in_asyncio,
    "system+ai+human messages": history,
    "bind_tools auto": tools_auto,
    "tool messages round trip": tool_messages,
    "with_structured_output default": structured,
    "with_structured_output json_schema": partial(structured, method="json_schema"),
    "stop words, temperature per call": per_call,
    "langgraph create_react_agent / create_agent": agent,
}
for name, call in CALLS.items():
    row(f"langchain-ollama {name}")(partial(call, ollama))
    row(f"langchain-anthropic {name}")(partial(call, anthropic))
row("langchain-anthropic bind_tools tool_choice any")(partial(tools_any, anthropic))
row("langchain-ollama bind_tools tool_choice any", excused=NO_TOOL_CHOICE)(
    partial(tools_any, ollama)
)
row("langchain-anthropic with_structured_output function_calling")(
    partial(structured, anthropic, method="function_calling")
)


@row("langchain-ollama with_structured_output function_calling")
def _() -> None:
    model = ollama(SCRIPTED, most=100).with_structured_output(Person, method="function_calling")
    assert model.invoke("Tom is 30 years old: which Person is that?") == Person(name="Tom", age=30)


@row("langchain-ollama with_structured_output json_mode")
def _() -> None:
    model = ollama(SCRIPTED, most=100).with_structured_output(Person, method="json_mode")
    assert model.invoke("A Person called Ann as JSON, please.") == Person(name="Ann", age=40)


@row("langchain-ollama get_num_tokens_from_messages", excused=NO_NETWORK)
def _() -> None:
    assert ollama().get_num_tokens_from_messages([HumanMessage("Hi.")])


@row("langchain-anthropic get_num_tokens_from_messages")
def _() -> None:
    assert anthropic().get_num_tokens_from_messages([HumanMessage("Hi.")]) > 3


@row("langchain-anthropic thinking and effort")
def _() -> None:
    thinking = {"type": "adaptive"}
    assert anthropic(thinking=thinking, effort="low").invoke("Say hello.").usage_metadata


def embeddings(**options: Any) -> None:
    model = OllamaEmbeddings(model=EMBEDDER, base_url=URL, **options)
    first, second = model.embed_documents(["Hello", "War and peace"])
    assert len(first) == len(second) == 384
    assert max(abs(a - b) for a, b in zip(model.embed_query("Hello"), first, strict=True)) < 1e-5


row("OllamaEmbeddings")(embeddings)
row("OllamaEmbeddings num_ctx/num_thread")(partial(embeddings, num_ctx=2048, num_thread=2))


@row("OllamaLLM")
def _() -> None:
    assert OllamaLLM(model=CHAT, base_url=URL, num_predict=12).invoke("The capital of France is")


def chat_ollama(**options: Any) -> None:
    assert ollama(**options).invoke("Say hello.").content


row("ChatOllama num_ctx=8192")(partial(chat_ollama, num_ctx=8192))
row("ChatOllama num_thread / num_gpu")(partial(chat_ollama, num_thread=2, num_gpu=1))
row("ChatOllama reasoning=False / validate_model_on_init")(
    partial(chat_ollama, reasoning=False, validate_model_on_init=True)
)
row("ChatOllama keep_alive=0 (docs suggest to unload)")(partial(chat_ollama, keep_alive=0))


@row("ChatOllama format=json")
def _() -> None:
    assert ollama(most=400, format="json").invoke("A JSON object").text.lstrip().startswith("{")


if __name__ == "__main__":
    main()
