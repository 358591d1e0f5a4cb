"""Images in requests of every API: the response is that of the embedded model."""

from __future__ import annotations

import base64
import io
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import numpy as np
import openai
import pytest
from PIL import Image
from starlette.testclient import TestClient

import trinity
from tests.images import small_vision_models as small
from tests.server.conftest import LIMIT, socket_server
from trinity.errors import InputError
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

QUESTION = "What is it?"
MOST = 12


def png(width: int = 90, height: int = 40) -> str:
    stream = io.BytesIO()
    small.image(width, height).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


IMAGE = png()
URL = f"data:image/png;base64,{IMAGE}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the vision model."""
    return small.write_directory("gemma3", tmp_path_factory.mktemp("vision") / "gemma3")


@pytest.fixture(scope="module")
def vision(folder: Path) -> Iterator[trinity.Model]:
    with trinity.load(folder, threads=1, batch_invariant=True) as model:
        yield model


@pytest.fixture(scope="module")
def vision_url(vision: trinity.Model) -> Iterator[str]:
    async def nothing() -> None:
        pass

    models = Models([Served("vision", "vision", lambda: vision, model=vision)])
    models.close = nothing  # type: ignore[method-assign]
    with socket_server(make_app(models, ServerOptions())) as url:
        yield url


@pytest.fixture(scope="module")
def expected(vision: trinity.Model) -> str:
    content = [
        {"type": "image", "image": base64.b64decode(IMAGE)},
        {"type": "text", "text": QUESTION},
    ]
    return vision.chat([{"role": "user", "content": content}], temperature=0, max_tokens=MOST).text


@contextmanager
def openai_client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="-", timeout=LIMIT) as client:
        yield client


def of_chat(url: str, stream: bool) -> str:
    parts: Any = [
        {"type": "image_url", "image_url": {"url": URL, "detail": "auto"}},
        {"type": "text", "text": QUESTION},
    ]
    with openai_client(url) as client:
        options: Any = {"model": "vision", "temperature": 0, "max_tokens": MOST}
        asked: Any = [{"role": "user", "content": parts}]
        if not stream:
            answer = client.chat.completions.create(messages=asked, **options)
            return str(answer.choices[0].message.content)
        chunks = client.chat.completions.create(messages=asked, stream=True, **options)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def of_responses(url: str, stream: bool) -> str:
    given: Any = [{"role": "user", "content": [
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": QUESTION},
    ]}]  # fmt: skip
    with openai_client(url) as client:
        options: Any = {"model": "vision", "temperature": 0, "max_output_tokens": MOST}
        if not stream:
            return client.responses.create(input=given, **options).output_text
        events = client.responses.create(input=given, stream=True, **options)
        return "".join(e.delta for e in events if e.type == "response.output_text.delta")


def of_messages(url: str, stream: bool) -> str:
    source: Any = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    content: Any = [{"type": "image", "source": source}, {"type": "text", "text": QUESTION}]
    options: Any = {"model": "vision", "max_tokens": MOST, "extra_body": {"temperature": 0},
                    "messages": [{"role": "user", "content": content}]}  # fmt: skip
    with anthropic.Anthropic(base_url=url, api_key="-", timeout=LIMIT) as client:
        if not stream:
            return client.messages.create(**options).content[0].text  # type: ignore[union-attr]
        with client.messages.stream(**options) as chunks:
            return "".join(chunks.text_stream)


def of_ollama_chat(url: str, stream: bool) -> str:
    message = {"role": "user", "content": QUESTION, "images": [IMAGE]}
    body = {"model": "vision", "messages": [message], "stream": stream,
            "options": {"temperature": 0, "num_predict": MOST}}  # fmt: skip
    lines = httpx.post(f"{url}/api/chat", json=body, timeout=LIMIT).text.splitlines()
    return "".join(httpx.Response(200, text=line).json()["message"]["content"] for line in lines)


def of_ollama_generate(url: str, stream: bool) -> str:
    body = {"model": "vision", "prompt": QUESTION, "images": [IMAGE], "stream": stream,
            "options": {"temperature": 0, "num_predict": MOST}}  # fmt: skip
    lines = httpx.post(f"{url}/api/generate", json=body, timeout=LIMIT).text.splitlines()
    return "".join(httpx.Response(200, text=line).json()["response"] for line in lines)


