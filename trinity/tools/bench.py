"""Measure tokens per second of prompt and generation, and compare with the read bandwidth.

The conventions are llama-bench's: random prompts, a warm-up that is not counted, mean and standard
deviation over rounds. "pp512" computes a prompt of 512 tokens, "tg128" generates 128 tokens, each
the most probable one; "b16" does so for 16 sequences in the same steps, "@ d4096" with 4096
positions already in each sequence's cache. "spec" generates a text that repeats a passage, with
speculation: the best case.
For an encoder, "text512" computes a text of 512 tokens, "b16" 16 of them, with as many per step as
its context holds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.options.checks import check_integer
from trinity.runtime.interface import Best, Engine, Rows
from trinity.runtime.options import PROPOSALS
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.profile import OperationTime
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.speculation.budget import SpeculationBudget
from trinity.runtime.speculation.proposals import Proposer
from trinity.tools.machine import anonymous_rss, peak_rss

MAX_BATCH = 16
PASSAGE = 64  # tokens of the passage that a speculative test repeats
Progress = Callable[[str], None]


class MeasurableEngine(Engine, Protocol):
    """An engine that decodes several sequences at once and knows the cost of a step."""

    def bytes_per_token(self, context: int) -> int:
        """Return the bytes of weights and cache that one token reads after ``context`` others."""
        ...

    def profile(self, rows: Sequence[Rows], *, rounds: int = 3) -> list[OperationTime]:
        """Return the time of every operation of a step."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurements to make.

    There is a test for each number of tokens at each depth and, for generation, for each batch
    size.
    """

    prompt_tokens: tuple[int, ...] = (512,)
    generated_tokens: tuple[int, ...] = (128,)
    batches: tuple[int, ...] = (1,)
    depths: tuple[int, ...] = (0,)
    rounds: int = 3
    profile: bool = False
    speculate: bool = False

    @property
    def context_length(self) -> int:
        """The number of positions that all tests need.

        A step has at most this many rows, and a batch needs a row for each sequence.
        """
        generated = max(self.generated_tokens, default=0)
        longest = max(*self.prompt_tokens, generated, 1) + max(self.depths, default=0)
        longest = max(longest, *self.batches)
        return max(longest, generated + PASSAGE) if self.speculate else longest

    def check(self, context_length: int) -> None:
        """Raise InputError if a number is out of range or exceeds the context."""
        check_integer("rounds", self.rounds, low=1)
        for batch in self.batches:
            check_integer("batch", batch, low=1, high=MAX_BATCH)
        for depth in self.depths:
            check_integer("depth", depth, low=0, high=context_length)
        left = context_length - max(self.depths, default=0)
        for name in ("prompt_tokens", "generated_tokens"):
            for count in getattr(self, name):
                check_integer(name, count, low=0, high=left)
        if self.speculate:
            needed = max(self.generated_tokens, default=0) + PASSAGE
            check_integer("context_length", context_length, low=needed)
        if not any((*self.prompt_tokens, *self.generated_tokens)):
            raise InputError(
                "there is nothing to measure: prompt and generation both have 0 tokens"
            )


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one test."""

    test: str
    tokens: int  # per round, of all sequences
    seconds: tuple[float, ...]
    batch: int = 1
    depth: int = 0
    # weights and cache that an average decode step reads; None for prompts and speculation
    bytes_per_step: int | None = None
    proposed: int | None = None  # speculative tokens of the last round
    accepted: int | None = None
    texts: int | None = None  # whole texts that an encoder computes in a round
    audio_seconds: float | None = None  # length of the audio that a speech model encodes in a round

    @property
    def rounds(self) -> list[float]:
        """Tokens per second of each round, of all sequences together."""
        return [self.tokens / seconds for seconds in self.seconds]

    @property
    def mean(self) -> float:
        """Mean tokens per second."""
        return statistics.fmean(self.rounds)

    @property
    def texts_per_second(self) -> float | None:
        """Mean whole texts per second of an encoder."""
        return None if self.texts is None else self.mean * self.texts / self.tokens

    @property
    def audio_speed(self) -> float | None:
        """Mean seconds of audio that a speech model encodes in a second."""
        return None if self.audio_seconds is None else self.mean * self.audio_seconds / self.tokens

    @property
    def deviation(self) -> float:
        """Sample standard deviation of the rounds; 0 for a single round."""
        return statistics.stdev(self.rounds) if len(self.rounds) > 1 else 0.0

    @property
    def bytes_per_second(self) -> float | None:
        """The average bandwidth of decoding."""
        return None if self.bytes_per_step is None else self.mean / self.batch * self.bytes_per_step


