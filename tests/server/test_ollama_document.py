"""Every request of Ollama's docs/api.md and faq.mdx, sent as it is printed there.

Source: github.com/ollama/ollama, commit fb3076099687. The expected keys are those of
the printed answers; ``context`` and ``done_reason`` are also expected where the document's older
examples lack them. docs/serving_apis.md lists the differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import strict
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

NAMES = ("llama3.2", "llama3.1", "llama3.1:8b", "mistral", "codellama:code", "llava", "all-minilm",
         "llama3:13b")  # fmt: skip
SKY = "Why is the sky blue?"
FORM = {
    "type": "object",
    "properties": {"age": {"type": "integer"}, "available": {"type": "boolean"}},
    "required": ["age", "available"],
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a given city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city to get the weather for"}
            },
            "required": ["city"],
        },
    },
}
CURRENT_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather for a location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {
                    "type": "string",
                    "description": "The location to get the weather for, e.g. San Francisco, CA",
                },
                "format": {
                    "type": "string",
                    "description": "The format to return the weather in, e.g. 'celsius' or "
                    "'fahrenheit'",
                    "enum": ["celsius", "fahrenheit"],
                },
            },
            "required": ["location", "format"],
        },
    },
}
EVERY_OPTION = {
    "num_keep": 5, "seed": 42, "num_predict": 100, "draft_num_predict": 4, "top_k": 20,
    "top_p": 0.9, "min_p": 0.0, "typical_p": 0.7, "repeat_last_n": 33, "temperature": 0.8,
    "repeat_penalty": 1.2, "presence_penalty": 1.5, "frequency_penalty": 1.0,
    "penalize_newline": True, "stop": ["\n", "user:"], "numa": False, "num_ctx": 1024,
    "num_batch": 2, "num_gpu": 1, "main_gpu": 0, "use_mmap": True, "num_thread": 8,
}  # fmt: skip

FIGURES = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration",
           "eval_count", "eval_duration"}  # fmt: skip
DONE = {"model", "created_at", "done", "done_reason"}
PIECE = {"model", "created_at", "response", "done"}
WHOLE = DONE | {"response", "context"} | FIGURES
RAW = DONE | {"response"} | FIGURES
CHAT_PIECE = {"model", "created_at", "message", "done"}
CHAT_WHOLE = DONE | {"message"} | FIGURES
LOADED = DONE | {"response"}
CHAT_LOADED = DONE | {"message"}

USER = {"role": "user", "content": "why is the sky blue?"}
TOKYO = {"role": "user", "content": "what is the weather in tokyo?"}
HISTORY = [
    USER,
    {"role": "assistant", "content": "due to rayleigh scattering."},
    {"role": "user", "content": "how is that different than mie scattering?"},
]
TOOL_HISTORY = [
    {"role": "user", "content": "what is the weather in Toronto?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Toronto"}}}],
    },
    {"role": "tool", "content": "11 degrees celsius", "tool_name": "get_weather"},
]

# Path, body, keys of the answer or of a stream's last line, keys of a stream's other lines.
GENERATE: list[tuple[str, dict[str, Any], set[str], set[str] | None]] = [
    ("/api/generate", {"model": "llama3.2", "prompt": SKY}, WHOLE, PIECE),
    ("/api/generate", {"model": "llama3.2", "prompt": SKY, "stream": False}, WHOLE, None),
    (
        "/api/generate",
        {
            "model": "llama3.1:8b",
            "prompt": "Ollama is 22 years old and is busy saving the world. Respond using JSON",
            "stream": False, "format": FORM,
        },
        WHOLE, None,
    ),
    (
        "/api/generate",
        {
            "model": "llama3.2",
            "prompt": "What color is the sky at different times of the day? Respond using JSON",
            "format": "json", "stream": False,
        },
        WHOLE, None,
    ),
    (
        "/api/generate",
        {"model": "mistral", "prompt": "[INST] why is the sky blue? [/INST]", "raw": True,
         "stream": False},
        RAW, None,
    ),
    (
        "/api/generate", {"model": "mistral", "prompt": SKY, "options": {"seed": 123}}, WHOLE,
        PIECE,
    ),
    (
        "/api/generate",
        {"model": "llama3.2", "prompt": SKY, "stream": False, "options": EVERY_OPTION},
        WHOLE, None,
    ),
    ("/api/generate", {"model": "llama3.2"}, LOADED, None),
    # faq.mdx
    (
        "/api/generate", {"model": "llama3.2", "prompt": SKY, "options": {"num_ctx": 4096}}, WHOLE,
        PIECE,
    ),
    ("/api/generate", {"model": "llama3.2", "keep_alive": -1}, LOADED, None),
]  # fmt: skip
CHAT: list[tuple[str, dict[str, Any], set[str], set[str] | None]] = [
    ("/api/chat", {"model": "llama3.2", "messages": [USER]}, CHAT_WHOLE, CHAT_PIECE),
    (
        "/api/chat", {"model": "llama3.2", "messages": [TOKYO], "tools": [WEATHER], "stream": True},
        CHAT_WHOLE, CHAT_PIECE,
    ),
    ("/api/chat", {"model": "llama3.2", "messages": [USER], "stream": False}, CHAT_WHOLE, None),
    (
        "/api/chat",
        {"model": "llama3.2", "messages": [TOKYO], "tools": [WEATHER], "stream": False},
        CHAT_WHOLE, None,
    ),
    (
        "/api/chat",
        {
            "model": "llama3.1",
            "messages": [{"role": "user", "content": "Ollama is 22 years old and busy saving the "
                          "world. Return a JSON object with the age and availability."}],
            "stream": False, "format": FORM, "options": {"temperature": 0},
        },
        CHAT_WHOLE, None,
    ),
    ("/api/chat", {"model": "llama3.2", "messages": HISTORY}, CHAT_WHOLE, CHAT_PIECE),
    (
        "/api/chat",
        {"model": "llama3.2", "messages": TOOL_HISTORY, "stream": False, "tools": [WEATHER]},
        CHAT_WHOLE, None,
    ),
    (
        "/api/chat",
        {"model": "llama3.2", "messages": [{"role": "user", "content": "Hello!"}],
         "options": {"seed": 101, "temperature": 0}},
        CHAT_WHOLE, CHAT_PIECE,
    ),
    (
        "/api/chat",
        {"model": "llama3.2", "stream": False, "tools": [CURRENT_WEATHER], "messages": [
            {"role": "user", "content": "What is the weather today in Paris?"}]},
        CHAT_WHOLE, None,
    ),
    ("/api/chat", {"model": "llama3.2", "messages": []}, CHAT_LOADED, None),
    ("/api/chat", {"model": "mistral"}, CHAT_LOADED, None),  # faq.mdx
]  # fmt: skip
EMBED = {"model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"}
OTHERS: list[tuple[str, dict[str, Any], set[str], set[str] | None]] = [
    (
        "/api/show",
        {"model": "llava"},
        {"modelfile", "parameters", "template", "details", "model_info", "capabilities"},
        None,
    ),
    ("/api/pull", {"model": "llama3.2"}, {"status"}, {"status"}),
    ("/api/embed", {"model": "all-minilm", "input": SKY}, EMBED, None),
    ("/api/embed", {"model": "all-minilm", "input": [SKY, "Why is the grass green?"]}, EMBED, None),
    (
        "/api/embeddings",
        {"model": "all-minilm", "prompt": "Here is an article about llamas..."},
        {"embedding"},
        None,
    ),
]


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[TestClient]:
    """The demo model under the document's names, with short responses."""
    served = Served("demo", "demo.gguf", lambda: model, model=model, aliases=NAMES)
    models = Models([served])
    app = make_app(models, ServerOptions(preload=False), defaults={"max_tokens": 16})
    client = TestClient(app, base_url="http://localhost")  # without the lifespan, which unloads
    yield client
    client.close()


