"""Run one kernel on NumPy arrays, and compare what it wrote with what it should have written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.team import Team

Array = NDArray[Any]


def run_kernel(kernel: Kernel, level: str, tag: str, rows: int, values: dict[int, int]) -> None:
    """Run a kernel on ``rows`` rows in one thread; ``values`` are the record's slots."""
    count = np.array([rows], np.int64)
    plan = np.zeros(1, record.RECORD)
    slots = plan["slots"][0]
    slots[record.KERNEL] = kernel.address(level, tag)
    slots[record.ROWS] = count.ctypes.data
    for slot, value in values.items():
        slots[slot] = value
    team = Team(1)
    try:
        team.run(plan)
    finally:
        team.close()


def at(array: Array) -> int:
    """The address of an array."""
    return int(array.ctypes.data)


def aligned(array: Array) -> int:
    """The first multiple of 64 among the addresses of an array that is 64 bytes too long."""
    return -(-at(array) // 64) * 64


def differs(found: Array, expected: Array, bound: Array | float) -> str | None:
    """None if each number is within ``bound`` of the expected one, else the worst, in words."""
    error = np.abs(found.astype(np.float64) - expected)
    if np.all(error <= bound):
        return None
    worst = np.unravel_index(np.nanargmax(np.where(np.isnan(error), np.inf, error)), error.shape)
    place = tuple(int(i) for i in worst)
    return f"at {place}: {found[worst]!r} instead of {expected[worst]!r}"


def same(found: Array, expected: Array) -> str | None:
    """None if all values are equal, else the first that differs, in words."""
    if np.array_equal(found, expected):
        return None
    place = int(np.flatnonzero(found.reshape(-1) != expected.reshape(-1))[0])
    return f"value {place}: {found.reshape(-1)[place]} instead of {expected.reshape(-1)[place]}"


def first_error(errors: Iterable[str | None]) -> str | None:
    """The first of several checks' errors; the checks after it do not run."""
    return next(filter(None, errors), None)


def random_numbers() -> np.random.Generator:
    """Return a random generator; each check gets the same numbers."""
    return np.random.default_rng(7)
