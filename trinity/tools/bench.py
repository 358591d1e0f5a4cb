"""Tokens per second of prompt and generation, against the machine's own read bandwidth.

The conventions are llama-bench's: random tokens, an empty context, a warm-up that is not counted,
mean and standard deviation over rounds.
"""

from __future__ import annotations

import math
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.runtime.interface import Engine
from trinity.runtime.sampling_params import check_integer
from trinity.runtime.session import Session

PACKAGES = ("trinity-llm", "numpy", "numba", "llvmlite")


class MeasurableEngine(Engine, Protocol):
    """An engine that knows how many bytes a decode step reads."""

    def bytes_per_token(self, context: int) -> int:
        """Bytes of weights and cache that one token after ``context`` others reads."""
        ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """One test: "pp512" evaluates a prompt of 512 tokens, "tg128" generates 128 one by one."""

    test: str
    tokens: int
    seconds: tuple[float, ...]

    @property
    def rounds(self) -> list[float]:
        """Tokens per second of each round."""
        return [self.tokens / seconds for seconds in self.seconds]

    @property
    def mean(self) -> float:
        """Mean tokens per second."""
        return statistics.fmean(self.rounds)

    @property
    def deviation(self) -> float:
        """Sample standard deviation of the rounds; 0 for a single one."""
        return statistics.stdev(self.rounds) if len(self.rounds) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one bench run.

    Units: bandwidth in bytes per second, sizes in bytes. ``read_bandwidth`` is measured right
    after the rounds, memory right before it, for that measurement needs much of its own.
    ``bytes_per_token`` is the reading of the generation test's average step.
    """

    measurements: tuple[Measurement, ...]
    threads: int
    isa: str
    read_bandwidth: float | None
    bytes_per_token: int
    peak_rss: int | None
    anonymous_rss: int | None

    @property
    def bandwidth_share(self) -> float | None:
        """Part of the machine's read bandwidth that decoding reached."""
        decoding = [m.mean for m in self.measurements if m.test.startswith("tg")]
        if not decoding or self.read_bandwidth is None:
            return None
        return decoding[0] * self.bytes_per_token / self.read_bandwidth

    def as_object(self) -> dict[str, object]:
        """The report as JSON has it, with the machine and the versions."""
        return {
            "machine": machine(),
            "versions": versions(),
            "threads": self.threads,
            "isa": self.isa,
            "tests": [
                {
                    "test": m.test,
                    "tokens": m.tokens,
                    "tokens_per_second_mean": m.mean,
                    "tokens_per_second_sd": m.deviation,
                    "tokens_per_second_rounds": m.rounds,
                    "seconds_rounds": list(m.seconds),
                }
                for m in self.measurements
            ],
            "read_bandwidth_bytes_per_second": self.read_bandwidth,
            "bytes_per_token": self.bytes_per_token,
            "bandwidth_share": self.bandwidth_share,
            "peak_rss_bytes": self.peak_rss,
            "anonymous_rss_bytes": self.anonymous_rss,
        }


