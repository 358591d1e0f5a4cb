"""Measure `trinity serve`, compared with the engine without HTTP and with llama-server.

    python scripts/bench/bench_server.py --model build/B.gguf
    python scripts/bench/bench_server.py --model build/B.gguf --llama-server BUILD/bin/llama-server
    python scripts/bench/bench_server.py --model build/B.gguf --only gap --only memory

"load": ``--clients`` streamed chats at the same moment, which begin with the same system text of
``--system`` tokens, go on with a user's text of their own, and get ``--tokens`` tokens each. Total
tokens per second, in rounds: the server, a process that calls Model.chat by as many threads, and
llama.cpp's server with as many slots. The first round warms up and is not counted. In a last round
of the server alone, which has no part in its rate, GET /health is asked every 20 ms.
"gap": the times between the pieces of a stream while a prompt of ``--beside`` tokens is evaluated.
"memory": the server's own memory (RssAnon) while ``--prompts`` different prompts of
``--memory-tokens`` tokens come, 8 at a time, with ``--kv-memory``, in a server of its own.
"grammar": the rate of 8 streams under a JSON schema against that of 8 without, from the first
token of each to its last.

Figures are medians of the rounds, of the gaps over all rounds. The clients are one
thread of this process, which shares the processors with what it measures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.bench.bench_processes import Server, Without, free_port, started  # noqa: E402
from scripts.bench.raw_http import Reply, ask  # noqa: E402

PARTS = ("load", "gap", "memory", "grammar")
CHAT = "/v1/chat/completions"
HEALTH_SECONDS = 0.02
STREAMS = 8  # with a grammar, and of prompts that fill the memory
# The same for all engines.
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "ignore_eos": True}
WORDS = ("the", "stone", "and", "an", "old", "oar", "or", "more", "sand", "in", "sun", "hot")
Messages = list[dict[str, str]]
Figures = dict[str, Any]


def check_tokens(found: int, expected: int) -> None:
    """Fail if the sides generate different numbers of tokens, which would be less work for one."""
    if found != expected:
        raise SystemExit(f"{found} tokens were answered, not {expected}")


class Texts:
    """Distinct texts of a given number of tokens."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._random = random.Random(0)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        reply = asyncio.run(ask(self._url, "/tokenize", {"content": text}))
        return len(json.loads(reply.body())["tokens"])

    def words(self, number: int) -> str:
        """Return ``number`` words."""
        return " ".join(self._random.choices(WORDS, k=number))

    def of(self, tokens: int) -> str:
        """Return a text of at most, and nearly, ``tokens`` tokens."""
        words = self.words(2 * tokens).split()
        low, high = 0, len(words)
        while low < high:
            middle = (low + high + 1) // 2
            if self.count(" ".join(words[:middle])) <= tokens:
                low = middle
            else:
                high = middle - 1
        return " ".join(words[:low])


def chat(messages: Messages, tokens: int, **more: Any) -> Figures:
    """Return the body of a streamed chat for ``tokens`` tokens."""
    return {
        "messages": messages, "max_tokens": tokens, "stream": True,
        "stream_options": {"include_usage": True}, **SAMPLING, **more,
    }  # fmt: skip


async def streams(url: str, bodies: Sequence[Figures]) -> list[Reply]:
    """Return the replies to streamed chats that start at once."""
    replies = list(await asyncio.gather(*(ask(url, CHAT, body) for body in bodies)))
    for reply, body in zip(replies, bodies, strict=True):
        check_tokens(reply.tokens(), body["max_tokens"])
    return replies


def total_rate(replies: Sequence[Reply], tokens: int) -> float:
    """Return the tokens per second of all streams, from the first request to the last end."""
    seconds = max(reply.ended for reply in replies) - min(reply.started for reply in replies)
    return len(replies) * tokens / seconds


async def asked_health(url: str, seconds: list[float]) -> None:
    """Request /health every 20 ms until cancelled."""
    while True:
        begun = perf_counter()
        reply = await ask(url, "/health")
        seconds.append(reply.ended - begun)
        reply.body()
        await asyncio.sleep(max(0.0, begun + HEALTH_SECONDS - perf_counter()))


async def loaded(url: str, bodies: Sequence[Figures], health: list[float]) -> list[Reply]:
    """Run streams, and request /health meanwhile."""
    asking = asyncio.create_task(asked_health(url, health))
    try:
        return await streams(url, bodies)
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


