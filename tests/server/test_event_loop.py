"""No request blocks the event loop: slow work runs in threads, in parts.

Callbacks are measured in processor time of the loop's thread, which other work does not disturb.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from tests.processor_time import slowness
from tests.server.asgi import Asked
from tests.server.conftest import LIMIT, MakeApp
from tests.server.held import Held
from trinity.server import service
from trinity.server.endpoint import Endpoint
from trinity.server.endpoints import health, openapi
from trinity.server.schemas import MOST_MEMBERS, MOST_TEXTS, MOST_VALUES, values_in
from trinity.server.transport import bodies

CHAT = "/v1/chat/completions"
SHORT = b'"messages":[{"role":"user","content":"x"}],"max_tokens":1'
BYTES = 3_900_000


def many(element: bytes) -> bytes:
    """Return a list with as many values as allowed."""
    values, members, texts = values_in(element)
    count = min(BYTES // len(element), (MOST_VALUES - 100) // (values + 1))
    if members:
        count = min(count, (MOST_MEMBERS - 100) // members)
    if texts:
        count = min(count, (MOST_TEXTS - 100) // texts)
    return b"[%b]" % b",".join([element] * count)


def chat(more: bytes) -> bytes:
    return b"{%b,%b}" % (SHORT, more)


NAMES = b",".join(b'"n%d":1' % i for i in range(65_000))
BODIES: dict[str, tuple[str, bytes]] = {
    "one text": (CHAT, b'{"messages":[{"role":"user","content":"%b"}]}' % (b"x" * BYTES)),
    "messages": (CHAT, b'{"messages":%b}' % many(b'{"role":"user","content":"x"}')),
    "parts": (CHAT, b'{"messages":[{"role":"user","content":%b}]}' % many(b'"x"')),
    "template variables": (CHAT, chat(b'"chat_template_kwargs":{"a":%b}' % many(b"[]"))),
    "unknown lists": (CHAT, chat(b'"unknown":%b' % many(b"[]"))),
    "unknown names": (CHAT, chat(NAMES)),
    "tools": (CHAT, chat(b'"tools":%b' % many(b'{"function":{"name":"x"}}'))),
    "functions": (CHAT, chat(b'"functions":%b' % many(b'{"name":"x"}'))),
    "allowed tools": (CHAT, chat(
        b'"tools":[{"function":{"name":"x"}}],"tool_choice":{"type":"allowed_tools","tools":%b}'
        % many(b'{"name":"x"}')
    )),
    "biases": (CHAT, chat(b'"logit_bias":{%b}' % NAMES)),
    "samplers": (CHAT, chat(b'"samplers":%b' % many(b'"top_k"'))),
    "adapters": ("/lora-adapters", many(b'{"id":0,"scale":1}')),
    "metadata": (CHAT, chat(b'"metadata":{%b}' % NAMES)),
    "token ids": ("/v1/embeddings", b'{"input":%b}' % many(b"1")),
    "texts": ("/v1/embeddings", b'{"input":%b}' % many(b'"x"')),
    "llama.cpp's texts": ("/embedding", b'{"content":%b}' % many(b'"x"')),
    "fields of the answer": (
        "/completion", b'{"prompt":"x","n_predict":1,"response_fields":%b}' % many(b'"a"')
    ),
    "a field of slashes": (
        "/completion", b'{"prompt":"x","n_predict":1,"response_fields":["%b"]}' % (b"/" * BYTES)
    ),
    "ids to a text": ("/detokenize", b'{"tokens":%b}' % many(b"100")),
    "items": ("/v1/responses", b'{"input":%b}' % many(b'{"role":"user","content":"x"}')),
    "references": (
        "/v1/responses", b'{"input":%b}' % many(b'{"type":"item_reference","id":"x"}')
    ),
    "documents": ("/v1/rerank", b'{"query":"x","documents":%b}' % many(b'"x"')),
    "names of streams": ("/v1/streams/lookup", b'{"conversation_ids":%b}' % many(b'"x"')),
    "too many values": (CHAT, b"[" * BYTES),
    "a long unknown name": (CHAT, b'{"%b":1, bad' % (b" - at `" * (BYTES // 8))),
    "a long wrong value": (CHAT, b'{"messages":[{"role":"%b"}]}' % (b" - at `" * (BYTES // 8))),
    "a grammar of lines": (
        CHAT, chat(b'"structured_outputs":{"grammar":"%b"}' % (b"\\n" * (BYTES // 2)))
    ),
    "log-probabilities": (
        "/completion", b'{"prompt":"x","n_predict":100,"n_probs":1024,"ignore_eos":true}'
    ),
    "probabilities in a stream": (
        "/completion", b'{"prompt":"x","n_predict":60,"n_cmpl":8,"n_probs":256,"ignore_eos":true,'
        b'"stream":true,"post_sampling_probs":true,"top_k":0,"top_p":1.0,"temperature":9}'
    ),
    "log-probabilities of answers": (CHAT, json.dumps({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 100, "n": 8,
        "logprobs": True, "top_logprobs": 20, "ignore_eos": True,
    }).encode()),
    "pieces of tokens": (
        "/tokenize", b'{"with_pieces":true,"content":"%b"}' % (b"a b " * 100_000)
    ),
}  # fmt: skip


async def asked(app: Starlette, path: str, body: bytes, **more: Any) -> Asked:
    async with asyncio.timeout(LIMIT):
        return await Asked(app, path, content=body, **more).whole()


@pytest.mark.few(3)
@pytest.mark.parametrize("name", BODIES)
def test_no_body_holds_the_loop(app: Starlette, held: Held, name: str) -> None:
    path, body = BODIES[name]

    async def test() -> None:
        await asked(app, CHAT, chat(b'"n":1'))
        held.clear()
        answer = await asked(app, path, body)
        assert answer.status in (200, 400, 413), answer.bytes[:500]
        assert len(answer.bytes) < 10_000 or answer.status == 200

    held.check(lambda: asyncio.run(test()))


RESPONSES: list[tuple[str, dict[str, Any]]] = [
    ("/completion", {"prompt": "x", "n_predict": 3, "n_probs": 50}),
    ("/completion", {"prompt": "x", "n_predict": 3, "n_probs": 200, "stream": True}),
    ("/v1/completions", {"prompt": [5, 6], "max_tokens": 1, "echo": True}),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stream": True,
            "verbose": True}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 1, "store": True}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 1, "store": True, "stream": True}),
    ("/v1/embeddings", {"input": "x"}),
    ("/v1/embeddings", {"input": "x", "encoding_format": "base64"}),
    ("/embedding", {"content": "x"}),
    ("/api/embed", {"model": "demo", "input": "x"}),
    ("/api/show", {"model": "demo"}),
    ("/api/pull", {"model": "demo"}),
]  # fmt: skip
DOCUMENTS = ("/v1/files", "/v1/batches", "/openapi.json", "/api/tags", "/api/ps")


def test_endpoints_work_in_the_threads_that_clients_share(
    make: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's own threads would be taken by the client with most requests."""
    app = make(state=str(tmp_path))

    async def not_shared(function: Any, *arguments: Any, **named: Any) -> None:
        raise AssertionError(f"{function} runs in a thread of asyncio's own")

    async def test() -> None:
        monkeypatch.setattr(asyncio, "to_thread", not_shared)
        for path, body in RESPONSES:
            answer = await asked(app, path, json.dumps(body).encode())
            assert answer.status == 200, (path, answer.bytes)
        for path in DOCUMENTS:
            answer = await asked(app, path, b"", method="GET")
            assert answer.status == 200, (path, answer.bytes)

    asyncio.run(test())


