"""llama-index: the OpenAI-compatible class, with chat completions and completions."""

# packages: llama-index-llms-openai-like==0.8.1

from __future__ import annotations

from typing import Any, Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

HI = [ChatMessage(role="user", content="Say hello.")]


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def model(*, scripted: bool = False, **more: Any) -> OpenAILike:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    more = {"is_chat_model": True, "max_tokens": 60, **more}
    return OpenAILike(model=name, api_base=f"{url}/v1", api_key="none", max_retries=0,
                      is_function_calling_model=True, **more)  # fmt: skip


@row("complete")
def _() -> None:
    assert model(max_tokens=6).complete("Say hello.").text


@row("chat")
def _() -> None:
    assert model(max_tokens=6).chat(HI).message.content


@row("stream_chat")
def _() -> None:
    assert "".join(one.delta or "" for one in model(max_tokens=6).stream_chat(HI))


@row("stream_complete")
def _() -> None:
    assert "".join(one.delta or "" for one in model(max_tokens=6).stream_complete("Say hello."))


@row("structured_predict / as_structured_llm")
def _() -> None:
    prompt = PromptTemplate("Invent a person.")
    assert model().structured_predict(Person, prompt).age in (30, 40)
    assert model().as_structured_llm(Person).chat(HI).raw.age in (30, 40)


TOOL = FunctionTool.from_defaults(get_weather)


@row("chat_with_tools")
def _() -> None:
    made = model(scripted=True)
    answer = made.chat_with_tools([TOOL], user_msg="What is the weather in Paris?")
    (call,) = made.get_tool_calls_from_response(answer)
    assert call.tool_kwargs == {"city": "Paris"}


@row("chat_with_tools tool_required")
def _() -> None:
    made = model(scripted=True)
    asked = "What is the weather in Paris?"
    answer = made.chat_with_tools([TOOL], user_msg=asked, tool_required=True)
    (call,) = made.get_tool_calls_from_response(answer)
    assert call.tool_kwargs == {"city": "Paris"}


@row("predict_and_call")
def _() -> None:
    found = model(scripted=True).predict_and_call([TOOL], "What is the weather in Paris?")
    assert "18 degrees in Paris" in str(found)


@row("is_chat_model=False (completions)")
def _() -> None:
    assert model(is_chat_model=False, max_tokens=6).complete("Once upon").text


if __name__ == "__main__":
    main()
