"""Measure two replicas on Ray, compared with two processes alone, and with both at the same time.

    python scripts/bench/bench_replicas.py --model smollm2.gguf --clients 8 --tokens 64

A process alone is `trinity serve` with one thread, bound to a core; the clients use another one.
The replicas share two cores with the clients, the ingress and Ray. ``--clients`` chats per replica
start together, in rounds, of which the first is not counted. "stream" and "whole" are the rates of
streamed responses and of others. The processor time of each kind of process follows: microseconds
per token, and the share of two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.bench.bench_processes import Server, free_port, started  # noqa: E402
from scripts.bench.raw_http import Reply, ask  # noqa: E402

CHAT = "/v1/chat/completions"
PARTS = ("alone", "both", "ray")
TICKS = os.sysconf("SC_CLK_TCK")


def body_of(number: int, tokens: int, stream: bool) -> dict[str, Any]:
    """Return the request of client ``number``. It shares no prefix with those of other clients."""
    text = f"{number} is the number of this question. What do you think of it, and why?"
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}], "max_tokens": tokens, "seed": number,
        "temperature": 0.8, "ignore_eos": True, "stream": stream,
    }  # fmt: skip
    return {**body, "stream_options": {"include_usage": True}} if stream else body


def tokens_of(reply: Reply, stream: bool) -> int:
    """Return the number of tokens of a response."""
    if stream:
        return reply.tokens()
    return int(json.loads(reply.body())["usage"]["completion_tokens"])


async def round_of(urls: Sequence[str], clients: int, tokens: int, stream: bool) -> float:
    """Return the tokens per second of clients that start together, divided among the servers."""
    started = perf_counter()
    bodies = [body_of(number, tokens, stream) for number in range(clients)]
    asked = [ask(urls[number % len(urls)], CHAT, body) for number, body in enumerate(bodies)]
    replies = await asyncio.gather(*asked)
    seconds = perf_counter() - started
    assert all(tokens_of(reply, stream) == tokens for reply in replies)
    return clients * tokens / seconds


def processor_seconds() -> Counter[str]:
    """Return the processor time of this process and of those that it started, by kind."""
    parents, found = dict[int, int](), dict[int, tuple[str, float]]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        found[int(folder.name)] = (title, (int(fields[11]) + int(fields[12])) / TICKS)
    totals: Counter[str] = Counter()
    for process, (title, seconds) in found.items():
        line = process
        while line > 1 and line != os.getpid():
            line = parents.get(line, 0)
        if line == os.getpid():
            totals["clients" if process == line else kind_of(title)] += seconds
    return totals


def kind_of(title: str) -> str:
    """Return the kind of a process."""
    words = title.split()
    for name in ("raylet", "gcs_server"):
        if words and words[0].endswith(name):
            return name
    if title.startswith("ray::"):
        return words[0].removeprefix("ray::").rpartition(":")[2]
    return "trinity serve" if "serve" in words else "the rest of Ray"


def measured(
    servers: Sequence[Server], clients: int, options: argparse.Namespace
) -> dict[str, float]:
    """Return the median rates of servers, and print what its processes used."""
    rates, urls = {}, [server.url for server in servers]
    for stream in (True, False):
        asyncio.run(round_of(urls, clients, options.tokens, stream))
        before, began = processor_seconds(), perf_counter()
        rounds = [
            asyncio.run(round_of(urls, clients, options.tokens, stream))
            for _ in range(options.rounds)
        ]
        seconds, used = perf_counter() - began, processor_seconds()
        used.subtract(before)
        name = "stream" if stream else "whole"
        rates[name] = median(rounds)
        count = options.rounds * clients * options.tokens
        shares = ", ".join(
            f"{kind} {1e6 * spent / count:.0f} ({100 * spent / seconds / 2:.0f}%)"
            for kind, spent in used.most_common() if spent > 0.002 * seconds
        )  # fmt: skip
        print(
            f"  {name}: {rates[name]:.1f} tokens/s ({', '.join(f'{r:.1f}' for r in rounds)}); "
            f"microseconds per token (share of two cores): {shares}",
            flush=True,
        )
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True)
    add("--clients", type=int, default=8, help="per replica")
    add("--tokens", type=int, default=64, help="of each response")
    add("--rounds", type=int, default=3)
    add("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    common = [
        sys.executable, "-m", "trinity", "serve", "--model", options.model, "--ctx", "1024",
        "--parallel", str(options.clients),
    ]  # fmt: skip
    alone = Counter[str]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as both:
        servers = []
        for number, core in enumerate(cores):
            os.sched_setaffinity(0, [core])
            log = Path(folder) / f"{core}.log"
            command = [*common, "--threads", "1", "--port", "0"]
            servers.append(both.enter_context(started(command, log)))
            if "alone" in options.parts:
                os.sched_setaffinity(0, [cores[1 - number]])
                print(f"one process on core {core}, clients on the other", flush=True)
                alone.update(measured(servers[-1:], options.clients, options))
        os.sched_setaffinity(0, cores)
        rates = {"alone, sum": dict(alone)}
        if "both" in options.parts:
            print("two processes, clients on the same cores", flush=True)
            rates["both"] = measured(servers, 2 * options.clients, options)
        both.close()
        if "ray" in options.parts:
            print("two replicas on Ray", flush=True)
            flags = ["--ray", "--replicas", "2", "--cores", "1", "--port", str(free_port())]
            with started([*common, *flags], Path(folder) / "ray.log") as ray:
                rates["ray"] = measured([ray], 2 * options.clients, options)
    for name, found in rates.items():
        print(f"{name}: {json.dumps(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
