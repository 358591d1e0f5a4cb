"""Heads multiplied by the sigmoid or the softplus of their gates."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import EPSILON, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import head_gate as op
from trinity_kernels.team import Team


def gated(x: Floats, gate: Floats, tag: str, level: str, team: Team | None = None) -> Floats:
    x = x.copy()
    slots = {
        op.X: x, op.X_STRIDE: x.strides[0], op.GATE: gate, op.GATE_STRIDE: gate.strides[0],
        op.HEADS: gate.shape[1], op.WIDTH: x.shape[1] // gate.shape[1],
    }  # fmt: skip
    launch(op.head_gate, level, tag, len(x), slots, team)
    return x


@pytest.mark.parametrize("tag", op.ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 5, 37), (1, 600, 1), (3, 4, 16)])
def test_bound_and_bits(
    shape: tuple[int, int, int], tag: str, two: Team, levels: tuple[str, ...]
) -> None:
    rows, heads, width = shape
    random = np.random.default_rng(shape)
    gate = (4 * random.normal(size=(rows, heads))).astype(np.float32)
    gate[0, :4] = 0, np.nan, 80, -80
    x = random.normal(size=(rows, heads * width)).astype(np.float32)
    found = gated(x, gate, tag, "portable")
    exact = gate.astype(np.float64)
    with np.errstate(invalid="ignore"):
        factor = {"sigmoid": 1 / (1 + np.exp(-exact)), "softplus": np.logaddexp(0, exact)}[tag]
    expected = x * np.repeat(factor, width, axis=1)
    assert np.isnan(found[0, width : 2 * width]).all()
    known = ~np.isnan(expected)
    error = np.abs(found - expected)[known]
    assert (error <= 16 * EPSILON * np.abs(expected[known]) + 1e-30).all()
    for level in levels:
        for team in (None, two):
            assert same_bits(gated(x, gate, tag, level, team), found), level
