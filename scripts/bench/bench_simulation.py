"""Calibrate the simulation of replicas, and compare its prediction with two replicas on Ray.

    python scripts/bench/bench_simulation.py --model smollm2.gguf --costs costs.json
    python scripts/bench/bench_simulation.py --costs costs.json --parts machines --rates 10 100

"calibrate" measures the steps of one replica, whose clients, ingress and Ray use the same core.
"compare" sends conversations of several turns to two replicas on two cores, and simulates the same
conversations; the figures are tokens per second and the time to the first token. "machines"
simulates larger loads, where each replica and the ingress have cores of their own: how many
replicas a load needs, what a lost replica and autoscaling change. ``--plain`` calibrates and
compares one process of `trinity serve` on one core, without Ray.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from scripts.bench.bench_processes import Server, free_port, started  # noqa: E402
from scripts.bench.bench_replicas import processor_seconds  # noqa: E402
from scripts.bench.raw_http import Reply, ask  # noqa: E402
from scripts.bench.replica_simulation import (  # noqa: E402
    Cluster,
    Conversation,
    Costs,
    Load,
    Outcome,
    Scaling,
    replicas_needed,
    simulated,
)
from trinity.runtime.scheduling.step_costs import StepTimes, pairs  # noqa: E402

PARTS = ("calibrate", "compare", "machines")
COMPLETIONS = "/v1/completions"
TEXT = re.compile(rb'"text": ?"(?:[^"\\]|\\.)+"')
WORDS = "The prince looked at the window and asked whether the letter had come from Moscow. "
PROMPTS = (32, 96, 192, 320, 448)  # tokens
TOGETHER = (1, 2, 4, 8)  # responses at the same time
TOKENS = 64  # of each of them
REPEATS = 5
FEW = 4  # tokens of a response whose first token is measured; one alone may have no text
USED = 0.5  # part of what the replicas can do that the compared load asks of them
CONTEXT = 1024
UNLIKE = 8  # drawn tokens at the beginning of a text


class Client:
    """Sends prompts of drawn tokens to a server."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        found = asyncio.run(ask(url, "/tokenize", {"content": WORDS * 4})).body()
        self._ids: list[int] = json.loads(found)["tokens"]
        self._draw = random.Random(seed)

    def ids(self, count: int) -> list[int]:
        """Return tokens that begin unlike those of other calls."""
        begin, ids = self._draw.randrange(len(self._ids)), self._ids
        text = (ids * (2 + count // len(ids)))[begin : begin + count]
        return self._draw.choices(ids, k=min(count, UNLIKE)) + text[UNLIKE:]

    async def asked(self, ids: list[int], tokens: int) -> Reply:
        """Stream a response."""
        body = {
            "prompt": ids, "max_tokens": tokens, "ignore_eos": True, "stream": True,
            "temperature": 0.8, "seed": len(ids), "skip_special_tokens": False,
        }  # fmt: skip
        return await ask(self.url, COMPLETIONS, body)


def text_times(reply: Reply) -> list[float]:
    """Return the times of the chunks that have text."""
    pairs_of = zip(reply.times, reply.pieces, strict=True)
    found = [time for time, piece in pairs_of if TEXT.search(piece)]
    if not found:
        raise SystemExit(f"a stream without text: {reply.body()!r:.600}")
    return found


@contextmanager
def served(options: argparse.Namespace, replicas: int) -> Iterator[Server]:
    """A server with so many replicas, which shares as many cores with this process."""
    cores = sorted(os.sched_getaffinity(0))
    command = [
        sys.executable, "-m", "trinity", "serve", "--model", options.model, "--ctx", str(CONTEXT),
        "--parallel", str(options.parallel), "--no-speculate", "--port", str(free_port()),
    ]  # fmt: skip
    ray = ["--ray", "--replicas", str(replicas), "--cores", "1"]
    command += ["--threads", "1"] if options.plain else ray
    os.sched_setaffinity(0, cores[:replicas])
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            started(command, Path(folder) / "log") as server,
        ):
            yield server
    finally:
        os.sched_setaffinity(0, cores)


def calibrated(options: argparse.Namespace) -> Costs:
    """Measure one replica on one core."""
    with served(options, 1) as server:
        client = Client(server.url, seed=1)
        asyncio.run(client.asked(client.ids(64), 16))  # the first request is slower
        lengths, firsts = list[int](), list[float]()
        for length in PROMPTS:
            for _ in range(REPEATS):
                reply = asyncio.run(client.asked(client.ids(length), FEW))
                lengths.append(length)
                firsts.append(text_times(reply)[0] - reply.started)
        gaps = {number: median(gap_of(client, number) for _ in range(3)) for number in TOGETHER}
        before = processor_seconds()
        asyncio.run(together(client, TOGETHER[-1]))
        used = processor_seconds()
        used.subtract(before)
    times = costs_of_steps(gaps)
    request, row, pair = costs_of_prompts(lengths, firsts)
    token = 0.0 if options.plain else used["trinity serve"] / (TOGETHER[-1] * TOKENS)
    for number, gap in gaps.items():
        print(
            f"  step of {number} responses: {1e3 * gap:.2f} ms; fitted "
            f"{1e3 * times.seconds(number):.2f} ms"
        )
    for length in PROMPTS:
        first = median(f for n, f in zip(lengths, firsts, strict=True) if n == length)
        near = request + row * length + pair * pairs(0, length)
        print(f"  first token after {length}: {1e3 * first:.1f} ms; fitted {1e3 * near:.1f} ms")
    return Costs(
        replace(times, row=row, pair=pair), max(request - times.step, 0.0), True, token, 0.0
    )


async def together(client: Client, number: int) -> list[Reply]:
    """Stream so many responses at the same time."""
    asked = [client.asked(client.ids(32), TOKENS) for _ in range(number)]
    return await asyncio.gather(*asked)


def gap_of(client: Client, number: int) -> float:
    """Return the seconds of a step of so many responses."""
    streams = [text_times(reply) for reply in asyncio.run(together(client, number))]
    begin, end = max(times[0] for times in streams), min(times[-1] for times in streams)
    return (
        number
        * (end - begin)
        / sum(sum(begin < time <= end for time in times) for times in streams)
    )


def fitted(seconds: Sequence[float], *columns: Sequence[float]) -> list[float]:
    """Return the factors of columns whose sum is near ``seconds``, by relative errors.

    No factor is negative.
    """
    found = np.array(seconds, float)
    features = np.array(columns, float) / found
    used = list(range(len(columns)))
    while True:
        some = np.linalg.lstsq(features[used].T, np.ones_like(found), rcond=None)[0]
        if some.min() >= 0:
            break
        size = np.sqrt((features[used] ** 2).sum(1))
        used.pop(int(np.argmin(some * size)))
    factors = [0.0] * len(columns)
    for place, factor in zip(used, some.tolist(), strict=True):
        factors[place] = factor
    return factors


def costs_of_steps(gaps: Mapping[int, float]) -> StepTimes:
    """Fit the seconds of a step and of each response in it."""
    step, running = fitted(list(gaps.values()), [1] * len(gaps), list(gaps))
    return StepTimes(step=step, running=running)


def costs_of_prompts(
    lengths: Sequence[int], seconds: Sequence[float]
) -> tuple[float, float, float]:
    """Fit the seconds of a request, of a prompt token, and of a pair of positions."""
    attended = [pairs(0, length) for length in lengths]
    request, row, pair = fitted(seconds, [1] * len(lengths), lengths, attended)
    return request, row, pair


async def measured(client: Client, conversations: Sequence[Conversation]) -> Outcome:
    """Hold conversations with a server."""
    outcome, begun = Outcome(), perf_counter()
    groups = {one.group: client.ids(one.shared) for one in conversations}

    async def hold(one: Conversation) -> None:
        await asyncio.sleep(max(begun + one.start - perf_counter(), 0))
        ids = list(groups[one.group])
        for turn in one.turns:
            await asyncio.sleep(turn.pause)
            ids += client.ids(turn.prompt - len(ids))
            reply = await client.asked(ids, turn.output)
            outcome.first.append(text_times(reply)[0] - reply.started)
            outcome.tokens += turn.output
            outcome.prompt_tokens += turn.prompt
            ends.append(reply.ended)

    ends = list[float]()
    await asyncio.gather(*map(hold, conversations))
    outcome.seconds = max(ends) - begun - conversations[0].start
    return outcome


def load_of(options: argparse.Namespace, costs: Costs, cluster: Cluster) -> Load:
    """Return a load of which the cluster has capacity to spare, unless a rate is given."""
    load = Load(options.conversations, rate=1e9)
    if options.rate is None:
        most = simulated(load.drawn(1), costs, cluster)
        return replace(load, rate=USED * options.conversations / most.seconds)
    return replace(load, rate=options.rate)


def compare(options: argparse.Namespace, costs: Costs) -> None:
    """Print what is predicted and measured."""
    replicas = 1 if options.plain else 2
    cluster = Cluster(replicas, parallel=options.parallel, router=options.router)
    load = load_of(options, costs, cluster)
    given = load.drawn(1)
    predicted = simulated(given, costs, cluster)
    print(
        f"{len(given)} conversations of {load.turns} turns, {load.rate:.2f} begin per second; "
        f"{replicas} replicas", flush=True,
    )  # fmt: skip
    with served(options, replicas) as server:
        client = Client(server.url, seed=2)
        warm = [client.asked(client.ids(64), 16) for _ in range(4 * replicas)]

        async def warmed() -> None:
            await asyncio.gather(*warm)

        asyncio.run(warmed())
        found = asyncio.run(measured(client, given))
    for name, one, other in (
        ("tokens per second", predicted.rate, found.rate),
        ("median first token, ms", 1e3 * predicted.percentile(0.5), 1e3 * found.percentile(0.5)),
        ("p95 first token, ms", 1e3 * predicted.percentile(0.95), 1e3 * found.percentile(0.95)),
    ):
        print(f"{name}: predicted {one:.1f}, measured {other:.1f}, ratio {one / other:.2f}")


def machines(options: argparse.Namespace, costs: Costs) -> None:
    """Print how many replicas loads need, and what losses and autoscaling change."""
    costs = replace(costs, shares_cores=False)
    cluster = Cluster(1, parallel=options.parallel, router=options.router)
    for rate in options.rates:
        load = Load(round(rate * options.seconds), rate, groups=8)
        given = load.drawn(1)
        needed = replicas_needed(given, costs, cluster, options.first)
        if needed is None:
            print(f"{rate:g} conversations per second: one ingress is not enough", flush=True)
            continue
        cluster_of = replace(cluster, replicas=needed)
        half = given[-1].start / 2
        cases = {
            "prefix routing": cluster_of,
            "random routing": replace(cluster_of, router="random"),
            "a replica is lost": replace(cluster_of, losses=(half,)),
            "autoscaling from 1": replace(
                cluster_of, replicas=1, scaling=Scaling(1, 2 * needed, options.parallel / 2)
            ),
        }  # fmt: skip
        print(f"{rate:g} conversations per second: {needed} replicas", flush=True)
        for name, one in cases.items():
            found = simulated(given, costs, one)
            print(
                f"  {name}: {found.rate:.0f} tokens/s, first token p50 "
                f"{1e3 * found.percentile(0.5):.0f} ms, p95 {1e3 * found.percentile(0.95):.0f} ms, "
                f"{found.cached_tokens / found.prompt_tokens:.2f} of the prompt tokens cached, "
                f"replicas busy {found.busy_seconds / found.replica_seconds:.2f}", flush=True,
            )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model")
    add("--costs", type=Path, required=True, help="JSON file: written by calibrate, read later")
    add("--parts", nargs="+", choices=PARTS, default=PARTS[:2])
    add("--plain", action="store_true")
    add("--parallel", type=int, default=16)
    add("--conversations", type=int, default=40)
    add("--rate", type=float, help="conversations that begin per second")
    add("--router", choices=("prefix", "least", "random"), default="prefix")
    add("--rates", type=float, nargs="+", default=[1, 10, 100])
    add("--seconds", type=float, default=60, help="of a load of --rates")
    add("--first", type=float, default=1.0, help="most seconds to the first token, of 95%%")
    options = parser.parse_args()
    if options.model is None and set(options.parts) != {"machines"}:
        parser.error("--model is missing")
    if "calibrate" in options.parts:
        print("one replica on one core", flush=True)
        options.costs.write_text(json.dumps(asdict(calibrated(options)), indent=1))
    given: dict[str, Any] = json.loads(options.costs.read_text())
    costs = Costs(**{**given, "times": StepTimes(**given["times"])})
    print(json.dumps(given), flush=True)
    if "compare" in options.parts:
        compare(options, costs)
    if "machines" in options.parts:
        machines(options, costs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
