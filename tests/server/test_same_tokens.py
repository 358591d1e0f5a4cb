"""The hash of a response's tokens does not depend on other requests."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import Asked, events
from tests.tiny_models import write_tiny_model
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served

PATH = "/v1/completions"
WORDS = ("Prince", "Andrew", "was", "silent", "and", "the", "old", "count", "smiled", "at", "her")
BESIDE = 16


def hash_of(ids: Sequence[int]) -> str:
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()[:32]


def test_the_hash_is_of_the_answers_tokens(client: TestClient, model: Model) -> None:
    body = {"prompt": "Prince Andrew was", "max_tokens": 9, "temperature": 0.9, "seed": 3, "n": 2}
    answer = client.post(PATH, json=body).json()
    own = [
        model.generate(body["prompt"], max_tokens=9, temperature=0.9, seed=3 + i).token_ids
        for i in range(2)
    ]
    assert [one["token_hash"] for one in answer["choices"]] == [hash_of(ids) for ids in own]
    found: dict[int, str] = {}
    for event in events(client.post(PATH, json={**body, "stream": True}).content)[:-1]:
        for choice in event["choices"]:
            assert ("token_hash" in choice) == (choice["finish_reason"] is not None)
            if "token_hash" in choice:
                found[choice["index"]] = choice["token_hash"]
    assert found == dict(enumerate(hash_of(ids) for ids in own))


def test_a_chat_has_it_too(client: TestClient) -> None:
    body = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 5, "seed": 1}
    path = "/v1/chat/completions"
    whole = client.post(path, json=body).json()
    last = events(client.post(path, json={**body, "stream": True}).content)[-2]
    (choice,) = whole["choices"]
    assert choice["token_hash"] == last["choices"][0]["token_hash"]
    assert len(choice["token_hash"]) == 32


def last_of(path: str, content: bytes) -> dict[str, Any]:
    """Return the last event of a stream with token counts."""
    if path.startswith("/api"):
        found = [json.loads(line) for line in content.splitlines()]
    else:
        lines = [line[6:] for line in content.splitlines() if line.startswith(b"data: {")]
        found = [json.loads(line) for line in lines]
    last: dict[str, Any] = found[-2] if path == "/v1/messages" else found[-1]
    return last.get("response", last) if path == "/v1/responses" else last.get("delta", last)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "Who?", "n_predict": 5}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 5}),
        ("/v1/responses", {"input": "Who?", "max_output_tokens": 20}),
        ("/api/generate", {"prompt": "Who?", "options": {"num_predict": 5, "temperature": 0}}),
        ("/api/chat", {"messages": [{"role": "user", "content": "Who?"}],
                       "options": {"num_predict": 5, "temperature": 0}}),
    ],
)  # fmt: skip
def test_other_apis_have_it_too(client: TestClient, path: str, body: dict[str, Any]) -> None:
    body = {"model": "demo", **body}
    if not path.startswith("/api"):
        body["temperature"] = 0
    whole = client.post(path, json={**body, "stream": False})
    assert whole.status_code == 200, whole.text
    streamed = client.post(path, json={**body, "stream": True})
    assert len(whole.json()["token_hash"]) == 32
    assert last_of(path, streamed.content)["token_hash"] == whole.json()["token_hash"]


def test_processors_seconds_are_shared_out(client: TestClient) -> None:
    short = {"prompt": "A prompt of its own", "max_tokens": 1, "cache_prompt": False}
    long = {**short, "max_tokens": 60, "ignore_eos": True}
    few, many = (
        client.post(PATH, json=one).json()["usage"]["cpu_seconds"] for one in (short, long)
    )
    assert 0 < few < many < 60


@pytest.mark.full
@pytest.mark.parametrize("type_name", ["TQ2_0", "Q4_K"])
def test_load_cache_and_restart_change_no_token(type_name: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    ternary = type_name == "TQ2_0"
    write_tiny_model(path, arch="bitnet" if ternary else "llama", type=type_name,
                     hidden_size=256, context_length=512)  # fmt: skip
    bodies = list(requests(12))
    hashes = []
    for _ in range(2):  # the second as after a restart
        with trinity.load(path, threads=2, batch_invariant=not ternary) as model:
            app = make_app(Models([Served("tiny", str(path), lambda: None, model=model)]))  # type: ignore[arg-type,return-value]
            hashes.append(asyncio.run(one_by_one(app, bodies)))
            hashes.append(asyncio.run(one_by_one(app, bodies, cache_prompt=False)))
            hashes.append(asyncio.run(together(app, bodies)))
            hashes.append(asyncio.run(together(app, list(reversed(bodies))))[::-1])
    assert all(found == hashes[0] for found in hashes)
    assert len(set(hashes[0])) == len(bodies)


def requests(count: int) -> Any:
    """Return prompts of many lengths, several of which begin alike."""
    chance = random.Random(5)
    text = " ".join(chance.choice(WORDS) for _ in range(60))
    for seed in range(count):
        prompt = text[: chance.randrange(10, len(text))] + chance.choice(WORDS)
        yield {"prompt": prompt, "max_tokens": chance.randrange(8, 30), "seed": seed,
               "temperature": chance.choice((0, 0.8, 1.2)), "ignore_eos": True}  # fmt: skip


async def one_by_one(app: Any, bodies: Sequence[Any], **more: Any) -> list[str]:
    return [await asked(app, {**body, **more}) for body in bodies]


async def together(app: Any, bodies: Sequence[Any]) -> list[str]:
    places = asyncio.Semaphore(BESIDE)

    async def one(body: Any) -> str:
        async with places:
            return await asked(app, body)

    return await asyncio.gather(*map(one, bodies))


async def asked(app: Any, body: Any) -> str:
    answer = await Asked(app, PATH, body).whole()
    assert answer.status == 200, answer.bytes
    return str(answer.json["choices"][0]["token_hash"])
