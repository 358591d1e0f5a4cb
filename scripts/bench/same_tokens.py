"""Compare the token hashes of `trinity serve` for the same requests in different states.

    python scripts/bench/same_tokens.py --requests 1000 -- --model demo=trinity/data/demo.gguf
    python scripts/bench/same_tokens.py --requests 1000 -- --model build/Q4_K.gguf --batch-invariant

What follows "--" are options of `trinity serve`. A first server answers the requests one after the
other, each prompt evaluated anew, then again from the cache, then 16 at a time in another order. A
second one, after a restart, answers them 16 at a time with a cold cache, 16 at a time with a warm
one, and then one after the other. It ends with status 1 where a hash differs, and says what each
round took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.bench.bench_processes import started  # noqa: E402
from scripts.bench.raw_http import ask  # noqa: E402

BESIDE = 16
WORDS = ("Prince", "Andrew", "was", "silent", "and", "the", "old", "count", "smiled", "at", "her")


def requests(count: int) -> list[Any]:
    """Make prompts of 1 to 200 words, most with a common beginning, and sampling options."""
    chance = random.Random(7)
    texts = [[chance.choice(WORDS) for _ in range(200)] for _ in range(8)]
    found = []
    for seed in range(count):
        words = chance.choice(texts)[: chance.randrange(200)]
        found.append({
            "prompt": " ".join([*words, chance.choice(WORDS), str(chance.randrange(1000))]),
            "max_tokens": chance.randrange(1, 40), "seed": seed,
            "temperature": chance.choice((0, 0.8, 1.2)), "ignore_eos": chance.random() < 0.5,
        })  # fmt: skip
    return found


async def answered(url: str, bodies: Sequence[Any], beside: int, **more: Any) -> list[str]:
    """Return the hash of each completion, with ``beside`` requests at a time."""
    places = asyncio.Semaphore(beside)

    async def one(body: Any) -> str:
        async with places:
            reply = await ask(url, "/v1/completions", {**body, **more})
        return str(json.loads(reply.body())["choices"][0]["token_hash"])

    return list(await asyncio.gather(*map(one, bodies)))


def main() -> None:
    """Run the comparison and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("server", nargs="*", help="options of trinity serve, after --")
    given = parser.parse_args()
    bodies = requests(given.requests)
    order = list(range(len(bodies)))
    random.Random(1).shuffle(order)
    found: dict[str, list[str]] = {}

    def note(name: str, url: str, beside: int, places: Sequence[int], **more: Any) -> None:
        began = perf_counter()
        hashes = asyncio.run(answered(url, [bodies[i] for i in places], beside, **more))
        found[name] = [one for _, one in sorted(zip(places, hashes, strict=True))]
        print(f"{name}: {perf_counter() - began:.1f} s", flush=True)

    command = [sys.executable, "-m", "trinity", "serve", "--port", "0", *given.server]
    straight = range(len(bodies))
    with tempfile.TemporaryDirectory() as folder:
        with started(command, Path(folder, "first")) as server:
            note("alone, cold", server.url, 1, straight, cache_prompt=False)
            note("alone, from the cache", server.url, 1, straight)
            note("16 at a time", server.url, BESIDE, order)
        with started(command, Path(folder, "second")) as server:
            note("restarted, 16 at a time", server.url, BESIDE, order[::-1])
            note("restarted, again", server.url, BESIDE, straight)
            note("alone after that", server.url, 1, straight)
    first = found["alone, cold"]
    wrong = {
        name: sum(a != b for a, b in zip(first, hashes, strict=True))
        for name, hashes in found.items()
    }
    print(
        f"{len(set(first))} different answers to {len(first)} requests; hashes that differ "
        f"from those alone with a cold cache: {wrong}"
    )
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
