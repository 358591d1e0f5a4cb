"""Measure the first token of a long prompt: cold, and after a restart with stored prefixes.

    python scripts/bench/prefix_restart.py --tokens 2571 -- --model build/model.gguf --ctx 4096

What follows "--" are options of `trinity serve`. Each server answers a short prompt first, so that
what it does once is done. It also says how many bytes the folder has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.bench.bench_processes import started  # noqa: E402
from scripts.bench.raw_http import ask  # noqa: E402


def first_token(url: str, prompt: list[int]) -> tuple[float, int, str]:
    """Return the seconds of a completion of one token, its cached tokens, and its hash."""
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    began = perf_counter()
    answer = json.loads(asyncio.run(ask(url, "/v1/completions", body)).body())
    seconds = perf_counter() - began
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return seconds, cached, answer["choices"][0]["token_hash"]


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("--tokens", type=int, default=2571)
    parser.add_argument("server", nargs="*", help="options of trinity serve, after --")
    given = parser.parse_args()
    chance = random.Random(4)
    prompt = [chance.randrange(3, 250) for _ in range(given.tokens)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "trinity", "serve", "--port", "0", "--state", folder,
                   "--prefix-cache-bytes", "4G", *given.server]  # fmt: skip
        found = []
        for name in ("cold", "after a restart"):
            with started(command, Path(folder, "log")) as server:
                server.log.unlink()
                for seed in range(3):
                    first_token(server.url, [seed + 5] * 70)
                found.append(first_token(server.url, prompt))
            seconds, cached, token_hash = found[-1]
            print(f"{name}: {seconds:.3f} s, {cached} tokens cached, hash {token_hash}", flush=True)
        size = sum(one.stat().st_size for one in Path(folder, "prefixes").glob("*.page"))
    print(f"{found[1][0] / found[0][0]:.3f} of the time; {size} bytes in the folder")


if __name__ == "__main__":
    main()
