"""Open WebUI's own backend process, with trinity behind its Ollama and OpenAI connections.

The script speaks to Open WebUI as its page does; what reaches trinity is Open WebUI's.
"""

# packages: open-webui==0.12.4

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import wave
from pathlib import Path
from typing import Any

import av
import httpx
from rows import CHAT, EMBEDDER, SPEECH, URL, main, row

START_SECONDS = 300.0
FOLDER = Path(tempfile.mkdtemp())
HELLO = [{"role": "user", "content": "Say hello."}]
BY_OPENAI = f"openai.{CHAT}"  # the model by the other connection, which gets a prefix
CLIP = Path(__file__).parents[1] / "data" / "real" / "spoken" / "en2.opus"
SETTINGS = {
    "DATA_DIR": str(FOLDER / "data"),
    "WEBUI_SECRET_KEY": "key",
    "WEBUI_AUTH": "False",
    "OFFLINE_MODE": "True",
    "HF_HUB_OFFLINE": "1",
    "ENABLE_PERSISTENT_CONFIG": "False",
    "OLLAMA_BASE_URL": URL,
    "OPENAI_API_BASE_URL": f"{URL}/v1",
    "OPENAI_API_KEY": "none",
    "RAG_EMBEDDING_ENGINE": "ollama",
    "RAG_EMBEDDING_MODEL": EMBEDDER,
    "RAG_OLLAMA_BASE_URL": URL,
    "AUDIO_STT_ENGINE": "openai",
    "AUDIO_STT_OPENAI_API_BASE_URL": f"{URL}/v1",
    "AUDIO_STT_OPENAI_API_KEY": "none",
    "AUDIO_STT_MODEL": SPEECH,
}

with socket.create_server(("127.0.0.1", 0)) as listener:
    PORT = listener.getsockname()[1]
client = httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=300)


def start() -> subprocess.Popen[bytes]:
    """Open WebUI, once it answers and the client is signed in."""
    command = [str(Path(sys.executable).parent / "open-webui"), "serve"]
    with (FOLDER / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(PORT)],
            cwd=FOLDER,
            env={**os.environ, **SETTINGS},
            stdout=log,
            stderr=log,
        )
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            client.get("/health").raise_for_status()
            break
        except httpx.HTTPError:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise RuntimeError((FOLDER / "log").read_text(errors="replace")[-2000:]) from None
            time.sleep(0.5)
    signed = post("/api/v1/auths/signin", email="", password="")
    client.headers["Authorization"] = f"Bearer {signed['token']}"
    post("/openai/config/update", ENABLE_OPENAI_API=True, OPENAI_API_BASE_URLS=[f"{URL}/v1"],
         OPENAI_API_KEYS=["none"], OPENAI_API_CONFIGS={"0": {"prefix_id": "openai"}})  # fmt: skip
    return process


def checked(response: httpx.Response) -> Any:
    assert response.status_code == 200, f"{response.status_code}: {response.text[:500]}"
    return response.json()


def post(path: str, **body: Any) -> Any:
    return checked(client.post(path, json=body))


def streamed(path: str, **body: Any) -> list[Any]:
    """The events of a streamed answer, of OpenAI's form."""
    with client.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200, response.read()
        found = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert found[-1] == "[DONE]", found[-1]
    return [json.loads(line) for line in found[:-1]]


