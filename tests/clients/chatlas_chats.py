"""chatlas: chats by its classes for Ollama, for OpenAI's two APIs and for Anthropic's."""

# packages: chatlas[anthropic]==0.23.0

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import chatlas
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def get_weather(city: str) -> str:
    """
    The weather of a city.

    Parameters
    ----------
    city
        Name of the city.
    """
    return f"18 degrees in {city}"


def made(kind: str, *, scripted: bool = False) -> Any:
    url, model = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    makers: dict[str, Callable[[], Any]] = {
        "ChatOllama": lambda: chatlas.ChatOllama(model=model, base_url=url),
        "ChatOpenAICompletions": lambda: chatlas.ChatOpenAICompletions(
            model=model, base_url=f"{url}/v1", api_key="none"
        ),
        "ChatOpenAI": lambda: chatlas.ChatOpenAI(model=model, base_url=f"{url}/v1", api_key="none"),
        "ChatAnthropic": lambda: chatlas.ChatAnthropic(
            model=model, api_key="none", max_tokens=60, kwargs={"base_url": url}
        ),
    }
    one = makers[kind]()
    one.set_model_params(max_tokens=100)
    return one


def chat(kind: str) -> None:
    one = made(kind)
    assert str(one.chat("Say hello.", echo="none"))
    assert str(one.chat("And again?", echo="none"))  # the history is sent, too
    assert one.get_turns()[-1].role == "assistant"


def stream(kind: str) -> None:
    assert "".join(made(kind).stream("Say hello."))


def stream_async(kind: str) -> None:
    async def ask() -> str:
        return "".join([piece async for piece in await made(kind).stream_async("Say hello.")])

    assert asyncio.run(ask())


def structured(kind: str) -> None:
    found = made(kind).chat_structured("Invent a person.", data_model=Person)
    assert isinstance(found, Person)


def tool(kind: str) -> None:
    one = made(kind, scripted=True)
    one.register_tool(get_weather)
    assert "18 degrees" in str(one.chat("What is the weather in Paris?", echo="none"))


for _kind in ("ChatOllama", "ChatOpenAICompletions", "ChatOpenAI", "ChatAnthropic"):
    for _name, _run in (
        ("chat", chat), ("stream", stream), ("stream_async", stream_async),
        ("chat_structured", structured), ("register_tool", tool),
    ):  # fmt: skip
        row(f"{_kind} {_name}")(lambda run=_run, kind=_kind: run(kind))

if __name__ == "__main__":
    main()