def run_bench(
    engine: MeasurableEngine,
    *,
    prompt_tokens: int = 512,
    generated_tokens: int = 128,
    rounds: int = 3,
    read_bandwidth: Callable[[int], float] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measure an engine that nobody else uses meanwhile.

    ``read_bandwidth`` maps a number of threads to bytes per second; None leaves it out. A test
    of 0 tokens is left out.
    Raises: InputError where a number is out of range or exceeds the context.
    """
    check_integer("rounds", rounds, low=1)
    for name, number in (
        ("prompt_tokens", prompt_tokens),
        ("generated_tokens", generated_tokens),
    ):
        check_integer(name, number, low=0, high=engine.context_length)
    if prompt_tokens == generated_tokens == 0:
        raise InputError("there is nothing to measure: prompt and generation both have 0 tokens")
    rng = np.random.default_rng(0)
    longest = max(prompt_tokens, generated_tokens)
    tokens = rng.integers(0, engine.config.vocab_size, longest, np.int32)
    session = Session(engine)
    tests = [
        (f"pp{prompt_tokens}", prompt_tokens, run_prompt),
        (f"tg{generated_tokens}", generated_tokens, run_generation),
    ]
    measurements = []
    for test, count, run in tests:
        if count == 0:
            continue
        progress(f"{test}: warm-up")
        run(session, tokens[: min(count, 2 * engine.prefill_chunk)])
        seconds = []
        for number in range(rounds):
            progress(f"{test}: round {number + 1} of {rounds}")
            seconds.append(run(session, tokens[:count]))
        measurements.append(Measurement(test, count, tuple(seconds)))
    memory = peak_rss(), anonymous_rss()
    bandwidth = None
    if read_bandwidth is not None:
        progress("measuring the read bandwidth")
        bandwidth = read_bandwidth(engine.threads)
    return Report(
        tuple(measurements),
        engine.threads,
        engine.isa,
        bandwidth,
        engine.bytes_per_token(generated_tokens // 2),
        *memory,
    )


def run_prompt(session: Session, tokens: NDArray[np.int32]) -> float:
    """Seconds to evaluate ``tokens`` as a prompt in an empty context."""
    session.reset()
    ids = tokens.tolist()
    started = perf_counter()
    session.extend(ids)
    return perf_counter() - started


def run_generation(session: Session, tokens: NDArray[np.int32]) -> float:
    """Seconds to evaluate ``tokens`` one by one in an empty context."""
    session.reset()
    ids = tokens.tolist()
    started = perf_counter()
    for token in ids:
        session.extend([token])
    return perf_counter() - started


def markdown(report: Report, *, name: str, size: int, parameters: int) -> str:
    """llama-bench's table, and what the figures mean for this machine."""
    rows = [
        "| model | size | params | isa | threads | test | t/s |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    rows += [
        f"| {name} | {size / 2**30:.2f} GiB | {quantity(parameters)} | {report.isa} "
        f"| {report.threads} | {m.test} | {m.mean:.2f} ± {m.deviation:.2f} |"
        for m in report.measurements
    ]
    share, bandwidth = report.bandwidth_share, report.read_bandwidth
    if share is not None and bandwidth is not None:
        read = share * bandwidth
        rows.append(
            f"\ndecoding read {read / 1e9:.1f} GB/s, {share:.0%} of the "
            f"{bandwidth / 1e9:.1f} GB/s that {report.threads} threads can read"
        )
    if report.peak_rss is not None:
        anonymous = report.anonymous_rss
        own = "" if anonymous is None else f", {anonymous / 2**20:.0f} MiB without the mapped file"
        rows.append(f"peak memory {report.peak_rss / 2**20:.0f} MiB{own}")
    return "\n".join(rows)


def quantity(number: int) -> str:
    """A number of parameters as people write it: 1.24 B, 260.03 K."""
    exponent = min(3, max(0, int(math.log10(max(number, 1)) // 3)))
    return f"{number / 1000**exponent:.2f} {('', 'K', 'M', 'B')[exponent]}".strip()


def peak_rss() -> int | None:
    """The most memory of this process so far, mapped file included; None where it is unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def anonymous_rss() -> int | None:
    """Memory of this process now that belongs to no file; None where the system does not say."""
    found = first_value("/proc/self/status", "RssAnon")
    return None if found is None else int(found.split()[0]) * 1024


def machine() -> dict[str, object]:
    """The processor and the system."""
    import os

    cpu = first_value("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()
    return {"cpu": cpu, "logical_cpus": os.cpu_count(), "system": platform.platform()}


def versions() -> dict[str, str]:
    """Python and the packages that the figures depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def first_value(path: str, key: str) -> str | None:
    """The value of the first "key: value" line of a Linux status file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        return None
    return None
