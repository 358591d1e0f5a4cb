"""Compare the first-token times that `trinity serve` predicts with those that come.

    python scripts/first_token_times.py -- --model build/model.gguf --ctx 4096

``--clients`` clients ask for streams one after the other, with prompts and answers of very
different lengths, half of which begin like others. It gives the median and the 90th percentile of
the error, as a part of the time from the answer's head to its first token. What follows "--" are
options of `trinity serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.bench_processes import started  # noqa: E402
from scripts.same_tokens import WORDS  # noqa: E402

PATH, HEADER = "/v1/completions", "x-predicted-first-token-ms"
WARM_UP = 0.25  # of the requests, the first ones, from which the server learns


def body_of(chance: random.Random, words: int, tokens: int) -> Any:
    """A request with a prompt of its own, or one that begins like others."""
    own = random.Random(chance.randrange(4) if chance.random() < 0.5 else chance.random())
    count = int(words ** chance.random() * 20 ** (1 - chance.random()))
    text = [own.choice(WORDS) for _ in range(min(count, words))]
    return {"prompt": " ".join([*text, str(chance.randrange(10**6))]), "stream": True,
            "max_tokens": chance.randrange(1, tokens), "seed": 1, "ignore_eos": True}  # fmt: skip


async def predicted(client: httpx.AsyncClient, body: Any) -> tuple[float | None, float]:
    """The time that was predicted, if one was, and the one that was seen, in seconds."""
    async with client.stream("POST", PATH, json=body) as reply:
        head, first = perf_counter(), 0.0
        async for line in reply.aiter_lines():
            data = line.removeprefix("data: ")
            if not first and line != data and data != "[DONE]":
                first = perf_counter() if json.loads(data)["choices"][0]["text"] else 0.0
        given = reply.headers.get(HEADER)
        return (None if given is None else int(given) / 1000), first - head


async def measured(url: str, given: argparse.Namespace) -> None:
    """Ask by all clients, and say what was found."""
    chance = random.Random(3)
    bodies = [
        {**body_of(chance, given.words, given.tokens), **json.loads(given.more)}
        for _ in range(given.requests)
    ]
    times: list[tuple[float | None, float]] = []

    async def asking(client: httpx.AsyncClient) -> None:
        while bodies:
            times.append(await predicted(client, bodies.pop()))

    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        await asyncio.gather(*(asking(client) for _ in range(given.clients)))
    counted = [(a, b) for a, b in times[int(WARM_UP * len(times)) :] if a is not None and b > 0]
    errors = [abs(a - b) / b for a, b in counted]
    seconds, most = median(b for _, b in counted), quantiles(errors, n=10)[-1]
    print(f"{len(counted)} first tokens after {seconds:.3f} s (median): "
          f"error {median(errors):.1%} (median), {most:.1%} (90%)")  # fmt: skip


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--words", type=int, default=600, help="most words of a prompt")
    parser.add_argument("--tokens", type=int, default=60, help="most tokens of an answer")
    parser.add_argument("--more", default="{}", help="further parameters of all requests, JSON")
    parser.add_argument("server", nargs="*", help="options of trinity serve, after --")
    given = parser.parse_args()
    command = [sys.executable, "-m", "trinity", "serve", "--port", "0", *given.server]
    with tempfile.TemporaryDirectory() as folder, started(command, Path(folder, "log")) as server:
        asyncio.run(measured(server.url, given))


if __name__ == "__main__":
    main()
