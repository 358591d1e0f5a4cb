"""Runs single kernels on NumPy arrays, without an engine's plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.team import Team

Slot = int | float | bool | NDArray[Any] | None


def launch(
    kernel: Kernel, level: str, tag: str, tokens: int, values: Mapping[int, Slot],
    team: Team | None = None,
) -> None:  # fmt: skip
    """Run one kernel on ``tokens`` rows.

    ``values`` are the record's slots: an array stands for its address, None for 0, a float for
    its bits. ``team`` defaults to the calling thread alone.
    """
    launch_all([(kernel, tag, values)], level, tokens, team)


def launch_all(
    steps: Sequence[tuple[Kernel, str, Mapping[int, Slot]]],
    level: str,
    tokens: int,
    team: Team | None = None,
) -> None:
    """Run kernels one after the other, with a barrier between them."""
    rows = np.array([tokens], np.int64)
    plan = np.zeros(len(steps), record.RECORD)
    for slots, (kernel, tag, values) in zip(plan["slots"], steps, strict=True):
        slots[record.KERNEL] = kernel.address(level, tag)
        slots[record.BARRIER] = 1
        slots[record.ROWS] = rows.ctypes.data
        for slot, value in values.items():
            slots[slot] = _bits(value)
    (team or Team(1)).run(plan)


def _bits(value: Slot) -> int:
    if value is None:
        return 0
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data)
    return record.float_bits(value) if isinstance(value, float) else int(value)
