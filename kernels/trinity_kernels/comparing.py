"""Running one kernel over NumPy arrays, and comparing what it wrote with what it should have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.team import Team

Array = NDArray[Any]


def run_kernel(kernel: Kernel, level: str, tag: str, rows: int, values: dict[int, int]) -> None:
    """Run a kernel on ``rows`` rows by one thread; ``values`` are the record's slots."""
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
    """Where an array begins."""
    return int(array.ctypes.data)


def differs(found: Array, expected: Array, bound: Array | float) -> str | None:
    """None where each number is within ``bound`` of the expected one, else the worst of them."""
    error = np.abs(found.astype(np.float64) - expected)
    if np.all(error <= bound):
        return None
    worst = np.unravel_index(np.nanargmax(np.where(np.isnan(error), np.inf, error)), error.shape)
    place = tuple(int(i) for i in worst)
    return f"at {place}: {found[worst]!r} instead of {expected[worst]!r}"


def same(found: Array, expected: Array) -> str | None:
    """None where all values are equal, else the first that is not."""
    if np.array_equal(found, expected):
        return None
    place = int(np.flatnonzero(found.reshape(-1) != expected.reshape(-1))[0])
    return f"value {place}: {found.reshape(-1)[place]} instead of {expected.reshape(-1)[place]}"


def random_numbers() -> np.random.Generator:
    """The same numbers for every check."""
    return np.random.default_rng(7)
