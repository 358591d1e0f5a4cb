"""Langfuse's wrapper of the openai package, with tracing turned off."""

# packages: langfuse==5.0.4 openai==3.57.0

from __future__ import annotations

import asyncio
import os
from typing import Any

os.environ["LANGFUSE_TRACING_ENABLED"] = "false"

from langfuse.openai import AsyncOpenAI, OpenAI
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

CLIENT: Any = OpenAI(base_url=f"{URL}/v1", api_key="none")
LARGE: Any = OpenAI(base_url=f"{SCRIPTED_URL}/v1", api_key="none")
HELLO = [{"role": "user", "content": "Say hello."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@row("chat")
def chat() -> None:
    found = CLIENT.chat.completions.create(
        model=CHAT, messages=HELLO, max_tokens=16, name="test", metadata={"who": "me"}
    )
    assert found.choices[0].message.content


@row("chat streamed")
def chat_streamed() -> None:
    chunks = LARGE.chat.completions.create(
        model=SCRIPTED, messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Hello! How can I help you today?"


@row("chat asynchronous")
def chat_asynchronous() -> None:
    async def ask() -> Any:
        client: Any = AsyncOpenAI(base_url=f"{URL}/v1", api_key="none")
        return await client.chat.completions.create(model=CHAT, messages=HELLO, max_tokens=8)

    assert asyncio.run(ask()).usage.completion_tokens > 0


@row("tools")
def tools() -> None:
    found = LARGE.chat.completions.create(
        model=SCRIPTED,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[TOOL],
    )
    assert found.choices[0].message.tool_calls[0].function.name == "get_weather"


@row("responses")
def responses() -> None:
    found = LARGE.responses.create(model=SCRIPTED, input="Say hello.")
    assert found.output_text == "Hello! How can I help you today?"


@row("completion")
def completion() -> None:
    assert CLIENT.completions.create(model=CHAT, prompt="Once", max_tokens=8).choices[0].text


@row("embeddings")
def embeddings() -> None:
    found = CLIENT.embeddings.create(model=EMBEDDER, input=["a", "b"])
    assert [len(one.embedding) for one in found.data] == [384, 384]


if __name__ == "__main__":
    main()
