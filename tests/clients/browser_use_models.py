"""browser-use: its chat models for OpenAI's, Ollama's, Anthropic's and other APIs."""

# packages: browser-use==0.13.14

from __future__ import annotations

import asyncio
import os
from typing import Any

from pydantic import BaseModel
from rows import SCRIPTED, SCRIPTED_URL, main, row

os.environ["ANONYMIZED_TELEMETRY"] = "false"

from browser_use import ChatAnthropic, ChatOllama, ChatOpenAI
from browser_use.agent.views import AgentOutput
from browser_use.llm.deepseek.chat import ChatDeepSeek
from browser_use.llm.messages import SystemMessage, UserMessage
from browser_use.llm.openai.like import ChatOpenAILike
from browser_use.llm.openrouter.chat import ChatOpenRouter
from browser_use.tools.service import Tools


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def openai(kind: Any) -> Any:
    return lambda: kind(model=SCRIPTED, base_url=f"{SCRIPTED_URL}/v1", api_key="none")


MODELS = {
    "ChatOpenAI": openai(ChatOpenAI),
    "ChatOpenAILike": openai(ChatOpenAILike),
    "ChatOpenRouter": openai(ChatOpenRouter),
    "ChatDeepSeek": openai(ChatDeepSeek),
    "ChatOllama": lambda: ChatOllama(model=SCRIPTED, host=SCRIPTED_URL),
    "ChatAnthropic": lambda: ChatAnthropic(model=SCRIPTED, base_url=SCRIPTED_URL, api_key="none"),
}
BY_TOOLS = ("ChatDeepSeek", "ChatAnthropic")


def ask(name: str, text: str, **more: Any) -> Any:
    messages = [SystemMessage(content="Be short."), UserMessage(content=text)]
    return asyncio.run(MODELS[name]().ainvoke(messages, **more)).completion


def chat(name: str) -> None:
    assert ask(name, "Say hello.") == "Hello! How can I help you today?"


def structured(name: str) -> None:
    if name in BY_TOOLS:
        found = ask(name, "Tom is 30 years old: which Person is that?", output_format=Person)
        assert found == Person(name="Tom", age=30)
    else:
        found = ask(name, "A Person called Ann as JSON, please.", output_format=Person)
        assert found == Person(name="Ann", age=40)


def agent_output(name: str) -> None:
    """The schema that browser-use's agents ask for; it has ``min_items``."""
    form = AgentOutput.type_with_custom_actions(Tools().registry.create_action_model())
    found = ask(name, "Go to example.com.", output_format=form)
    assert found.action[0].model_dump(exclude_none=True)["navigate"]["url"] == "https://example.com"


for one in MODELS:
    for call in (chat, structured, agent_output):
        row(f"{one} {call.__name__}")(lambda one=one, call=call: call(one))


if __name__ == "__main__":
    main()