def measure_load(server: Server, options: argparse.Namespace, folder: Path) -> Figures:
    """Measure rounds of the server, of the model without HTTP, and of llama.cpp's server."""
    texts = Texts(server.url)
    system = texts.of(options.system)
    clients, tokens = options.clients, options.tokens

    def conversations() -> list[Messages]:
        return [
            [{"role": "system", "content": system}, {"role": "user", "content": texts.words(12)}]
            for _ in range(clients)
        ]

    health: list[float] = []
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        without = Without(options.model, options.threads, options.ctx, folder / "model.log")
        stack.callback(without.close)
        llama = None
        if options.llama_server:
            port = free_port()
            llama = stack.enter_context(
                started(
                    llama_command(options, port), folder / "llama.log", f"http://127.0.0.1:{port}"
                )
            )
        for number in range(-1, options.rounds):  # the first is the warm-up
            asked = conversations()
            bodies = [chat(one, tokens, seed=place) for place, one in enumerate(asked)]
            print(f"load: round {number + 1}", file=sys.stderr, flush=True)
            replies = asyncio.run(streams(server.url, bodies))
            found = {"serve": total_rate(replies, tokens)}
            count, taken = without.answer(asked, {**SAMPLING, "max_tokens": tokens})
            check_tokens(count, clients * tokens)
            found["without HTTP"] = count / taken
            if llama is not None:
                replies = asyncio.run(streams(llama.url, bodies))
                found["llama-server"] = total_rate(replies, tokens)
            if number >= 0:
                for name, rate in found.items():
                    rates.setdefault(name, []).append(rate)
        bodies = [chat(one, tokens, seed=place) for place, one in enumerate(conversations())]
        asyncio.run(loaded(server.url, bodies, health))
    for name, rounds in rates.items():
        said = f"{name}: {median(rounds):.1f} tokens/s of {clients} clients"
        if name != "serve":
            ratio = median(a / b for a, b in zip(rates["serve"], rounds, strict=True))
            said += f"; the server has {ratio:.2f} of it"
        print(said, flush=True)
    print(
        f"/health under load, {len(health)} times: median {1000 * median(health):.1f} ms, "
        f"99% below {1000 * at(health, 0.99):.1f} ms, longest {1000 * max(health):.1f} ms",
        flush=True,
    )
    return {"rates": rates, "health_seconds": health, "system_tokens": texts.count(system)}


