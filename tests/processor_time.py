"""Limits on processor time that hold on any machine.

A limit is stated for a reference machine (Python 3.11 on a Xeon with AMX). The same work takes
longer on a slower machine, and in a virtual machine whose host is busy, because the guest's clocks
count that time too. So a limit grows with the time of a known loop, measured at the same moment,
and the work is measured up to three times, of which the least counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TypeVar

T = TypeVar("T")
Clock = Callable[[], float]

# Processor seconds of ``known_work`` on the reference machine.
REFERENCE_SECONDS = 0.00135
TRIES = 3


def known_work() -> int:
    """Run a loop of interpreted Python that fits into a processor's first cache."""
    table: dict[int, int] = {}
    total = 0
    for i in range(20_000):
        table[i % 97] = total
        total = (total * 31 + i) % 1_000_003
    return total


def slowness() -> float:
    """Return how many times slower than the reference machine this one is now; at least 1."""
    return max(1.0, median(seconds_of(known_work) for _ in range(9)) / REFERENCE_SECONDS)


def seconds_of(work: Callable[[], object], clock: Clock = time.thread_time) -> float:
    """Return the seconds of ``clock`` that ``work`` takes."""
    began = clock()
    work()
    return clock() - began


def check_least(limit: float, measure: Callable[[], float]) -> None:
    """Fail unless one of three results of ``measure`` is below ``limit`` times ``slowness``.

    Each ``measure`` does the same work.
    """
    found: list[tuple[float, float]] = []
    for _ in range(TRIES):
        taken = measure()
        if taken < limit:
            return
        allowed = limit * slowness()
        if taken < allowed:
            return
        found.append((taken, allowed))
    told = ", ".join(f"{taken:.4g} of {allowed:.4g}" for taken, allowed in found)
    raise AssertionError(f"each of {TRIES} measurements is above its limit: {told}")


def within(seconds: float, work: Callable[[], T], clock: Clock = time.thread_time) -> T:
    """Return the result of ``work``; fail if it takes more than ``seconds`` (see check_least)."""
    results: list[T] = []
    check_least(seconds, lambda: seconds_of(lambda: results.append(work()), clock))
    return results[-1]
