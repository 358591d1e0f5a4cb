"""Makes the sketch of an output head, from which bounds of logits are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.memory import aligned
from trinity.runtime.records.record_list import Address, RecordList
from trinity.runtime.weights import Weight
from trinity_kernels.ops import sketch_codes as op
from trinity_kernels.ops.sketch import PANEL, panel_bytes
from trinity_kernels.quants import TYPES
from trinity_kernels.record import RECORD
from trinity_kernels.team import Team

_AT_ONCE = 1 << 18  # weights that are converted to float32 at once


@dataclass(frozen=True, slots=True)
class Sketch:
    """A head's sketch, as ops/sketch.py describes it."""

    panels: NDArray[np.uint8]
    """The codes and scales."""
    shifts: NDArray[np.float32]
    """u + 7.5 and v of each column, (2, k)."""


def make_sketch(
    weight: Weight, address: Address, ending: Callable[[], bool] = lambda: False
) -> Sketch | None:
    """A new sketch of ``weight``; None if ``ending`` returns True, or a weight is not finite.

    The random numbers come from the operating system's seed, so nobody can choose weights for which
    they are bad.
    """
    n, k, team = weight.n, weight.k, Team(1)
    u, v = np.random.default_rng().random((2, k), np.float32)
    size = panel_bytes(k)
    panels, bad = aligned(n // PANEL * size), np.zeros(1, np.uint8)
    shifts = u + np.float32(7.5)  # u is drawn from [0, 1), and so is u + 1/2 of ops/sketch.py
    count, data = np.zeros(1, np.int64), weight.data.reshape(-1)
    step = max(1, _AT_ONCE // (k * PANEL)) * PANEL
    try:
        for first in range(0, n, step):
            if ending():
                return None
            rows = min(step, n - first)
            part = data[first * weight.stride : (first + rows) * weight.stride]
            values = TYPES[weight.type].dequantize(part, (rows, k))
            records = RecordList(address, count)
            records.record(op.sketch_codes, "none", {
                op.X: values.ctypes.data, op.X_STRIDE: 4 * k, op.N: rows, op.K: k,
                op.OUT: int(panels.ctypes.data) + first // PANEL * size, op.OUT_STRIDE: size,
                op.SHIFTS: shifts.ctypes.data, op.BAD: bad.ctypes.data,
            })  # fmt: skip
            plan = np.zeros(1, RECORD)
            plan["slots"] = records.records
            team.run(plan)
            if bad[0]:
                return None
    finally:
        team.close()
    return Sketch(panels, np.stack([u + np.float32(7), v]))
