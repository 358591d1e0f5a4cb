"""How many requests that `trinity serve` refused with 429 are taken after their Retry-After.

    python scripts/retry_after.py --clients 32 -- --model trinity/data/demo.gguf \\
        --parallel 2 --max-queue 6

``--clients`` clients ask one after the other, with prompts and answers of very different lengths;
who is refused asks again after just the seconds of the Retry-After, but for the part ``--lost``,
who never come back. It gives the part of the first retries that are taken, and that of
all, and the answers in a second. What follows "--" are options of `trinity serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.bench_processes import started  # noqa: E402
from scripts.first_token_times import PATH, body_of  # noqa: E402


async def asked(client: httpx.AsyncClient, body: Any, lost: float) -> list[int]:
    """Ask until it is taken, or for good; the statuses."""
    statuses: list[int] = []
    while True:
        reply = await client.post(PATH, json={**body, "stream": False})
        statuses.append(reply.status_code)
        if reply.status_code != 429:
            reply.raise_for_status()
            return statuses
        if random.random() < lost:
            return statuses
        await asyncio.sleep(int(reply.headers["retry-after"]))


async def measured(url: str, given: argparse.Namespace) -> None:
    """Ask by all clients, and say what was found."""
    chance = random.Random(3)
    found: list[list[int]] = []
    end = perf_counter() + given.seconds
    answers = 0

    async def asking(client: httpx.AsyncClient) -> None:
        nonlocal answers
        while perf_counter() < end:
            body = body_of(chance, given.words, given.tokens)
            found.append(await asked(client, body, given.lost))
            answers += found[-1][-1] == 200 and perf_counter() < end

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        await asyncio.gather(*(asking(client) for _ in range(given.clients)))
    retries = [statuses[1:] for statuses in found if len(statuses) > 1]
    first = sum(statuses[0] == 200 for statuses in retries)
    every = [status == 200 for statuses in retries for status in statuses]
    print(f"{len(retries)} refused: {first / max(len(retries), 1):.1%} taken at the first retry, "
          f"{sum(every) / max(len(every), 1):.1%} of {len(every)} retries; "
          f"{answers / given.seconds:.2f} answers/s")  # fmt: skip


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30, help="until the last is asked")
    parser.add_argument("--words", type=int, default=200, help="most words of a prompt")
    parser.add_argument("--tokens", type=int, default=60, help="most tokens of an answer")
    parser.add_argument("--lost", type=float, default=0.0, help="part of the refused that give up")
    parser.add_argument("server", nargs="*", help="options of trinity serve, after --")
    given = parser.parse_args()
    command = [sys.executable, "-m", "trinity", "serve", "--port", "0", *given.server]
    with tempfile.TemporaryDirectory() as folder, started(command, Path(folder, "log")) as server:
        asyncio.run(measured(server.url, given))


if __name__ == "__main__":
    main()