@pytest.mark.parametrize(("path", "body", "last", "others"), [*GENERATE, *CHAT, *OTHERS])
def test_a_request_of_the_document(
    client: TestClient, path: str, body: dict[str, Any], last: set[str], others: set[str] | None
) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    if others is None:
        (found,) = [strict(response.text)]
    else:
        *pieces, found = [strict(line) for line in response.text.splitlines()]
        assert pieces
        assert all(others <= one.keys() for one in pieces)
    assert last <= found.keys()
    if "done" in last:
        assert found["done"] is True
        assert found["model"] == body["model"]
    if "message" in last:
        assert {"role", "content"} <= found["message"].keys()
    if body.get("format") == FORM and found["done_reason"] == "stop":
        assert strict(found.get("response") or found["message"]["content"]).keys() == {
            "age",
            "available",
        }


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/api/tags", {"name", "model", "modified_at", "size", "digest", "details"}),
        ("/api/ps", {"name", "model", "size", "digest", "details", "expires_at", "size_vram"}),
    ],
)
def test_lists_of_models(client: TestClient, path: str, keys: set[str]) -> None:
    (found,) = strict(client.get(path).text)["models"]
    assert keys <= found.keys()
    details = {"parent_model", "format", "family", "families", "parameter_size",
               "quantization_level"}  # fmt: skip
    assert details <= found["details"].keys()


