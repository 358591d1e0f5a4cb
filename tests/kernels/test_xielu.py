"""xIELU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import EPSILON, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import xielu as op
from trinity_kernels.team import Team

ALPHA_P, ALPHA_N, BETA, EPS = 0.8, 1.3, 0.5, -1e-6


def activated(x: Floats, level: str, team: Team | None = None) -> Floats:
    x = x.copy()
    slots = {
        op.X: x, op.STRIDE: x.strides[0], op.K: x.shape[1], op.ALPHA_P: ALPHA_P,
        op.ALPHA_N: ALPHA_N, op.BETA: BETA, op.EPS: EPS,
    }  # fmt: skip
    launch(op.xielu, level, "none", len(x), slots, team)
    return x


@pytest.mark.parametrize("shape", [(1, 5), (1, 1100), (3, 37)])
def test_bound_and_bits(shape: tuple[int, int], two: Team, levels: tuple[str, ...]) -> None:
    x = (3 * np.random.default_rng(shape).normal(size=shape)).astype(np.float32)
    x[0, :5] = 0, 100, -100, -1e-8, 1e-6
    found = activated(x, "portable")
    v = x.astype(np.float64)
    below = ALPHA_N * (np.expm1(np.minimum(v, EPS)) - v)
    expected = np.where(v > 0, ALPHA_P * v**2, below) + BETA * v
    # Some roundings of the largest term; exp(x) - 1 has those of 1.
    assert (np.abs(found - expected) <= 8 * EPSILON * (1 + v**2)).all()
    for level in levels:
        for team in (None, two):
            assert same_bits(activated(x, level, team), found), level
