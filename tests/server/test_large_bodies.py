"""Texts that are slow to tokenize: one at a time, beside small requests, or refused early."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.server.asgi import Asked, strict
from tests.server.conftest import LIMIT, is_idle
from tests.server.test_process import process, until_ready
from trinity.model import Model
from trinity.server import threads
from trinity.server.schemas import FEW_BYTES, FEW_VALUES, has_few_values
from trinity.server.threads import MOST_LARGE_OF_ONE

SMALL = {"content": "Prince"}
LARGE = {"content": "Prince " * 1000}
LONG = "Prince Andrew " * 20_000


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await test()

    asyncio.run(limited())


class Held:
    """Blocks the tokenization of large texts until a test allows it; ``begun`` counts them."""

    def __init__(self, model: Model, patch: pytest.MonkeyPatch) -> None:
        self.begun = self.most = 0
        self.may = threading.Event()
        at_once, tokenize = 0, model.tokenize

        def held(text: str, **options: Any) -> list[int]:
            nonlocal at_once
            if len(text) > 1000:
                self.begun += 1
                at_once += 1
                self.most = max(self.most, at_once)
                assert self.may.wait(LIMIT)
                at_once -= 1
            return tokenize(text, **options)

        patch.setattr(model, "tokenize", held)
        patch.setattr(threads, "LARGE", 1000)


async def until(found: Callable[[], bool]) -> None:
    while not found():
        await asyncio.sleep(0.002)


def test_large_ones_go_one_by_one_and_small_ones_pass(
    app: Starlette, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(model, monkeypatch)

    async def test() -> None:
        large = [Asked(app, "/tokenize", LARGE) for _ in range(8)]
        await until(lambda: held.begun == 1)
        for _ in range(20):
            assert (await Asked(app, "/tokenize", SMALL).whole()).json["tokens"]
        assert held.begun == 1
        held.may.set()
        for one in large:
            assert len((await one.whole()).json["tokens"]) > 500
        assert (held.begun, held.most) == (8, 1)

    run(test)


def test_no_more_wait_than_may_and_who_leaves_makes_room(
    app: Starlette, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(model, monkeypatch)

    async def test() -> None:
        waits = [Asked(app, "/tokenize", LARGE) for _ in range(1 + MOST_LARGE_OF_ONE)]
        await until(lambda: held.begun == 1)
        refused = await Asked(app, "/v1/completions", {"prompt": "x" * 2000}).whole()
        assert refused.status == 429
        assert refused.json["error"]["code"] == "queue_full"
        assert int(dict(refused.sent[0]["headers"])[b"retry-after"]) >= 1
        for one in waits[1:]:
            one.leave.set()
            await one.done
        again = Asked(app, "/tokenize", LARGE)
        await asyncio.sleep(0.01)
        held.may.set()
        assert (await again.whole()).status == (await waits[0].whole()).status == 200
        assert held.begun == 2  # those who left were never begun

    run(test)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
        ("/v1/completions", {"prompt": ["x", LONG]}),
        ("/v1/responses", {"input": LONG}),
        ("/v1/messages", {"messages": [{"role": "user", "content": LONG}], "max_tokens": 4}),
        (
            "/api/chat",
            {"model": "demo", "messages": [{"role": "user", "content": LONG}], "truncate": False},
        ),
        ("/api/embed", {"model": "demo", "input": LONG, "truncate": False}),
        ("/completion", {"prompt": LONG}),
    ],
)
def test_what_cannot_fit_is_refused_before_it_is_tokenized(
    client: TestClient, model: Model, path: str, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = model.tokenizer.encode

    def watched(text: str, **options: Any) -> list[int]:
        assert len(text) < 1000, "it is tokenized"
        return encode(text, **options)

    least = model.tokenizer.least_tokens(LONG)
    assert model.context_length < least <= len(encode(LONG))
    monkeypatch.setattr(model.tokenizer, "encode", watched)
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    told = re.search(r"at least (\d+) tokens, but the context holds (\d+)", answer.text)
    assert told is not None, answer.text
    assert int(told[1]) >= least
    assert int(told[2]) == model.context_length
    assert is_idle(model)


@pytest.mark.full
def test_tokens_are_counted_whatever_fits(client: TestClient, model: Model) -> None:
    count = len(model.tokenizer.encode(LONG, add_bos=False))
    assert len(client.post("/tokenize", json={"content": LONG}).json()["tokens"]) == count
    messages = [{"role": "user", "content": LONG}]
    for path in ("/v1/chat/completions/input_tokens", "/v1/messages/count_tokens"):
        found = client.post(path, json={"model": "demo", "messages": messages}).json()
        assert found["input_tokens"] >= count


@pytest.mark.full
def test_memory_is_bounded_and_health_is_there_while_large_texts_come() -> None:
    """Eight clients send the largest body at once, to endpoints that must tokenize all of it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    text = "Prince Andrew listened, and said nothing. " * 50_000  # 2.1 million bytes
    with process("--max-body", "3M") as (server, url):
        until_ready(url)

        def send() -> None:
            answer = httpx.post(f"{url}/tokenize", json={"content": text}, timeout=600)
            assert len(strict(answer.text)["tokens"]) > 250_000

        def together(count: int) -> None:
            clients = [threading.Thread(target=send) for _ in range(count)]
            for one in clients:
                one.start()
            while any(one.is_alive() for one in clients):
                began = time.monotonic()
                assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
                waits.append(time.monotonic() - began)
                time.sleep(0.02)

        waits: list[float] = []
        together(1)
        alone = peak(server.pid)
        together(8)
        # Bodies, texts and answers of eight, and not eight times what tokenizing takes.
        assert peak(server.pid) - alone < 200 << 20
        print(f"peak {alone >> 20} MB for one, {peak(server.pid) >> 20} MB for eight")
        print(f"health p99 {sorted(waits)[len(waits) * 99 // 100]:.3f} s of {len(waits)}")


def peak(pid: int) -> int:
    """Return the maximum memory that a process has used."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def test_bodies_with_few_values_are_decoded_in_the_event_loop() -> None:
    text = b"x" * FEW_BYTES
    assert has_few_values(b'{"prompt":"%b"}' % text[:-20])
    assert not has_few_values(b'{"prompt":"%b"}' % text)
    assert not has_few_values(b"[%b]" % b",".join([b"1"] * (FEW_VALUES + 1)))