def text_of(events: list[Any]) -> str:
    deltas = [choice["delta"] for event in events for choice in event.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


def pulled(model: str) -> list[Any]:
    with client.stream("POST", "/ollama/api/pull", json={"model": model}) as response:
        return [json.loads(line) for line in response.iter_lines() if line]


def wav_of(path: Path) -> bytes:
    """The sound of a file in the form of the page's recorder."""
    out = io.BytesIO()
    with av.open(str(path)) as clip, wave.open(out, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        resampler = av.AudioResampler("s16", "mono", 16000)
        for frame in clip.decode(audio=0):
            for part in resampler.resample(frame):
                file.writeframes(part.to_ndarray().tobytes())
    return out.getvalue()


@row("start, both connections, model list, verify buttons")
def _() -> None:
    names = [model["id"] for model in checked(client.get("/api/models"))["data"]]
    assert {CHAT, BY_OPENAI} <= set(names), names
    assert post("/ollama/verify", url=URL, key="")["version"]
    found = post("/openai/verify", url=f"{URL}/v1", key="none")
    assert CHAT in [model["id"] for model in found["data"]]


@row("chat by Ollama connection")
def _() -> None:
    events = streamed("/api/chat/completions", model=CHAT, messages=HELLO, max_tokens=12)
    assert text_of(events)
    assert any(event.get("usage") for event in events)


@row("chat by Ollama connection, whole answer")
def _() -> None:
    found = post("/api/chat/completions", model=CHAT, messages=HELLO, stream=False, max_tokens=12)
    assert found["choices"][0]["message"]["content"]
    assert found["usage"]["prompt_tokens"] > 5


@row("chat by OpenAI connection")
def _() -> None:
    events = streamed("/api/chat/completions", model=BY_OPENAI, messages=HELLO, max_tokens=12)
    assert text_of(events)


@row("first chat 'Say hello.' as the page sends it, with built-in tools, title, tags, follow-ups")
def _() -> None:
    asked, answered, session = (str(uuid.uuid4()) for _ in range(3))
    began = post(
        "/api/chat/completions", model=CHAT, messages=HELLO, stream=True, session_id=session,
        params={}, features={}, tool_ids=[], variables={}, id=answered, parent_id=None,
        user_message={"id": asked, "parentId": None, "childrenIds": [answered], "role": "user",
                      "content": HELLO[0]["content"], "models": [CHAT], "timestamp": 0},
        background_tasks={"title_generation": True, "tags_generation": True,
                          "follow_up_generation": True},
    )  # fmt: skip
    end = time.monotonic() + 280
    while checked(client.get(f"/api/tasks/chat/{began['chat_id']}"))["task_ids"]:
        assert time.monotonic() < end
        time.sleep(0.5)
    found = checked(client.get(f"/api/v1/chats/{began['chat_id']}"))["chat"]
    message = found["history"]["messages"][answered]
    assert not message.get("error"), message["error"]
    assert message["content"], message
    assert message["usage"]["prompt_tokens"] > 3000, message["usage"]
    assert found["title"]


@row("the advanced parameters of the page")
def _() -> None:
    params = {
        "temperature": 0.5, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "seed": 5,
        "frequency_penalty": 0.1, "presence_penalty": 0.1, "repeat_penalty": 1.1,
        "repeat_last_n": 32, "mirostat": 0, "tfs_z": 1, "num_ctx": 4096, "num_batch": 256,
        "num_keep": 8, "num_thread": 2, "num_gpu": 0, "use_mmap": True, "use_mlock": False,
        "keep_alive": "5m", "think": None, "stop": ["\n\n"], "max_tokens": 12,
    }  # fmt: skip
    for model in (CHAT, BY_OPENAI):
        found = post(
            "/api/chat/completions", model=model, messages=HELLO, stream=False, params=params,
            **{key: params[key] for key in ("temperature", "top_p", "max_tokens", "stop", "seed")},
        )  # fmt: skip
        assert found["choices"][0]["message"]["content"], model


@row("tools of the client, both connections")
def _() -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}},
                "required": ["city"],
            },
        },
    }
    ask = [{"role": "user", "content": "How is the weather in Paris? Use the tool."}]
    for model in (CHAT, BY_OPENAI):
        found = post(
            "/api/chat/completions", model=model, messages=ask, stream=False, tools=[tool],
            temperature=0, max_tokens=60,
        )  # fmt: skip
        message = found["choices"][0]["message"]
        calls = message.get("tool_calls") or ()
        assert calls or message["content"], model
        assert all(json.loads(call["function"]["arguments"]) is not None for call in calls)


