"""The rotation table grows with the positions that are reached."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trinity.models.operations import Rotation, Temperature
from trinity.runtime import rotation
from trinity.runtime.rotation import RopeTable, TemperatureTable


@pytest.mark.parametrize("rope_dim", [2, 64, 100])
@pytest.mark.parametrize("step", [1, 999, 1 << 20])
@pytest.mark.parametrize("factors", [False, True])
def test_rows_have_the_same_bits_however_they_are_reached(
    rope_dim: int, step: int, factors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "_STEP_VALUES", step)
    half = rope_dim // 2
    stretched = np.geomspace(1, 8, half).astype(np.float32) if factors else None
    table = RopeTable(Rotation(10000.0, rope_dim), 300, stretched)
    for positions in (1, 2, 17, 17, 130, 300):
        table.reach(positions)
    frequencies = 10000.0 ** (-2.0 * np.arange(half) / rope_dim)
    if stretched is not None:
        frequencies = frequencies / stretched.astype(np.float64)
    angles = np.arange(300)[:, None] * frequencies
    expected = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    np.testing.assert_array_equal(table.values.view(np.uint32), expected.view(np.uint32))


def test_only_what_is_reached_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_STEP_VALUES", 640)
    table = RopeTable(Rotation(10000.0, 64), 100, None)
    table.values[:] = 7
    table.reach(11)
    assert (table.values[:20] != 7).all()
    assert (table.values[20:] == 7).all()


@pytest.mark.parametrize("step", [1, 99, 1 << 20])
def test_temperatures_grow_with_the_position(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_STEP_VALUES", step)
    table = TemperatureTable(Temperature(0.1, 16), 300)
    table.values[:] = 7
    for positions in (1, 17, 200):
        table.reach(positions)
    expected = [1 + 0.1 * math.log(1 + position // 16) for position in range(200)]
    np.testing.assert_array_equal(table.values[:200], np.array(expected, np.float32))
    assert (table.values[200 + step :] == 7).all()
