"""The fast Walsh-Hadamard transform of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import EPSILON, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import hadamard as op
from trinity_kernels.team import Team


def transformed(
    x: Floats, factors: Floats, block: int, level: str, team: Team | None = None, *,
    after: bool = False,
) -> Floats:  # fmt: skip
    out = np.full_like(x, np.nan)
    slots = {
        op.X: x, op.STRIDE: x.strides[0], op.OUT: out, op.OUT_STRIDE: out.strides[0],
        op.FACTORS: factors, op.K: x.shape[1], op.BLOCK: block, op.AFTER: after,
    }  # fmt: skip
    launch(op.hadamard, level, "none", len(x), slots, team)
    return out


def sylvester(block: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    i = np.arange(block)
    bits = i[:, None] & i
    odd = sum(bits >> shift & 1 for shift in range(block.bit_length()))
    return (1.0 - 2.0 * (odd % 2)).reshape(block, block)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("rows", "width", "block"),
    [(1, 5, 1), (3, 24, 8), (2, 48, 16), (1, 5120, 1024), (5, 192, 64)],
)
def test_bound_and_bits(
    rows: int, width: int, block: int, after: bool, two: Team, levels: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(block)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    factors = (rng.choice([-1, 1], width) / np.sqrt(block)).astype(np.float32)
    expected = transformed(x, factors, block, "portable", after=after)
    exact = (x if after else x * factors).astype(np.float64).reshape(rows, -1, block)
    exact = (exact @ sylvester(block)).reshape(rows, width) * (factors if after else 1)
    # A rounding for each distance, of values that grow by the square root of 2.
    bound = 2 * (block.bit_length() + 1) * EPSILON * np.abs(x).max() * np.sqrt(block)
    assert np.abs(expected - exact).max() <= bound
    for level in levels:
        for team in (None, two):
            assert same_bits(transformed(x, factors, block, level, team, after=after), expected)


def test_the_transform_before_and_after_undo_each_other(level: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 256)).astype(np.float32)
    factors = (rng.choice([-1, 1], 256) / 8).astype(np.float32)
    there = transformed(x, factors, 64, level)
    assert np.abs(transformed(there, factors, 64, level, after=True) - x).max() < 1e-5