@dataclass(frozen=True, slots=True)
class Profile:
    """The operations of one step of a test, and the time of the whole step."""

    test: str
    step_seconds: float
    operations: tuple[OperationTime, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The result for one engine, at one instruction-set level.

    Units: bandwidth in bytes per second, sizes in bytes. ``read_bandwidth`` is measured right after
    the rounds. Memory is measured before it, because that measurement needs much memory.
    """

    measurements: tuple[Measurement, ...]
    threads: int
    isa: str
    read_bandwidth: float | None
    peak_rss: int | None
    anonymous_rss: int | None
    profiles: tuple[Profile, ...] = ()
    load_seconds: float | None = None

    def share(self, measurement: Measurement) -> float | None:
        """Return the part of the machine's read bandwidth that a decode test reached."""
        read = measurement.bytes_per_second
        return None if read is None or not self.read_bandwidth else read / self.read_bandwidth


def run_bench(
    engine: MeasurableEngine,
    plan: Plan,
    *,
    read_bandwidth: Callable[[int], float] | None = None,
    progress: Progress = lambda line: None,
) -> Report:
    """Measure an engine that nothing else uses.

    ``read_bandwidth`` maps a number of threads to bytes per second; None skips it. A test of 0
    tokens is skipped. Raises InputError if a number is out of range or exceeds the context.
    """
    plan.check(engine.context_length)
    if engine.encodes:
        _check_encoder(plan, engine)
    bench = Bench(engine)
    measurements, profiles = [], []
    for depth in plan.depths:
        tests = [("pp", count, 1) for count in plan.prompt_tokens]
        tests += [("tg", n, batch) for n in plan.generated_tokens for batch in plan.batches]
        if engine.encodes:
            tests = [("text", n, batch) for n in plan.prompt_tokens for batch in plan.batches]
        for kind, count, batch in tests:
            if count == 0:
                continue
            name = f"{kind}{count}" + (f" b{batch}" if batch > 1 else "")
            name += f" @ d{depth}" if depth else ""
            if depth:
                progress(f"{name}: filling the cache")
                bench.fill(depth, batch)
            progress(f"{name}: warm-up")
            run = {"pp": bench.prompt, "tg": bench.generation, "text": bench.texts}[kind]
            run(min(count, 2 * engine.prefill_chunk), depth, batch)
            seconds = []
            for number in range(plan.rounds):
                progress(f"{name}: round {number + 1} of {plan.rounds}")
                seconds.append(run(count, depth, batch))
            bytes_per_step = None
            if kind == "tg":
                weights = engine.bytes_per_token(0)
                cache = engine.bytes_per_token(depth + count // 2) - weights
                bytes_per_step = weights + batch * cache
            texts = batch if engine.encodes else None
            measurements.append(
                Measurement(
                    name, count * batch, tuple(seconds), batch, depth, bytes_per_step, texts=texts
                )
            )
            if plan.profile:
                progress(f"{name}: each operation alone")
                profiles.append(bench.profile(name, kind, count, depth, batch))
    if plan.speculate:
        measurements += [
            speculation(bench, count, plan.rounds, progress)
            for count in plan.generated_tokens
            if count
        ]
    memory = peak_rss(), anonymous_rss()
    bandwidth = None
    if read_bandwidth is not None:
        progress("measuring the read bandwidth")
        bandwidth = read_bandwidth(engine.threads)
    return Report(
        tuple(measurements), engine.threads, engine.isa, bandwidth, *memory, tuple(profiles)
    )


def _check_encoder(plan: Plan, engine: Engine) -> None:
    """Raise InputError for tests that an encoder cannot run, because it generates nothing."""
    for what, given in (
        ("--depth", any(plan.depths)),
        ("--speculate", plan.speculate),
        ("-p 0", not any(plan.prompt_tokens)),
    ):
        if given:
            raise InputError(
                f"the model ({engine.config.architecture}) is an encoder, which is measured with "
                f"whole texts: remove {what}, and give their lengths with --prompt-tokens"
            )


def speculation(bench: Bench, count: int, rounds: int, progress: Progress) -> Measurement:
    """Run the speculative test of ``count`` tokens."""
    name = f"tg{count} spec"
    progress(f"{name}: warm-up")
    bench.repetition(count)
    seconds, proposed, accepted = [], 0, 0
    for number in range(rounds):
        progress(f"{name}: round {number + 1} of {rounds}")
        elapsed, proposed, accepted = bench.repetition(count)
        seconds.append(elapsed)
    return Measurement(name, count, tuple(seconds), proposed=proposed, accepted=accepted)


class Bench:
    """An engine, random tokens for it, and the caches that tests share."""

    def __init__(self, engine: MeasurableEngine) -> None:
        self.engine = engine
        rng = np.random.default_rng(0)
        shape = (MAX_BATCH, engine.context_length)
        self.tokens = rng.integers(0, engine.config.vocab_size, shape, np.int32)
        self.caches: list[KVCache] = []
        self.logits = np.empty((MAX_BATCH, engine.config.vocab_size), np.float32)
        self.best = Best(SamplingParams().top_k, np.empty(0, np.int64))
        self.budget = SpeculationBudget()

    def fill(self, depth: int, batch: int) -> list[KVCache]:
        """Return the first ``batch`` caches, filled to ``depth`` positions."""
        while len(self.caches) < batch:
            self.caches.append(self.engine.new_cache())
        for row, cache in enumerate(self.caches[:batch]):
            cache.truncate(min(cache.length, depth))
            cache.keep(depth)  # the tests begin there repeatedly
            self.extend(cache, self.tokens[row, cache.length : depth])
        return self.caches[:batch]

    def extend(self, cache: KVCache, tokens: NDArray[np.int32]) -> None:
        """Compute ``tokens`` in steps as large as the engine allows."""
        for start in range(0, len(tokens), self.engine.prefill_chunk):
            part = tokens[start : start + self.engine.prefill_chunk]
            self.engine.step([Rows(cache, part, prompt=True)], out=self.logits)

    def prompt(self, count: int, depth: int = 0, batch: int = 1) -> float:
        """Return the seconds to compute ``count`` tokens as a prompt after ``depth`` others."""
        (cache,) = self.fill(depth, batch)
        tokens = self.tokens[0, depth : depth + count]
        started = perf_counter()
        self.extend(cache, tokens)
        return perf_counter() - started

    def texts(self, count: int, depth: int = 0, batch: int = 1) -> float:
        """Return the seconds to compute ``batch`` whole texts of ``count`` tokens at depth 0."""
        rows = self._texts(count, self.fill(depth, batch))
        most = max(1, self.engine.prefill_chunk // count)
        started = perf_counter()
        for first in range(0, batch, most):
            self.engine.step(rows[first : first + most])
        return perf_counter() - started

    def _texts(self, count: int, caches: Sequence[KVCache]) -> list[Rows]:
        return [
            Rows(cache, self.tokens[n, :count], 0, prompt=True) for n, cache in enumerate(caches)
        ]

    def generation(self, count: int, depth: int = 0, batch: int = 1) -> float:
        """Return the seconds to compute ``count`` tokens one by one, in ``batch`` sequences.

        Each token after the first is the most probable one, as in a response: after random tokens a
        model is so uncertain that the head's sketch has too many candidates. The logits are those
        that sampling with the usual options needs.
        """
        caches, engine = self.fill(depth, batch), self.engine
        tokens = self.tokens[:batch, depth].tolist()
        started = perf_counter()
        for _ in range(count):
            rows = [
                Rows(cache, [token], best=self.best)
                for cache, token in zip(caches, tokens, strict=True)
            ]
            tokens = engine.step(rows, out=self.logits).argmax(axis=1).tolist()
        return perf_counter() - started

    def repetition(self, count: int) -> tuple[float, int, int]:
        """Return the seconds to generate a repetitive text, and proposed and accepted tokens."""
        passage = self.tokens[0, :PASSAGE].tolist()
        cache = self.engine.new_cache()
        self.extend(cache, self.tokens[0, :PASSAGE])
        proposer, tokens, end = Proposer(), list(passage), PASSAGE + count
        proposed = accepted = 0
        started = before = perf_counter()
        while len(tokens) < end:
            tokens.append(passage[len(tokens) % PASSAGE])  # as if the logits had selected it
            most = min(PROPOSALS, self.engine.few - 1, end - len(tokens))
            proposals = proposer.propose(tokens, self.budget, min(most, cache.most_revocable))
            count = len(proposals)
            rows = Rows(cache, [tokens[-1], *proposals], 1 + count, revocable=count > 0)
            self.engine.step([rows], exact=bool(proposals), out=self.logits)
            right = 0
            while right < len(proposals) and proposals[right] == passage[len(tokens) % PASSAGE]:
                tokens.append(proposals[right])
                right += 1
            cache.truncate(len(tokens))
            proposed, accepted = proposed + len(proposals), accepted + right
            now = perf_counter()
            if proposals:
                self.budget.several(len(proposals), right, now - before)
            else:
                self.budget.single(now - before)
            before = now
        cache.release()
        return before - started, proposed, accepted

    def profile(self, test: str, kind: str, count: int, depth: int, batch: int) -> Profile:
        """Measure one step of a test, whole (median of five) and by operation."""
        if kind == "text":
            batch = min(batch, max(1, self.engine.prefill_chunk // count))
            seconds = [self.texts(count, depth, batch) for _ in range(5)]
            operations = self.engine.profile(self._texts(count, self.fill(depth, batch)))
            return Profile(test, statistics.median(seconds), tuple(operations))
        if kind == "pp":
            count = min(count, self.engine.prefill_chunk)
            seconds = [self.prompt(count, depth) for _ in range(5)]
        else:
            seconds = [self.generation(1, depth, batch) for _ in range(5)]
            count = 1
        rows = [
            Rows(cache, self.tokens[row, depth : depth + count], prompt=kind == "pp")
            for row, cache in enumerate(self.fill(depth, batch))
        ]
        operations = self.engine.profile(rows)
        return Profile(test, statistics.median(seconds), tuple(operations))