def llama_command(options: argparse.Namespace, port: int) -> list[str]:
    """Return the command of llama.cpp's server, with a slot for each client."""
    each = -(-(options.system + options.tokens + 256) // 256) * 256
    return [
        options.llama_server, "--model", str(options.model), "--host", "127.0.0.1",
        "--port", str(port), "--parallel", str(options.clients),
        "--ctx-size", str(each * options.clients), "--threads", str(options.threads),
        *shlex.split(options.llama_flags),
    ]  # fmt: skip


def at(values: Sequence[float], share: float) -> float:
    """Return the quantile of the values at this share."""
    return sorted(values)[min(math.ceil(share * len(values)), len(values)) - 1]


async def gaps(url: str, short: str, long: str, limit: int) -> list[float]:
    """Return the seconds between a stream's chunks from the arrival of a long prompt on."""
    other: asyncio.Task[Reply] | None = None
    before = 5  # pieces that come alone

    def wanted(reply: Reply) -> bool:
        nonlocal other
        if other is None and len(reply.content_times()) >= before:
            body = chat([{"role": "user", "content": long}], 1)
            other = asyncio.create_task(ask(url, CHAT, body))
        return other is None or not other.done()

    # Greedy: random bytes that are no text yet would look like a gap.
    body = chat([{"role": "user", "content": short}], limit, temperature=0)
    reply = await ask(url, CHAT, body, wanted)
    if other is None or not other.done():
        raise SystemExit(
            f"the stream ended before the prompt was evaluated: {reply.body()[-300:]!r}"
        )
    check_tokens(other.result().tokens(), 1)
    return [b - a for a, b in pairwise(reply.content_times()[before - 1 :])]


def measure_gap(server: Server, options: argparse.Namespace) -> Figures:
    """Measure a stream while a long prompt is prefilled."""
    texts = Texts(server.url)
    rounds = []
    for _ in range(options.rounds):
        long = texts.of(options.beside)
        limit = options.ctx - 64  # less the short prompt
        rounds.append(asyncio.run(gaps(server.url, texts.words(4), long, limit)))
    print(
        f"a stream while a prompt of {options.beside} tokens is evaluated: longest gap "
        f"{1000 * max(map(max, rounds)):.0f} ms, median "
        f"{1000 * median(gap for found in rounds for gap in found):.0f} ms",
        flush=True,
    )
    return {"gaps": rounds}


def measure_memory(server: Server, options: argparse.Namespace) -> Figures:
    """Measure a server's memory after every 50 prompts."""
    texts = Texts(server.url)
    length = len(texts.of(options.memory_tokens).split())

    async def some(count: int) -> None:
        bodies = [chat([{"role": "user", "content": texts.words(length)}], 4) for _ in range(count)]
        await streams(server.url, bodies)

    held = [server.own_bytes()]
    for done in range(0, options.prompts, 50):
        wave = min(50, options.prompts - done)
        for start in range(0, wave, STREAMS):
            asyncio.run(some(min(STREAMS, wave - start)))
        held.append(server.own_bytes())
        print(f"memory: {done + wave} prompts, {held[-1] >> 20} MiB", file=sys.stderr, flush=True)
    later = held[len(held) // 2 :]
    print(
        f"memory with --kv-memory {options.kv_memory}: {held[0] >> 20} MiB before, then after "
        f"every 50 prompts {', '.join(str(one >> 20) for one in held[1:])} MiB; in the second "
        f"half {(max(later) - min(later)) / 2**20:+.1f} MiB",
        flush=True,
    )
    return {"bytes": held}


def rows_schema(tokens: int) -> Figures:
    """Return a schema whose JSON is longer than ``tokens`` tokens, whatever the model writes."""
    item = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "count": {"type": "integer", "minimum": 0, "maximum": 99999},
            "open": {"type": "boolean"},
        },
        "required": ["name", "tags", "count", "open"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": item, "minItems": tokens}


def texts_schema(tokens: int) -> Figures:
    """Return a schema of texts only, with hardly any forced token."""
    return {"type": "array", "items": {"type": "string"}, "minItems": tokens}


def decode_rate(texts: Texts, replies: Sequence[Reply], tokens: int) -> float:
    """Return the tokens per second of all streams, each from its first chunk to its last.

    The tokens of the first chunk do not count: a schema forces several at once.
    """
    rates = []
    for reply in replies:
        times = reply.content_times()
        rates.append((tokens - texts.count(reply.first_content())) / (times[-1] - times[0]))
    return sum(rates)


def measure_grammar(server: Server, options: argparse.Namespace) -> Figures:
    """Measure streams with and without a schema, interleaved."""
    texts = Texts(server.url)
    tokens = options.grammar_tokens
    kinds: dict[str, Figures] = {"free": {}}
    for name, schema in (("rows", rows_schema(tokens)), ("texts", texts_schema(tokens))):
        form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
        kinds[name] = {"response_format": form}
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(-1, options.rounds):  # the first is the warm-up
        for name, more in kinds.items():
            bodies = [
                chat([{"role": "user", "content": texts.words(12)}], tokens, seed=place, **more)
                for place in range(STREAMS)
            ]
            print(f"grammar: round {number + 1}, {name}", file=sys.stderr, flush=True)
            rate = decode_rate(texts, asyncio.run(streams(server.url, bodies)), tokens)
            if number >= 0:
                rates[name].append(rate)
    for name in kinds:
        ratio = median(a / b for a, b in zip(rates[name], rates["free"], strict=True))
        print(
            f"{STREAMS} streams, {'no schema' if name == 'free' else f'a schema of {name}'}: "
            f"{median(rates[name]):.1f} tokens/s, {ratio:.2f} of those without",
            flush=True,
        )
    return {"rates": rates}


def serve_command(options: argparse.Namespace, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "trinity", "serve", "--model", str(options.model), "--port", "0",
        "--threads", str(options.threads), "--ctx", str(options.ctx), *more,
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    lines = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=lines[0], epilog=lines[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, required=True)
    add("--threads", "-t", type=int, default=2, help="of every engine")
    add("--ctx", type=int, default=8192, help="of the server")
    add("--only", action="append", choices=PARTS, help="repeatable; default all parts")
    add("--rounds", "-r", type=int, default=3)
    add("--clients", type=int, default=16)
    add("--tokens", type=int, default=64, help="of each answer under load")
    add("--system", type=int, default=512, help="tokens of the system text")
    add("--beside", type=int, default=4096, help="tokens of the prompt beside a stream")
    add("--prompts", type=int, default=500, help="different ones, to fill the memory")
    add("--memory-tokens", type=int, default=300, help="of each of them")
    add("--kv-memory", default="512M", help="of the server whose memory is filled")
    add("--grammar-tokens", type=int, default=128, help="of each answer under a schema")
    add("--llama-server", metavar="PATH", help="llama.cpp's server, for the load")
    add("--llama-flags", default="-fa on", help="more for it, as the shell has it")
    add("--json", type=Path, metavar="FILE", help="write every round here")
    options = parser.parse_args(arguments)
    parts = options.only or PARTS
    found: Figures = {}
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        if set(parts) - {"memory"}:
            server = stack.enter_context(started(serve_command(options), folder / "serve.log"))
            if "load" in parts:
                found["load"] = measure_load(server, options, folder)
            if "gap" in parts:
                found["gap"] = measure_gap(server, options)
            if "grammar" in parts:
                found["grammar"] = measure_grammar(server, options)
            stack.close()
        if "memory" in parts:
            command = serve_command(options, "--kv-memory", options.kv_memory)
            with started(command, folder / "memory.log") as server:
                found["memory"] = measure_memory(server, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
