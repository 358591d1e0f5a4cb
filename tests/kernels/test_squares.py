"""Sums of squares by column: values, order, and threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.launch import launch
from trinity_kernels.ops import squares as op
from trinity_kernels.team import Team

SHAPES = [(1, 1), (1, 8), (3, 5), (2, 37), (17, 64), (5, 2560)]


def add(
    x: NDArray[np.float32], sums: NDArray[np.float64], level: str, team: Team | None = None
) -> NDArray[np.float64]:
    k = len(sums) - 1
    launch(
        op.add_squares, level, "none", len(x),
        {op.X: x, op.X_STRIDE: x.strides[0], op.SUMS: sums, op.K: k}, team,
    )  # fmt: skip
    return sums


def operand(rows: int, k: int) -> NDArray[np.float32]:
    """Rows of very different sizes, with values between them that do not belong."""
    rng = np.random.default_rng((rows, k))
    x = rng.standard_normal((rows, k + 3)) * 10.0 ** rng.integers(-6, 6, (rows, 1))
    return x.astype(np.float32)


@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_sums_and_number_of_rows(rows: int, k: int, level: str, two: Team) -> None:
    x = operand(rows, k)
    exact = [1 + math.fsum(v * v for v in column) for column in x[:, :k].T.astype(float).tolist()]
    for team in (None, two):
        found = add(x, np.ones(k + 1), level, team)
        np.testing.assert_allclose(found[:k], exact, rtol=rows * 2.0**-52, atol=0)
        assert found[k] == 1 + rows


@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_levels_threads_and_steps_leave_the_bits_alone(
    rows: int, k: int, two: Team, levels: tuple[str, ...]
) -> None:
    x = operand(rows, k)
    expected = add(x, np.zeros(k + 1), "portable")
    for level in levels:
        for team in (None, two):
            assert np.array_equal(add(x, np.zeros(k + 1), level, team), expected)
            sums = np.zeros(k + 1)
            for row in range(rows):
                add(x[row : row + 1], sums, level, team)
            assert np.array_equal(sums, expected)


def test_what_is_not_finite_shows(level: str) -> None:
    x = np.array([[1, np.inf, np.nan, 3e38]], np.float32)
    found = add(x, np.zeros(5), level)
    assert found[0] == 1
    assert found[1] == np.inf
    assert np.isnan(found[2])
    assert found[3] == float(np.float32(3e38)) ** 2
