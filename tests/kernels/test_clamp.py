"""Values limited to a range."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import same_bits
from trinity_kernels.ops import clamp as op
from trinity_kernels.team import Team


@pytest.mark.parametrize("limits", [(-1.5, 2.0), (-np.inf, 0.5), (-np.inf, np.inf), (0.25, 0.25)])
@pytest.mark.parametrize("shape", [(1, 5), (1, 1100), (3, 37)])
def test_bits(
    shape: tuple[int, int], limits: tuple[float, float], two: Team, levels: tuple[str, ...]
) -> None:
    x = (2 * np.random.default_rng(shape).normal(size=shape)).astype(np.float32)
    x[0, :4] = 0, np.nan, np.inf, -np.inf
    expected = np.clip(x, np.float32(limits[0]), np.float32(limits[1]))
    for level in levels:
        for team in (None, two):
            for out in (np.zeros_like(x), x.copy()):
                given = x if out[0, 2] == 0 else out  # the second time in place
                launch(op.clamp, level, "none", len(x), {
                    op.X: given, op.X_STRIDE: given.strides[0], op.OUT: out,
                    op.OUT_STRIDE: out.strides[0], op.K: x.shape[1], op.LOW: limits[0],
                    op.HIGH: limits[1],
                }, team)  # fmt: skip
                assert same_bits(out, expected), level
