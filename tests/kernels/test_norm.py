"""Norms of rows and heads, in place and of selected rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import Slot, launch
from tests.kernels.operands import EPSILON, same_bits
from tests.kernels.reference import Doubles, Floats
from trinity_kernels.ops import norm as op
from trinity_kernels.team import Team

SHAPES = [(1, 1, 1), (1, 1, 5), (3, 1, 37), (2, 3, 80), (5, 1, 2560), (1, 1, 544)]
KINDS = pytest.mark.parametrize("kind", op.NORMS)


def normalize(
    kind: str, x: Floats, weight: Floats, level: str, *, eps: float = 1e-5,
    out: Floats | None = None, index: list[int] | None = None, team: Team | None = None,
    add: bool = False, bias: Floats | None = None,
) -> Floats:  # fmt: skip
    """Normalize x (rows, groups, K); a weight of two dimensions has one vector per group."""
    rows = len(x) if index is None else len(index)
    out = np.zeros((rows, *x.shape[1:]), np.float32) if out is None else out
    slots: dict[int, Slot] = {
        op.X: x, op.X_STRIDE: x.strides[0], op.WEIGHT: weight, op.OUT: out,
        op.WEIGHT_STEP: weight.strides[0] if weight.ndim == 2 else 0, op.BIAS: bias,
        op.OUT_STRIDE: out.strides[0], op.K: x.shape[2], op.EPS: eps, op.GROUPS: x.shape[1],
        op.INDEX: None if index is None else np.array(index, np.int32), op.ADD: add,
    }  # fmt: skip
    launch(op.norm, level, kind, rows, slots, team)
    return out


def operands(shape: tuple[int, int, int]) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(shape)
    x = (3 * rng.normal(size=shape) + 1).astype(np.float32)
    return x, rng.normal(size=shape[2]).astype(np.float32)


def bound(kind: str, x: Floats, weight: Floats, expected: Doubles) -> Doubles:
    """Return an error bound; subtracting the mean rounds relative to the largest value."""
    size = np.abs(expected)
    if kind == "layer":
        wide = x.astype(np.float64)
        scale = 1 / np.sqrt(wide.var(axis=-1, keepdims=True) + 1e-5)
        size = size + np.abs(weight) * scale * np.abs(wide).max(axis=-1, keepdims=True)
    return (x.shape[-1] / 16 + 10) * EPSILON * size


@KINDS
@pytest.mark.parametrize("shape", SHAPES)
def test_within_the_bound(kind: str, shape: tuple[int, int, int], level: str, two: Team) -> None:
    x, weight = operands(shape)
    expected = reference.norm(kind, x, weight, 1e-5)
    found = normalize(kind, x, weight, level, team=two)
    assert np.all(np.abs(found - expected) <= bound(kind, x, weight, expected))


def in_lanes(values: Floats) -> np.float32:
    """Sum as the module documents: 16 lanes, then halves added to halves."""
    lanes = np.zeros(16, np.float32)
    for start in range(0, len(values), 16):
        some = values[start : start + 16]
        lanes[: len(some)] += some
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return np.float32(lanes[0])


@KINDS
def test_bits_are_those_of_the_promised_steps(kind: str, level: str) -> None:
    for k in (5, 37, 544):
        x, weight = operands((1, 1, k))
        row, one = x[0, 0], np.float32(1)
        mean = in_lanes(row) / np.float32(k) if kind == "layer" else np.float32(0)
        centred = row - mean
        r = one / np.sqrt(in_lanes(centred * centred) / np.float32(k) + np.float32(1e-5))
        expected = centred * r * weight
        assert same_bits(normalize(kind, x, weight, level)[0, 0], expected), k
        shifted = normalize(kind, x, weight, level, bias=weight)
        assert same_bits(shifted[0, 0], expected + weight), k


@KINDS
@pytest.mark.parametrize("shape", SHAPES)
def test_levels_and_threads_leave_the_bits_alone(
    kind: str, shape: tuple[int, int, int], two: Team, levels: tuple[str, ...]
) -> None:
    x, weight = operands(shape)
    expected = normalize(kind, x, weight, "portable", bias=weight)
    for level in levels:
        for team in (None, two):
            found = normalize(kind, x, weight, level, team=team, bias=weight)
            assert same_bits(found, expected), level


@KINDS
def test_in_place_and_of_picked_rows(kind: str, level: str) -> None:
    x, weight = operands((4, 1, 53))
    whole = normalize(kind, x, weight, level)
    assert same_bits(normalize(kind, x, weight, level, index=[3, 1]), whole[[3, 1]])
    normalize(kind, x, weight, level, out=x)
    assert same_bits(x, whole)


@KINDS
def test_a_weight_for_each_group(kind: str, level: str, two: Team) -> None:
    x, _ = operands((2, 3, 37))
    weights, biases = np.random.default_rng(1).normal(size=(2, 3, 37)).astype(np.float32)
    found = normalize(kind, x, weights, level, bias=biases, team=two)
    for g in range(3):
        alone = normalize(kind, x[:, g : g + 1].copy(), weights[g], level, bias=biases[g].copy())
        assert same_bits(found[:, g : g + 1].copy(), alone), g


def test_zeros_and_large_values(level: str) -> None:
    weight = np.ones(64, np.float32)
    for kind in op.NORMS:
        assert not normalize(kind, np.zeros((1, 1, 64), np.float32), weight, level).any()
    large = np.full((1, 1, 64), 1e18, np.float32)
    assert np.abs(normalize("rms", large, weight, level) - 1).max() < 1e-6
    large[..., ::2] *= -1
    assert np.abs(np.abs(normalize("layer", large, weight, level)) - 1).max() < 1e-6


@KINDS
@pytest.mark.parametrize("shape", SHAPES)
def test_added_onto_what_is_there(kind: str, shape: tuple[int, int, int], level: str) -> None:
    x, weight = operands(shape)
    residual = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    expected = residual + normalize(kind, x, weight, level)
    found = normalize(kind, x, weight, level, out=residual.copy(), add=True)
    assert same_bits(found, expected)
