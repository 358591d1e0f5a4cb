"""Copies of parts of rows between buffers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import Slot, launch
from tests.kernels.operands import same_bits
from trinity_kernels.ops import copy as op
from trinity_kernels.team import Team


@pytest.mark.parametrize(
    ("tokens", "groups", "width", "first", "to"),
    [(1, 1, 1, 0, 0), (1, 4, 64, 3, 5), (3, 5, 37, 11, 0), (2, 1, 513, 0, 7)],
)
def test_pieces(
    tokens: int, groups: int, width: int, first: int, to: int, level: str, two: Team
) -> None:
    rng = np.random.default_rng([tokens, groups, width])
    x = rng.normal(size=(tokens, groups, first + width + 2)).astype(np.float32)
    before = rng.normal(size=(tokens, groups, to + width + 1)).astype(np.float32)
    expected = before.copy()
    expected[..., to : to + width] = x[..., first : first + width]
    for team in (None, two):
        out = before.copy()
        slots: dict[int, Slot] = {
            op.X: x[..., first:], op.X_STRIDE: x.strides[0], op.X_STEP: x.strides[1],
            op.OUT: out[..., to:], op.OUT_STRIDE: out.strides[0], op.OUT_STEP: out.strides[1],
            op.GROUPS: groups, op.WIDTH: width,
        }  # fmt: skip
        launch(op.copy, level, "none", tokens, slots, team)
        assert same_bits(out, expected)
