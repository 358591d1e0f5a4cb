"""The openai package against the scripted model: tool calls as a large model writes them."""

# packages: openai==3.57.0

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI
from rows import SCRIPTED, SCRIPTED_URL, main, row

client = OpenAI(base_url=f"{SCRIPTED_URL}/v1", api_key="none", max_retries=0)
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]


@row("a text that is given")
def _() -> None:
    answer = client.chat.completions.create(
        model=SCRIPTED, messages=[{"role": "user", "content": "Hi."}]
    )
    assert answer.choices[0].message.content == "Hello! How can I help you today?"


@row("a tool round trip")
def _() -> None:
    first = client.chat.completions.create(model=SCRIPTED, messages=QUESTION, tools=TOOLS)
    (call,) = first.choices[0].message.tool_calls
    assert first.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
    history = [*QUESTION, first.choices[0].message, result]
    second = client.chat.completions.create(model=SCRIPTED, messages=history, tools=TOOLS)
    assert second.choices[0].message.content == "It is 18 degrees in Paris."


if __name__ == "__main__":
    main()