def test_version(client: TestClient) -> None:
    assert strict(client.get("/api/version").text).keys() == {"version"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        # No tokens for infilling, no images.
        ("POST", "/api/generate",
         {"model": "codellama:code", "prompt": "def compute_gcd(a, b):",
          "suffix": "    return result", "options": {"temperature": 0}, "stream": False}, 400),
        ("POST", "/api/generate",
         {"model": "llava", "prompt": "What is in this picture?", "stream": False,
          "images": ["iVBORw0KGgo="]}, 400),
        ("POST", "/api/chat",
         {"model": "llava", "messages": [
             {"role": "user", "content": "what is in this image?", "images": ["iVBORw0KGgo="]}]},
         400),
        # Without --allow-create the server's models are those that it was started with.
        ("POST", "/api/create",
         {"model": "mario", "from": "llama3.2", "system": "You are Mario from Super Mario Bros."},
         501),
        ("POST", "/api/create",
         {"model": "llama3.2:quantized", "from": "llama3.2:3b-instruct-fp16",
          "quantize": "q4_K_M"}, 501),
        ("POST", "/api/create",
         {"model": "my-gguf-model", "files": {"test.gguf": "sha256:432f310a77f4650a"}}, 501),
        ("POST", "/api/create",
         {"model": "fred", "files": {"config.json": "sha256:dd3443e529fb2290"}}, 501),
        ("HEAD", "/api/blobs/sha256:29fdb92e57cf0827", None, 400),
        ("POST", "/api/blobs/sha256:29fdb92e57cf0827", None, 501),
        ("POST", "/api/copy", {"source": "llama3.2", "destination": "llama3-backup"}, 501),
        ("DELETE", "/api/delete", {"model": "llama3:13b"}, 501),
        ("POST", "/api/push", {"model": "mattw/pygmalion:latest"}, 404),
    ],
)  # fmt: skip
def test_differences(client: TestClient, method: str, path: str, body: Any, status: int) -> None:
    response = client.request(method, path, json=body)
    assert response.status_code == status
    if method != "HEAD":
        assert strict(response.text).keys() == {"error"}


def test_unloading(model: Model) -> None:
    """The last requests of both kinds in the document, to a model that nobody else uses."""
    models = Models([Served("llama3.2", "demo.gguf", lambda: model)])
    client = TestClient(make_app(models, ServerOptions(preload=False)), base_url="http://localhost")
    for path, body, keys in (
        ("/api/generate", {"model": "llama3.2", "keep_alive": 0}, LOADED),
        ("/api/chat", {"model": "llama3.2", "messages": [], "keep_alive": 0}, CHAT_LOADED),
    ):
        found = strict(client.post(path, json=body).text)
        assert keys <= found.keys()
        assert found["done_reason"] == "unload"