@pytest.mark.few(1)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "ask", [of_chat, of_responses, of_messages, of_ollama_chat, of_ollama_generate]
)
def test_every_api_gives_the_answer_of_the_embedded_model(
    ask: Callable[[str, bool], str], stream: bool, vision_url: str, expected: str
) -> None:
    assert ask(vision_url, stream) == expected


def chat(url: str, part: dict[str, Any]) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 1}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=LIMIT)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1/a.png", "not fetched"),
        ("http://169.254.169.254/latest", "not fetched"),
        ("file:///etc/passwd", "not fetched"),
        ("/etc/passwd", "damaged"),
        ("data:image/png;base64,aGVsbG8=", "image 0 is not an image"),
        ("data:image/png;base64,***", "base64 is damaged"),
        ("data:image/svg+xml,<svg/>", "SVG"),
        (URL[: len(URL) // 2], "damaged"),
        ("", "expected an image"),
        (None, "expected an image"),
    ],
)
def test_wrong_images_are_refused(vision_url: str, url: object, message: str) -> None:
    response = chat(vision_url, {"type": "image_url", "image_url": {"url": url}})
    assert response.status_code == 400, response.text
    assert message in response.json()["error"]["message"]


def endless() -> bytes:
    """An animation of 10,000 frames of one pixel."""
    frame = b"," + bytes((0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x4C, 1, 0))
    head = b"GIF89a" + bytes((1, 0, 1, 0, 0x80, 0, 0, 0, 0, 0, 255, 255, 255))
    return head + 10_000 * frame + b";"


def huge() -> bytes:
    """A PNG whose header says 60,000 x 60,000 pixels."""
    whole = bytearray(base64.b64decode(IMAGE))
    whole[16:24] = (60_000).to_bytes(4, "big") * 2
    whole[29:33] = zlib.crc32(whole[12:29]).to_bytes(4, "big")
    return bytes(whole)


WRONG = {
    "text": (b"a text named .png", "not an image"),
    "truncated": (base64.b64decode(IMAGE)[:3000], "damaged"),
    "huge": (huge(), "too many pixels"),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
    "frames": (endless(), "10000 frames; at most 1000 are read"),
}


def body_of(path: str, text: str) -> dict[str, Any]:
    """A request of an API with an image as base64."""
    url = f"data:image/png;base64,{text}"
    source = {"type": "base64", "media_type": "image/png", "data": text}
    parts: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"type": "image_url", "image_url": {"url": url}},
        "/v1/responses": {"type": "input_image", "image_url": url},
        "/v1/messages": {"type": "image", "source": source},
    }
    if path == "/api/generate":
        return {"model": "vision", "prompt": "?", "images": [text]}
    message = {"role": "user", "content": "?", "images": [text]}
    if path in parts:
        message = {"role": "user", "content": [parts[path]]}
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = {"model": "vision", "input" if path == "/v1/responses" else "messages": [message]}
    return body if path == "/api/chat" else body | {limit: 1}


@pytest.mark.few(2)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate"],
)
def test_every_api_refuses_wrong_images(
    path: str, kind: str, stream: bool, vision_url: str
) -> None:
    content, message = WRONG[kind]
    body = body_of(path, base64.b64encode(content).decode()) | {"stream": stream}
    response = httpx.post(vision_url + path, json=body, timeout=LIMIT)
    assert response.status_code == 400, response.text
    assert message in response.text
    assert "Traceback" not in response.text
    assert "0x" not in response.text


def test_images_of_a_folder(vision: trinity.Model, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(base64.b64decode(IMAGE))
    app = make_app(
        Models([Served("vision", "vision", lambda: vision, model=vision)]),
        ServerOptions(media_path=tmp_path),
    )
    client = TestClient(app, base_url="http://localhost")  # not entered, which would end the model
    for name, status in (("a.png", 200), (f"{tmp_path}/a.png", 200), ("../a.png", 400)):
        part = {"type": "image_url", "image_url": {"url": f"file://{name}"}}
        body = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 1}
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == status, response.text
    with pytest.raises(InputError, match="no such folder"):
        ServerOptions(media_path=tmp_path / "none")