@row("title, tags, follow-ups, queries, emoji")
def _() -> None:
    history = [*HELLO, {"role": "assistant", "content": "Hello! How can I help you?"}]
    for task in ("title", "tags", "follow_up", "emoji"):
        body = {"model": CHAT, "messages": history, "prompt": "hello", "stream": False}
        found = post(f"/api/v1/tasks/{task}/completions", **body, chat_id="none")
        assert found["choices"][0]["message"]["content"], task
    body = {"model": CHAT, "messages": history, "type": "retrieval", "prompt": "hello"}
    assert post("/api/v1/tasks/queries/completions", **body)["choices"]


@row("RAG: a document is embedded, found and put into the prompt, embedding engine Ollama")
def _() -> None:
    text = "The harbour of Quillmouth opens at seven. " * 5 + "Ferries cost nine coins. " * 60
    sent = client.post("/api/v1/files/", files={"file": ("harbour.txt", text, "text/plain")})
    file_id = checked(sent)["id"]
    end = time.monotonic() + 120
    while True:
        found = checked(client.get(f"/api/v1/files/{file_id}/process/status"))["status"]
        if found not in ("pending", "processing"):
            break
        assert time.monotonic() < end
        time.sleep(0.3)
    assert found == "completed", found
    found = post(
        "/api/v1/retrieval/query/collection",
        collection_names=[f"file-{file_id}"],
        query="When does the harbour open?",
        k=1,
    )
    assert "Quillmouth" in json.dumps(found)
    answer = post(
        "/api/chat/completions",
        model=CHAT,
        stream=False,
        max_tokens=12,
        messages=[{"role": "user", "content": "When does the harbour open?"}],
        files=[{"type": "file", "id": file_id, "name": "harbour.txt"}],
    )
    assert answer["choices"][0]["message"]["content"]


@row("embeddings by the proxy")
def _() -> None:
    found = post("/api/embeddings", model=EMBEDDER, input=["one", "two"])
    assert [len(one["embedding"]) for one in found["data"]] == [384, 384]


@row("speech to text, engine OpenAI")
def _() -> None:
    recorded = {"file": ("recorded.wav", wav_of(CLIP), "audio/wav")}
    found = checked(client.post("/api/v1/audio/transcriptions", files=recorded))
    assert "leave your coat by the door" in found["text"], found


@row("Ollama's proxy: version, tags, ps, show, generate, chat, embed")
def _() -> None:
    assert checked(client.get("/ollama/api/version"))["version"]
    assert CHAT in json.dumps(checked(client.get("/ollama/api/tags")))
    assert checked(client.get("/ollama/api/ps")) is not None
    assert "llama" in json.dumps(post("/ollama/api/show", model=CHAT)["model_info"])
    body = {"model": CHAT, "stream": False, "options": {"num_predict": 8}}
    assert post("/ollama/api/generate", prompt="Hello", **body)["response"]
    assert post("/ollama/api/chat", messages=HELLO, **body)["message"]["content"]
    assert len(post("/ollama/api/embed", model=EMBEDDER, input=["one"])["embeddings"][0]) == 384


@row("OpenAI's proxy: completions, responses")
def _() -> None:
    found = post("/openai/chat/completions", model=BY_OPENAI, messages=HELLO, max_tokens=8)
    assert found["choices"][0]["message"]["content"]
    found = post("/openai/responses", model=BY_OPENAI, input="Say hello.", max_output_tokens=16)
    assert found["status"] in ("completed", "incomplete")


@row("Anthropic's messages, translated by Open WebUI")
def _() -> None:
    found = post("/api/v1/messages", model=CHAT, messages=HELLO, max_tokens=12)
    assert found["content"][0]["text"]


@row("unload (eject) button")
def _() -> None:
    assert post("/ollama/api/unload", model=CHAT)


@row("pull of a model that is served")
def _() -> None:
    assert pulled(CHAT)[-1] == {"status": "success"}


@row("pull of another model, from the hub")
def _() -> None:
    model = "hf.co/trinity/demo"
    assert pulled(model)[-1] == {"status": "success"}
    assert post("/ollama/api/show", model=model)["capabilities"]


if __name__ == "__main__":
    process = start()
    try:
        main()
    finally:
        process.terminate()
