"""Chainlit: apps that call the openai package and LangChain, asked through their page's socket."""

# packages: chainlit==2.12.0 langchain-openai==1.7.4 langchain==1.5.2 openai==3.57.0

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

# Apps, as the documents of Chainlit have them.
OPENAI = """
client = AsyncOpenAI(base_url=URL, api_key="none")
cl.instrument_openai()

@cl.on_message
async def on_message(message):
    answer = cl.Message(content="")
    stream = await client.chat.completions.create(
        model=MODEL, messages=cl.chat_context.to_openai(), stream=True, max_tokens=30
    )
    async for part in stream:
        if token := part.choices[0].delta.content or "":
            await answer.stream_token(token)
    await answer.update()
"""
TOOLS = """
client = AsyncOpenAI(base_url=URL, api_key="none")
cl.instrument_openai()

@cl.step(type="tool")
async def get_weather(city):
    return f"18 degrees in {city}"

@cl.on_message
async def on_message(message):
    messages = cl.chat_context.to_openai()
    made = await client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
    [call] = made.choices[0].message.tool_calls
    found = await get_weather(json.loads(call.function.arguments)["city"])
    result = {"role": "tool", "tool_call_id": call.id, "content": found}
    messages += [made.choices[0].message, result]
    made = await client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
    await cl.Message(content=made.choices[0].message.content).send()
"""
LANGCHAIN = """
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

model = ChatOpenAI(base_url=URL, api_key="none", model=MODEL, streaming=True, max_tokens=30)
prompt = ChatPromptTemplate([("system", "You are brief."), ("human", "{question}")])
chain = prompt | model | StrOutputParser()

@cl.on_message
async def on_message(message):
    answer = cl.Message(content="")
    config = {"callbacks": [cl.LangchainCallbackHandler()]}
    async for piece in chain.astream({"question": message.content}, config=config):
        await answer.stream_token(piece)
    await answer.send()
"""


@contextmanager
def app(source: str, url: str, model: str) -> Iterator[str]:
    """The URL of an app that ``chainlit run`` serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    head = f"""import json
import chainlit as cl
from openai import AsyncOpenAI

URL, MODEL, TOOL = {f"{url}/v1"!r}, {model!r}, {TOOL!r}
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "app.py").write_text(head + source, encoding="utf-8")
        command = [sys.executable, "-m", "chainlit", "run", "app.py", "-h", "--port", str(port)]
        log = Path(folder, "log")
        with log.open("wb") as output:
            variables = {**os.environ, "HOME": folder}
            served = subprocess.Popen(
                command, cwd=folder, env=variables, stdout=output, stderr=output
            )
        try:
            address, end = f"http://127.0.0.1:{port}", time.monotonic() + 300
            while True:
                try:
                    urllib.request.urlopen(f"{address}/project/translations", timeout=5).close()
                    break
                except OSError:
                    told = log.read_text(errors="replace")[-2000:]
                    assert served.poll() is None, told
                    assert time.monotonic() < end, told
                    time.sleep(0.2)
            yield address
        finally:
            served.kill()
            served.wait()


async def asked(address: str, *questions: str) -> list[list[dict[str, Any]]]:
    """The messages and steps that the page gets after each question, without the question."""
    import socketio

    client = socketio.AsyncClient(reconnection=False)
    seen: dict[str, dict[str, Any]] = {}
    ended = asyncio.Event()

    def step(told: dict[str, Any]) -> None:
        seen[told["id"]] = {**seen.get(told["id"], {}), **told}

    for name in ("new_message", "update_message", "stream_start"):
        client.on(name, step)
    client.on("task_end", lambda *_: ended.set())
    session = {"sessionId": "session", "clientType": "webapp", "userEnv": "{}"}
    await client.connect(
        address, auth=session, socketio_path="/ws/socket.io", transports=["websocket"]
    )
    try:
        await client.emit("connection_successful")
        await asyncio.wait_for(ended.wait(), 60)
        answers = []
        for question in questions:
            ended.clear()
            seen.clear()
            message = {
                "id": str(uuid.uuid4()), "name": "user", "type": "user_message",
                "output": question, "createdAt": "2026-01-01T00:00:00Z",
            }  # fmt: skip
            await client.emit("client_message", {"message": message, "fileReferences": []})
            await asyncio.wait_for(ended.wait(), 300)
            await asyncio.sleep(0.5)  # steps are sent by tasks of their own
            answers.append([one for one in seen.values() if one["type"] != "user_message"])
        return answers
    finally:
        await client.disconnect()


def text_of(answer: list[dict[str, Any]]) -> str:
    """The text that the page shows; raises for an error of the app."""
    wrong = [one["output"] for one in answer if one.get("isError")]
    assert not wrong, wrong
    return "".join(one["output"] for one in answer if one["type"] == "assistant_message")


@row("openai stream")
def openai_stream() -> None:
    with app(OPENAI, URL, CHAT) as address:
        first, second = asyncio.run(asked(address, "Say hello.", "And again?"))
    assert text_of(first)
    assert text_of(second)
    # Chainlit shows each call as a step, with the history that was sent.
    [step] = [one for one in second if one["type"] == "llm"]
    assert step["name"] == CHAT, step
    assert "Say hello." in str(step["input"]), step


@row("openai tools")
def openai_tools() -> None:
    with app(TOOLS, SCRIPTED_URL, SCRIPTED) as address:
        [answer] = asyncio.run(asked(address, "What is the weather in Paris?"))
    assert "18 degrees" in text_of(answer)
    assert "get_weather" in [one["name"] for one in answer]


@row("langchain stream")
def langchain_stream() -> None:
    with app(LANGCHAIN, URL, CHAT) as address:
        [answer] = asyncio.run(asked(address, "Say hello."))
    assert text_of(answer)
    assert "llm" in [one["type"] for one in answer], answer


@row("an unknown model")
def unknown_model() -> None:
    with app(OPENAI, URL, "no such") as address:
        [answer] = asyncio.run(asked(address, "Say hello."))
    assert any(one.get("isError") and "no such" in one["output"] for one in answer), answer


if __name__ == "__main__":
    main()