def test_threads_make_the_document_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 0.2 s of the interpreter's lock, which the event loop needs, too."""
    made = list[int]()

    def slow(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
        made.append(threading.get_ident())
        time.sleep(0.01)
        return {"paths": [one.path for one in endpoints]}

    monkeypatch.setattr(openapi, "document", slow)
    openapi._encoded.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(openapi.encoded, [health.ENDPOINTS] * 8))
    openapi._encoded.cache_clear()
    assert found == {b'{"paths":["/health","/v1/health"]}'}
    assert len(made) == 1


def test_a_large_form_is_collected_without_holding_the_loop(held: Held) -> None:
    part, count = b"x" * (64 << 10), 400

    async def test() -> None:
        left = count

        async def receive() -> dict[str, object]:
            nonlocal left
            await asyncio.sleep(0)
            left -= 1
            return {"type": "http.request", "body": part, "more_body": left > 0}

        length = b"%d" % (count * len(part))
        scope = {"headers": [(b"content-length", length)]}
        body = await bodies.read_body(scope, receive, 1 << 30, asyncio.to_thread, is_form=True)
        assert len(body) == count * len(part)
        assert body[-len(part) :] == part

    held.check(lambda: asyncio.run(test()))


@pytest.mark.parametrize("count", [1, 15, 16, 64])
def test_a_large_body_is_joined_in_a_thread(count: int) -> None:
    part, threads = b"x" * (64 << 10), list[object]()

    async def run(function: Any, chunks: list[bytes]) -> Any:
        threads.append(function)
        return await asyncio.to_thread(function, chunks)

    async def test() -> None:
        messages = [
            {"type": "http.request", "body": part, "more_body": number + 1 < count}
            for number in range(count)
        ]

        async def receive() -> dict[str, object]:
            return messages.pop(0)

        assert await bodies.read_body({"headers": []}, receive, 1 << 30, run) == part * count
        assert len(threads) == (count >= 16)

    asyncio.run(test())


