"""Gating: act(gate) * up."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import Slot, launch
from tests.kernels.operands import same_bits
from tests.kernels.reference import Floats
from trinity_kernels.isa import available_levels
from trinity_kernels.ops import activation as op
from trinity_kernels.team import Team

NAMES = pytest.mark.parametrize("name", op.ACTIVATIONS)
SHAPES = [(1, 5), (1, 64), (1, 1100), (3, 37), (4, 200)]


def gated(name: str, gate: Floats, up: Floats, level: str, team: Team | None = None) -> Floats:
    out = np.full_like(gate, np.nan)
    slots: dict[int, Slot] = {
        op.GATE: gate, op.UP: up, op.OUT: out, op.STRIDE: gate.strides[0], op.K: gate.shape[1],
    }  # fmt: skip
    launch(op.gated, level, name, len(gate), slots, team)
    return out


@NAMES
@pytest.mark.parametrize("shape", SHAPES)
def test_bound_and_bits(name: str, shape: tuple[int, int], two: Team) -> None:
    rng = np.random.default_rng(shape)
    gate = (6 * rng.normal(size=shape)).astype(np.float32)
    up = rng.normal(size=shape).astype(np.float32)
    expected = gated(name, gate, up, "portable")
    # Far from 0 SiLU and GELU are x times a factor whose error counts against 1.
    bound = 1e-6 * np.abs(gate.astype(np.float64) * up)
    if name == "relu2":
        bound = 2.0**-22 * np.abs(expected)
    assert np.all(np.abs(expected - reference.activate(name, gate) * up) <= bound)
    for level in available_levels():
        for team in (None, two):
            assert same_bits(gated(name, gate, up, level, team), expected), level


@NAMES
def test_extremes(name: str, level: str) -> None:
    x = np.array([0, 1e-30, -1e-30, 88, -88, 1e4, -1e4, 1e18, -1e18], np.float32)
    gate = np.tile(x, 4)[None, :]
    if name == "gelu":
        gate = np.clip(gate, -1e6, 1e6)  # its cube must stay a float32
    found = gated(name, gate, np.ones_like(gate), level)
    assert np.isfinite(found).all()
    expected = reference.activate(name, gate)
    assert np.all(
        np.abs(found - expected) <= 1e-6 * np.abs(expected) + 1e-30 + 1e-38 * np.abs(gate)
    )
