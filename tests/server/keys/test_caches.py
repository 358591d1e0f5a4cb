"""The cache does not reveal another API key's prompts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.processor_time import TRIES
from tests.server.keys.attempts import COMPLETIONS
from tests.server.keys.conftest import Serve
from tests.server.keys.two_keys import Server
from trinity.model import Model
from trinity.runtime.interface import Rows

LETTERS = range(100, 106)
BEGINNING = list(range(20, 36))


def secret_of(seed: int) -> list[int]:
    return random.Random(seed).choices(LETTERS, k=8)


def stolen(server: Server, key: str, rows: list[int]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Guess, token by token, the prompt that key A sent, from the counts of cached tokens.

    The guess with the most cached tokens is taken as right. Each guess returns its counts of cached
    and computed tokens; ``rows`` are the rows that the engine computed.
    """
    found, told = list[int](), list[tuple[int, ...]]()
    for _ in secret_of(0):
        cached = {}
        for letter in LETTERS:
            before = len(rows)
            body = {"prompt": [*BEGINNING, *found, letter, 3], "n_predict": 1}
            _, answer = server.ask(key, "POST", "/completion", body)
            timings = answer["timings"]
            cached[letter] = timings["cache_n"]
            told.append((timings["cache_n"], timings["prompt_n"], *rows[before:]))
        found.append(max(LETTERS, key=lambda letter: cached[letter]))
    return found, told


@pytest.fixture
def rows(adapted: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of rows of each step of the model."""
    counts, step = list[int](), adapted.engine.step

    def counted(rows: Sequence[Rows], **options: Any) -> Any:
        counts.append(sum(len(one.tokens) for one in rows))
        return step(rows, **options)

    monkeypatch.setattr(adapted.engine, "step", counted)
    return counts


def spied(serve: Serve, rows: list[int], seed: int, key: str, **options: Any) -> Any:
    with serve(**options) as server:
        prompt = [*BEGINNING, *secret_of(seed), 3]
        server.made("POST", COMPLETIONS, {"prompt": prompt, "max_tokens": 1})
        return stolen(server, key, rows)


@pytest.mark.full
def test_a_secret_prompt_is_told_to_its_own_key_alone(serve: Serve, rows: list[int]) -> None:
    """Counts that do not depend on the secret reveal nothing, nor do times of that work."""
    seed = 1
    found, told = spied(serve, rows, seed, "B")
    assert (found, told) == spied(serve, rows, 0, "B")
    assert found != secret_of(seed) != secret_of(0)
    for key, options in (("A", {}), ("B", {"share_prefix_cache": True})):
        owned, known = spied(serve, rows, seed, key, **options)
        assert owned == secret_of(seed)
        assert known != told


@pytest.mark.full
def test_times_do_not_tell_what_another_key_has_cached(serve: Serve) -> None:
    """Mann-Whitney test: below 4 standard deviations for key B, above it for key A."""
    chance, count = random.Random(1), 40
    with serve() as server:

        def seconds(key: str, prompt: list[int]) -> float:
            begun = time.perf_counter()
            server.ask(key, "POST", COMPLETIONS, {"prompt": prompt, "max_tokens": 1})
            return time.perf_counter() - begun

        def told(key: str) -> bool:
            times = []
            for _ in range(count):
                prompts = [chance.choices(range(3, 230), k=700) for _ in range(2)]
                seconds("A", prompts[0])
                for cached in chance.sample((True, False), 2):
                    times.append((seconds(key, prompts[not cached]), cached))
            return abs(deviations(times)) >= 4

        assert not told("B")
        # Other work of the machine may hide what is there.
        assert any(told("A") for _ in range(TRIES))


def deviations(times: list[tuple[float, bool]]) -> float:
    """Return by how many standard deviations the ranks of the marked times differ from chance."""
    ranks = [rank for rank, (_, marked) in enumerate(sorted(times)) if marked]
    n, others = len(ranks), len(times) - len(ranks)
    u = sum(ranks) - n * (n - 1) / 2
    return (u - n * others / 2) / math.sqrt(n * others * (len(times) + 1) / 12)


SALTED = [
    ("/v1/completions", {"prompt": "My secret is swordfish.", "max_tokens": 1}),
    ("/completion", {"prompt": "My secret is swordfish.", "max_tokens": 1}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "My secret"}], "max_tokens": 1},
    ),
    ("/v1/responses", {"input": "My secret is swordfish.", "max_output_tokens": 1}),
]


@pytest.mark.parametrize(("path", "body"), SALTED)
def test_a_request_gives_a_salt(serve: Serve, path: str, body: dict[str, Any]) -> None:
    """As in vLLM: https://docs.vllm.ai/en/latest/features/automatic_prefix_caching.html."""

    def cached(server: Server, **more: str) -> int:
        status, found = server.ask("A", "POST", path, {**body, **more})
        assert status == 200, found
        if path == "/completion":
            return int(found["timings"]["cache_n"])
        details = "input_tokens_details" if "responses" in path else "prompt_tokens_details"
        return int(found["usage"][details]["cached_tokens"])

    with serve() as server:
        for more in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}):
            assert (cached(server, **more), cached(server, **more) > 0) == (0, True)
        status, found = server.ask("A", "POST", path, {**body, "cache_salt": ""})
        assert (status, "cache_salt" in str(found)) == (400, True)


def test_a_salted_request_uses_no_slot(serve: Serve) -> None:
    body = {"prompt": [*BEGINNING, 5], "id_slot": 0, "n_predict": 1}
    with serve() as server:
        headers = {"Authorization": f"Bearer {server.keys['A']}"}
        for salt in ("a", "b"):
            found = server.client.post(
                "/completion", json={**body, "cache_salt": salt}, headers=headers
            )
            assert found.headers["x-trinity-ignored"] == "id_slot"
            assert found.json()["timings"]["cache_n"] == 0
        assert server.ask("A", "POST", "/slots/0?action=erase")[1]["n_erased"] == 0
