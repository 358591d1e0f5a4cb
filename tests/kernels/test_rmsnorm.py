"""RMSNorm of rows, of heads, in place, and of picked rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import Slot, launch
from tests.kernels.operands import EPSILON, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.isa import available_levels
from trinity_kernels.ops import rmsnorm as op
from trinity_kernels.team import Team

SHAPES = [(1, 1, 1), (1, 1, 5), (3, 1, 37), (2, 3, 80), (5, 1, 2560), (1, 1, 544)]


def normalize(
    x: Floats, weight: Floats, level: str, *, eps: float = 1e-5, out: Floats | None = None,
    index: list[int] | None = None, team: Team | None = None, add: bool = False,
) -> Floats:  # fmt: skip
    """x (rows, groups, K)."""
    rows = len(x) if index is None else len(index)
    out = np.zeros((rows, *x.shape[1:]), np.float32) if out is None else out
    slots: dict[int, Slot] = {
        op.X: x, op.X_STRIDE: x.strides[0], op.WEIGHT: weight, op.OUT: out,
        op.OUT_STRIDE: out.strides[0], op.K: x.shape[2], op.EPS: eps, op.GROUPS: x.shape[1],
        op.INDEX: None if index is None else np.array(index, np.int32), op.ADD: add,
    }  # fmt: skip
    launch(op.rmsnorm, level, "none", rows, slots, team)
    return out


def operands(shape: tuple[int, int, int]) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(shape)
    x = (3 * rng.normal(size=shape)).astype(np.float32)
    return x, rng.normal(size=shape[2]).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
def test_within_the_bound(shape: tuple[int, int, int], level: str, two: Team) -> None:
    x, weight = operands(shape)
    expected = reference.rmsnorm(x, weight, 1e-5)
    found = normalize(x, weight, level, team=two)
    assert np.all(np.abs(found - expected) <= (shape[2] / 16 + 10) * EPSILON * np.abs(expected))


@pytest.mark.parametrize("shape", SHAPES)
def test_levels_and_threads_leave_the_bits_alone(shape: tuple[int, int, int], two: Team) -> None:
    x, weight = operands(shape)
    expected = normalize(x, weight, "portable")
    for level in available_levels():
        for team in (None, two):
            assert same_bits(normalize(x, weight, level, team=team), expected), level


def test_in_place_and_of_picked_rows(level: str) -> None:
    x, weight = operands((4, 1, 53))
    whole = normalize(x, weight, level)
    assert same_bits(normalize(x, weight, level, index=[3, 1]), whole[[3, 1]])
    normalize(x, weight, level, out=x)
    assert same_bits(x, whole)


def test_zeros_and_large_values(level: str) -> None:
    weight = np.ones(64, np.float32)
    assert not normalize(np.zeros((1, 1, 64), np.float32), weight, level).any()
    large = np.full((1, 1, 64), 1e18, np.float32)
    assert np.abs(normalize(large, weight, level) - 1).max() < 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_added_onto_what_is_there(shape: tuple[int, int, int], level: str) -> None:
    x, weight = operands(shape)
    residual = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    expected = residual + normalize(x, weight, level)
    found = normalize(x, weight, level, out=residual.copy(), add=True)
    assert same_bits(found, expected)
