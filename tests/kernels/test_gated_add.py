"""Addition of rows, each multiplied by its gate."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import Slot, launch
from tests.kernels.operands import same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import gated_add as op
from trinity_kernels.team import Team


def added(gate: Floats, x: Floats, out: Floats, level: str, team: Team | None = None) -> Floats:
    out = out.copy()
    slots: dict[int, Slot] = {
        op.GATE: gate, op.GATE_STRIDE: gate.strides[0], op.X: x, op.X_STRIDE: x.strides[0],
        op.OUT: out, op.OUT_STRIDE: out.strides[0], op.K: x.shape[1],
    }  # fmt: skip
    launch(op.gated_add, level, "none", len(x), slots, team)
    return out


@pytest.mark.parametrize("shape", [(1, 5), (1, 1100), (4, 37)])
def test_bound_and_bits(shape: tuple[int, int], two: Team, levels: tuple[str, ...]) -> None:
    rng = np.random.default_rng(shape)
    x, out = rng.normal(size=(2, *shape)).astype(np.float32)
    gate = np.full((shape[0], 16), np.nan, np.float32)  # one value of a row is read
    gate[:, 0] = [-100, 0.7, 3, 100][-shape[0] :]
    expected = added(gate, x, out, "portable")
    wide = out + x / (1 + np.exp(-gate[:, :1].astype(np.float64)))
    assert np.all(np.abs(expected - wide) <= 1e-6 * (np.abs(x) + np.abs(out)))
    for level in levels:
        for team in (None, two):
            assert same_bits(added(gate, x, out, level, team), expected), level
