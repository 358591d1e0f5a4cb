"""A buffer multiplied by a number."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import same_bits
from trinity_kernels.ops import scale as op
from trinity_kernels.team import Team


@pytest.mark.parametrize("shape", [(1, 5), (1, 1100), (3, 37), (2, 544)])
def test_scale(shape: tuple[int, int], level: str, two: Team) -> None:
    wide = np.random.default_rng(shape).normal(size=(shape[0], shape[1] + 3)).astype(np.float32)
    expected = wide.copy()
    expected[:, : shape[1]] *= np.float32(0.3)
    for team in (None, two):
        x = wide.copy()
        slots = {op.X: x, op.STRIDE: x.strides[0], op.K: shape[1], op.FACTOR: 0.3}
        launch(op.scale, level, "none", len(x), slots, team)
        assert same_bits(x, expected)
