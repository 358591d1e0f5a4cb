"""LiteLLM's proxy: its OpenAI and Anthropic endpoints, with trinity as five of its providers."""

# packages: litellm[proxy]==1.108.7

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI
from rows import EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

START_SECONDS = 300.0
KEY = "sk-" + "k3Jq9vT2mX7wBzR5" * 2
CONFIG = f"""
model_list:
- {{model_name: openai, litellm_params: {{model: openai/{SCRIPTED}, api_base: {SCRIPTED_URL}/v1, api_key: none}}}}
- {{model_name: vllm, litellm_params: {{model: hosted_vllm/{SCRIPTED}, api_base: {SCRIPTED_URL}/v1}}}}
- {{model_name: ollama, litellm_params: {{model: ollama_chat/{SCRIPTED}, api_base: {SCRIPTED_URL}}}}}
- {{model_name: anthropic, litellm_params: {{model: anthropic/{SCRIPTED}, api_base: {SCRIPTED_URL}, api_key: none}}}}
- {{model_name: any/*, litellm_params: {{model: openai/*, api_base: {SCRIPTED_URL}/v1, api_key: none}}}}
- {{model_name: embedder, litellm_params: {{model: openai/{EMBEDDER}, api_base: {URL}/v1, api_key: none}}}}
general_settings: {{master_key: {KEY}}}
"""  # noqa: E501
NAMES = ("openai", "vllm", "ollama", "anthropic", f"any/{SCRIPTED}")
HELLO: Any = [{"role": "user", "content": "Say hello."}]
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]

with socket.create_server(("127.0.0.1", 0)) as listener:
    PORT = listener.getsockname()[1]
PROXY = f"http://127.0.0.1:{PORT}"
client = OpenAI(base_url=f"{PROXY}/v1", api_key=KEY, max_retries=0)


def start() -> subprocess.Popen[bytes]:
    """The proxy's process, once it answers."""
    folder = Path(tempfile.mkdtemp())
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "litellm"), "--config", "config.yaml",
               "--host", "127.0.0.1", "--port", str(PORT)]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    end = time.monotonic() + START_SECONDS
    while not answers():
        told = (folder / "log").read_text(errors="replace")[-1000:]
        assert process.poll() is None, told
        assert time.monotonic() < end, told
        time.sleep(1)
    return process


def answers() -> bool:
    try:
        return httpx.get(f"{PROXY}/health/liveliness", timeout=5).is_success
    except httpx.HTTPError:
        return False


def chat(name: str) -> None:
    answer = client.chat.completions.create(model=name, messages=HELLO)
    assert "Hello" in (answer.choices[0].message.content or "")
    assert answer.usage
    assert answer.usage.total_tokens


def stream(name: str) -> None:
    events = client.chat.completions.create(model=name, messages=HELLO, stream=True)
    parts = [event.choices[0].delta.content or "" for event in events if event.choices]
    assert "Hello" in "".join(parts)


def tools(name: str) -> None:
    answer = client.chat.completions.create(model=name, messages=QUESTION, tools=TOOLS)
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls or ()
    assert choice.finish_reason == "tool_calls"
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
    messages = [*QUESTION, choice.message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model=name, messages=messages, tools=TOOLS)
    assert answer.choices[0].message.content == "It is 18 degrees in Paris."


def responses(name: str) -> None:
    assert "Hello" in client.responses.create(model=name, input="Say hello.").output_text


def messages(name: str) -> None:
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    body = {"model": name, "max_tokens": 40, "messages": HELLO}
    found = httpx.post(f"{PROXY}/v1/messages", json=body, headers=headers, timeout=300).json()
    assert "Hello" in found["content"][0]["text"], found


for one in NAMES:
    for call in (chat, stream, tools, responses, messages):
        row(f"{one} {call.__name__}")(lambda one=one, call=call: call(one))


@row("embeddings")
def _() -> None:
    found = client.embeddings.create(model="embedder", input=["Hello", "Bye"])
    assert [len(one.embedding) for one in found.data] == [384, 384]


if __name__ == "__main__":
    proxy = start()
    try:
        main()
    finally:
        proxy.kill()