@pytest.mark.full
def test_large_images_fit_if_the_model_reads_images(vision_url: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1500, 1400, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
    assert len(url) > 8 << 20
    assert chat(vision_url, {"type": "image_url", "image_url": url}).status_code == 200


def test_a_result_of_a_tool_may_be_an_image(vision_url: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
            {"type": "text", "text": "here"}, {"type": "image", "source": source}]}]},
    ]  # fmt: skip
    body = {"model": "vision", "max_tokens": 1, "messages": messages}
    response = httpx.post(f"{vision_url}/v1/messages", json=body, timeout=LIMIT)
    assert response.status_code == 200, response.text
    counted = httpx.post(f"{vision_url}/v1/messages/count_tokens", json=body, timeout=LIMIT)
    usage = response.json()["usage"]
    read = usage["input_tokens"] + (usage["cache_read_input_tokens"] or 0)
    assert counted.json()["input_tokens"] == read


def test_what_the_server_says_of_the_model(vision_url: str) -> None:
    def get(path: str) -> Any:
        return httpx.get(vision_url + path, timeout=LIMIT).json()

    assert get("/props")["modalities"] == {"vision": True, "audio": False, "video": False}
    assert get("/v1/models")["data"][0]["architecture"]["input_modalities"] == ["text", "image"]
    shown = httpx.post(f"{vision_url}/api/show", json={"model": "vision"}, timeout=LIMIT).json()
    assert "vision" in shown["capabilities"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": URL}}]}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": URL}]}]}),
        ("/v1/messages", {"model": "demo", "max_tokens": 1, "messages": [
            {"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "data": IMAGE}}]}]}),
        ("/api/chat", {"model": "demo", "messages": [
            {"role": "user", "content": "a", "images": [IMAGE]}]}),
        ("/api/generate", {"model": "demo", "prompt": "a", "images": [IMAGE]}),
    ],
)  # fmt: skip
def test_text_models_refuse_images(client: TestClient, path: str, body: dict[str, Any]) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 400, response.text
    assert "the model reads only text" in response.text


def completion(url: str, prompt: object, **more: object) -> httpx.Response:
    body = {"prompt": prompt, "n_predict": MOST, "temperature": 0, **more}
    return httpx.post(f"{url}/completion", json=body, timeout=LIMIT)


def test_llamas_completion_reads_images(vision: trinity.Model, vision_url: str) -> None:
    text = f"<bos>a <__media__> b {QUESTION}"
    prompt = {"prompt_string": text, "multimodal_data": [IMAGE]}
    answer = completion(vision_url, prompt).json()
    ids = vision.image_prompt(text, [base64.b64decode(IMAGE)], "<__media__>")
    assert len(ids.images) == 1  # type: ignore[attr-defined]
    assert ids[0] == 256
    expected = vision.generate(ids, temperature=0, max_tokens=MOST)
    assert answer["content"] == expected.text
    assert answer["tokens_evaluated"] == len(ids)
    several = completion(vision_url, [prompt, {"prompt_string": "a"}]).json()
    assert several[0]["content"] == answer["content"]
    streamed = completion(vision_url, prompt, stream=True).text
    assert streamed.count("data: ") > 1
    assert httpx.get(f"{vision_url}/props").json()["media_marker"] == "<__media__>"
    (listed,) = httpx.get(f"{vision_url}/v1/models").json()["models"]
    assert listed["capabilities"] == ["completion", "multimodal"]


@pytest.mark.parametrize(("prompt", "message"), [
    ({"prompt_string": "a", "multimodal_data": [IMAGE]}, "0 times, but there are 1 images"),
    ({"prompt_string": "<__media__>", "multimodal_data": ["*"]}, "base64 is damaged"),
    ({"prompt_string": "<__media__>", "multimodal_data": ["aGVsbG8="]}, "not an image"),
    ({"prompt_string": 2 * "<__media__>", "multimodal_data": [IMAGE]}, "2 times"),
    ({"prompt_string": "a", "multimodal_data": 65 * [IMAGE]}, "multimodal_data"),
])  # fmt: skip
def test_wrong_images_of_llamas_completion_are_refused(
    prompt: object, message: str, vision_url: str
) -> None:
    response = completion(vision_url, prompt)
    assert response.status_code == 400, response.text
    assert message in response.json()["error"]["message"]


def test_images_of_urls_are_fetched_if_the_server_may(
    vision: trinity.Model, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trinity.images import fetching

    asked: list[tuple[str, int]] = []

    def fetched(url: str, where: str, most: int, end: float) -> bytes:
        assert threading.current_thread().name.startswith("trinity-fetch")
        assert 0 < end - time.monotonic() <= fetching.SECONDS
        asked.append((url, most))
        return base64.b64decode(IMAGE)

    monkeypatch.setattr(fetching, "fetched", fetched)
    app = make_app(
        Models([Served("vision", "vision", lambda: vision, model=vision)]),
        ServerOptions(allow_image_urls=True),
    )
    client = TestClient(app, base_url="http://localhost")
    url = "https://images.test/a.png"
    part = {"type": "image_url", "image_url": {"url": url}}
    content = [part, {"type": "text", "text": QUESTION}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": MOST}
    answer = client.post("/v1/chat/completions", json={**body, "temperature": 0}).json()
    assert answer["choices"][0]["message"]["content"] == expected
    size = len(base64.b64decode(IMAGE))
    twice = {"messages": [{"role": "user", "content": [part, part]}], "max_tokens": 1}
    assert client.post("/v1/chat/completions", json=twice).status_code == 200
    assert [most for _, most in asked] == [32 << 20, 32 << 20, (32 << 20) - size]
    block = {"type": "image", "source": {"type": "url", "url": url}}
    counted = {"model": "vision", "messages": [{"role": "user", "content": [block]}]}
    assert client.post("/v1/messages/count_tokens", json=counted).json()["input_tokens"] > 16
    many = {"messages": [{"role": "user", "content": 17 * [part]}], "max_tokens": 1}
    refused = client.post("/v1/chat/completions", json=many)
    assert refused.status_code == 400
    assert "at most 16 images" in refused.json()["error"]["message"]


def test_private_addresses_are_not_fetched(vision: trinity.Model) -> None:
    app = make_app(
        Models([Served("vision", "vision", lambda: vision, model=vision)]),
        ServerOptions(allow_image_urls=True),
    )
    client = TestClient(app, base_url="http://localhost")
    for host in ("127.0.0.1", "169.254.169.254", "localhost", "[::1]", "10.0.0.1"):
        part = {"type": "image_url", "image_url": {"url": f"http://{host}/a.png"}}
        body = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 1}
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400
        assert "its address is not public" in response.json()["error"]["message"]
        assert "messages[0].content[0].image_url" in response.json()["error"]["message"]


def test_a_slots_images_are_saved_and_restored(
    vision: trinity.Model, folder: Path, tmp_path: Path
) -> None:
    models = Models([Served("vision", "vision", lambda: vision, model=vision)])
    app = make_app(models, ServerOptions(preload=False, slot_save_path=str(tmp_path)))
    client = TestClient(app, base_url="http://localhost")  # without the lifespan, which unloads

    def timed(slot: int, image: str) -> tuple[str, int, int]:
        prompt = {"prompt_string": "What is this: <__media__>\n", "multimodal_data": [image]}
        body = {"prompt": prompt, "temperature": 0, "n_predict": 4, "id_slot": slot}
        answer = client.post("/completion", json=body).json()
        return answer["content"], answer["timings"]["cache_n"], answer["timings"]["prompt_n"]

    def slot(number: int, action: str) -> dict[str, Any]:
        made = client.post(f"/slots/{number}?action={action}", json={"filename": "a.bin"})
        assert made.status_code == 200, made.text
        return dict(made.json())

    text, cached, computed = timed(1, IMAGE)
    assert cached == 0
    saved = slot(1, "save")
    slot(1, "erase")
    assert slot(0, "restore")["n_restored"] == saved["n_saved"]
    _, cached, _ = timed(0, png(64, 64))  # only the text before another image is the same
    assert cached < computed - 16
    slot(0, "restore")
    assert timed(0, IMAGE) == (text, computed - 1, 1)
    # The same model without its vision tower.
    with trinity.load(folder, threads=1, vision=False) as blind:
        assert not blind.reads_images
        models = Models([Served("vision", "vision", lambda: blind, model=blind)])
        app = make_app(models, ServerOptions(preload=False, slot_save_path=str(tmp_path)))
        client = TestClient(app, base_url="http://localhost")
        refused = client.post("/slots/0?action=restore", json={"filename": "a.bin"})
        assert refused.status_code == 400
        assert "Cannot restore media tokens without an mmproj" in refused.json()["error"]["message"]
        body = {"prompt": "The quick", "n_predict": 2, "id_slot": 0}
        assert client.post("/completion", json=body).json()["timings"]["cache_n"] == 0