@pytest.mark.full
def test_a_callback_that_blocks_the_loop_is_found(held: Held) -> None:
    """A planted defect: 100 ms of work in one callback."""

    def block() -> None:
        end = time.thread_time() + 0.1 * slowness()
        while time.thread_time() < end:
            pass

    async def test() -> None:
        asyncio.get_running_loop().call_soon(block)
        await asyncio.sleep(0.01)

    with pytest.raises(AssertionError, match="above its limit") as caught:
        held.check(lambda: asyncio.run(test()))
    assert "block" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"[1, 2, 3]", (3, 1, 0)), (b'{"a": [{}, "b,c"]}', (5, 4, 2)), (b'"[{,:"', (0, 0, 1)),
        (b'"\\"[" ,', (1, 0, 1)), (b'"\\\\" ,', (1, 0, 1)), (b'"\\\\\\"," ,', (1, 0, 1)),
        (b"", (0, 0, 0)), (b'"' + b"," * 70_000 + b'",[', (2, 1, 1)),
        (b'"' + b"\\" * (1 << 17) + b'",', (1, 0, 1)),
        (b'"' + b"x" * ((1 << 16) - 2) + b'\\",",', (1, 0, 1)),
    ],
)  # fmt: skip
def test_values_outside_of_texts_are_counted(text: bytes, count: tuple[int, int, int]) -> None:
    assert values_in(text) == count


def test_values_may_be_as_many_as_promised(app: Starlette) -> None:
    async def test() -> None:
        for count, status in ((MOST_VALUES - 3, 200), (MOST_VALUES + 1, 413)):
            body = b'{"tokens":[%b]}' % b",".join([b"1"] * count)
            answer = await asked(app, "/detokenize", body)
            assert answer.status == status
        assert answer.json["error"]["code"] == 413
        for count, status in ((MOST_MEMBERS - 9, 200), (MOST_MEMBERS - 8, 413)):
            unknown = b'"unknown":[%b]' % b",".join([b"[]"] * count)
            answer = await asked(app, CHAT, chat(unknown))
            assert answer.status == status
        assert answer.json["error"]["code"] == "too_many_values"
        for count, status in ((MOST_TEXTS - 7, 200), (MOST_TEXTS - 6, 413)):
            unknown = b'"unknown":[%b]' % b",".join([b'"x"'] * count)
            answer = await asked(app, CHAT, chat(unknown))
            assert answer.status == status
        assert answer.json["error"]["code"] == "too_many_values"

    asyncio.run(test())


def test_a_whole_answer_has_so_many_log_probabilities(
    app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_LOGPROBS", 100)
    body = {"prompt": "x", "n_predict": 20, "n_probs": 10, "ignore_eos": True}

    async def test() -> None:
        refused = await asked(app, "/completion", json.dumps(body).encode())
        assert refused.status == 400
        assert "more than 100 log-probabilities" in refused.json["error"]["message"]
        few = await asked(app, "/completion", json.dumps(body | {"n_probs": 5}).encode())
        assert len(few.json["completion_probabilities"]) == 20
        streamed = await asked(app, "/completion", json.dumps(body | {"stream": True}).encode())
        assert streamed.status == 200
        assert streamed.events[-1]["stop"] is True

    asyncio.run(test())
