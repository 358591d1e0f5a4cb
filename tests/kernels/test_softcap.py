"""Soft-capping: c * tanh(x / c)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import EPSILON, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import softcap as op
from trinity_kernels.team import Team


def capped(x: Floats, cap: float, level: str, team: Team | None = None) -> Floats:
    x = x.copy()
    slots = {op.X: x, op.STRIDE: x.strides[0], op.K: x.shape[1], op.CAP: cap}
    launch(op.softcap, level, "none", len(x), slots, team)
    return x


@pytest.mark.parametrize("cap", [1.0, 30.0, 50.0])
@pytest.mark.parametrize("shape", [(1, 5), (1, 1100), (3, 37)])
def test_bound_and_bits(
    shape: tuple[int, int], cap: float, two: Team, levels: tuple[str, ...]
) -> None:
    x = (2 * cap * np.random.default_rng(shape).normal(size=shape)).astype(np.float32)
    x[0, :4] = 0, 1e6, -1e6, 1e-6
    expected = capped(x, cap, "portable")
    # c - 2 c / (exp + 1): some roundings of c.
    error = np.abs(expected - cap * np.tanh(x.astype(np.float64) / cap))
    assert error.max() <= 8 * EPSILON * cap
    assert np.abs(expected).max() <= cap
    for level in levels:
        for team in (None, two):
            assert same_bits(capped(x, cap, level, team), expected), level
