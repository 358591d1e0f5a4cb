"""Gated activations: act(gate) * up."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import Slot, launch
from tests.kernels.operands import same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import activation as op
from trinity_kernels.team import Team

NAMES = pytest.mark.parametrize("name", op.ACTIVATIONS)
SHAPES = [(1, 5), (1, 64), (1, 1100), (3, 37), (4, 200)]


def gated(
    name: str, gate: Floats, up: Floats | None, level: str, team: Team | None = None
) -> Floats:
    out = np.full_like(gate, np.nan)
    slots: dict[int, Slot] = {
        op.GATE: gate, op.UP: up, op.OUT: out, op.STRIDE: gate.strides[0], op.K: gate.shape[1],
        op.UP_STRIDE: 0 if up is None else up.strides[0],
    }  # fmt: skip
    launch(op.gated, level, name, len(gate), slots, team)
    return out


@NAMES
@pytest.mark.parametrize("shape", SHAPES)
def test_bound_and_bits(
    name: str, shape: tuple[int, int], two: Team, levels: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(shape)
    gate = (6 * rng.normal(size=shape)).astype(np.float32)
    up = rng.normal(size=shape).astype(np.float32) * 4
    factors = reference.factors(name, up)
    expected = gated(name, gate, up, "portable")
    # Far from 0 SiLU and GELU are x times a factor whose error counts against 1.
    bound = 1e-6 * np.abs(gate.astype(np.float64)) * (np.abs(factors) + np.abs(up) / 10)
    if name in ("relu2", "sigmoid"):
        bound = (2.0**-22 if name == "relu2" else 1e-6) * np.abs(expected)
    assert np.all(np.abs(expected - reference.activate(name, gate) * factors) <= bound)
    for level in levels:
        for team in (None, two):
            assert same_bits(gated(name, gate, up, level, team), expected), level


@NAMES
@pytest.mark.parametrize("shape", SHAPES)
def test_without_factors(
    name: str, shape: tuple[int, int], two: Team, levels: tuple[str, ...]
) -> None:
    gate = (6 * np.random.default_rng(shape).normal(size=shape)).astype(np.float32)
    expected = gated(name, gate, None, "portable")
    bound = 1e-6 * np.abs(gate) + 2.0**-22 * np.abs(expected)
    assert np.all(np.abs(expected - reference.activate(name, gate)) <= bound)
    for level in levels:
        for team in (None, two):
            assert same_bits(gated(name, gate, None, level, team), expected), level


@NAMES
def test_factors_in_wider_rows(name: str, level: str, two: Team) -> None:
    rng = np.random.default_rng(3)
    gate, wide = rng.normal(size=(3, 37)), rng.normal(size=(3, 100))
    gate, wide = gate.astype(np.float32), wide.astype(np.float32)
    expected = gated(name, gate, np.ascontiguousarray(wide[:, 40:77]), level)
    assert same_bits(gated(name, gate, wide[:, 40:], level, two), expected)


@NAMES
def test_extremes(name: str, level: str) -> None:
    x = np.array([0, 1e-30, -1e-30, 88, -88, 1e4, -1e4, 1e18, -1e18], np.float32)
    gate = np.tile(x, 4)[None, :]
    if name == "gelu":
        gate = np.clip(gate, -1e6, 1e6)  # its cube must stay a float32
    found = gated(name, gate, None, level)
    assert np.isfinite(found).all()
    expected = reference.activate(name, gate)
    assert np.all(
        np.abs(found - expected) <= 1e-6 * np.abs(expected) + 1e-30 + 1e-38 * np.abs(gate)
    )


@NAMES
def test_what_is_no_number_stays_visible(name: str, level: str) -> None:
    gate, up = np.ones((2, 1, 20), np.float32)
    gate[0, 3], gate[0, 17], up[0, 4], up[0, 18] = np.nan, np.nan, np.nan, np.nan
    found = np.isnan(gated(name, gate, up, level))[0]
    assert list(np.flatnonzero(found)) == ([4, 18] if name == "relu2" else [3, 4, 17, 18])
