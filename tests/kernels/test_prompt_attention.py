"""Attention of prompts on AMX tiles: close to the formula, and each row alone decides its bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.kernels.launch import Slot, launch
from tests.kernels.operands import Attention, attention, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.isa import available_levels
from trinity_kernels.ops import attention as op
from trinity_kernels.ops import prompt_attention as rounding
from trinity_kernels.team import Team

pytestmark = pytest.mark.skipif("amx" not in available_levels(), reason="this CPU has no AMX")
KV_TYPES = sorted(rounding.TYPES)
BORDERS = (0, 15, 16, 31, 32, 127, 128, 129, 300)
# KV heads, query heads per KV head, head dimension.
SHAPES = ((2, 1, 8), (2, 3, 64), (1, 4, 80), (1, 5, 128), (1, 40, 24), (2, 13, 16), (1, 1, 576))
VARIANTS: list[dict[str, Any]] = [
    {},
    {"window": 1},
    {"window": 130},
    {"softcap": 5.0},
    {"with_sinks": True},
    {"value_dim": 48},
    {"value_dim": 5, "window": 130, "with_sinks": True},
    {"window": 129, "softcap": 30.0, "with_sinks": True},
]


def operands(kv_type: str, ends: Sequence[int], *shape: int, **more: Any) -> Attention:
    kv_heads, group, head_dim = shape
    return attention(kv_type, tuple(ends), kv_heads, group, head_dim, rounds=True, **more)


def run(a: Attention, kv_type: str, team: Team | None = None, rows: slice = slice(None)) -> Floats:
    """The result for some tokens."""
    slots = dict(a.slots)
    for slot in (op.Q, op.POSITIONS, op.CACHES, op.FIRSTS):
        array = slots.get(slot)
        if isinstance(array, np.ndarray):
            slots[slot] = array[rows]
    out = np.full_like(a.out[rows], np.nan)
    slots[op.OUT] = out
    launch(rounding.prompt_attention, "amx", kv_type, len(out), slots, team)
    return out


def array_of(a: Attention, slot: int) -> Any:
    value: Slot = a.slots[slot]
    assert isinstance(value, np.ndarray)
    return value


def is_close(found: Floats, a: Attention) -> bool:
    return bool(np.abs(found - a.expected).max() < 0.02 * np.abs(a.expected).max())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_close_to_the_formula(
    kv_type: str, shape: tuple[int, int, int], variant: dict[str, Any], two: Team
) -> None:
    for ends in (BORDERS, (700, 390, 255), range(100, 161), (299,) * 33):
        a = operands(kv_type, ends, *shape, **variant)
        found = run(a, kv_type)
        assert is_close(found, a)
        assert same_bits(run(a, kv_type, two), found)


@pytest.mark.parametrize("window", [0, 100, 128, 200])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("shape", [(2, 3, 64), (3, 1, 40), (1, 10, 32)])
def test_a_row_has_the_bits_that_it_gets_alone(
    kv_type: str, window: int, shape: tuple[int, int, int], two: Team
) -> None:
    """Two prompts, whose tokens cross the ends of blocks, and tokens of others between them."""
    ends = (*range(100, 161), 5, *range(250, 263), 9, 300, 301)
    a = operands(kv_type, ends, *shape)
    a.slots[op.WINDOW] = window
    found = run(a, kv_type, two)
    for first, last in ((0, 7), (7, 40), (40, 61), (61, len(ends))):
        assert same_bits(run(a, kv_type, rows=slice(first, last)), found[first:last])
    for row in (0, 27, 28, 29, 60, 61, 62, 70, 74, 75, 76):
        assert same_bits(run(a, kv_type, rows=slice(row, row + 1)), found[row : row + 1]), row


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_rows_that_see_different_parts_of_a_text(kv_type: str, two: Team) -> None:
    ends = (300,) * 33 + (299,) * 3 + (20,) * 21 + (130,) * 12
    a = operands(kv_type, ends, 2, 2, 32)
    expected = run(a, kv_type)
    a.slots[op.FIRSTS] = np.zeros(len(ends), np.int32)
    assert same_bits(run(a, kv_type, two), expected)
    a.slots[op.FIRSTS] = np.repeat(np.array([0, 140, 3, 17], np.int32), (15, 21, 21, 12))
    found = run(a, kv_type)
    assert same_bits(run(a, kv_type, two), found)
    assert same_bits(found[:15], expected[:15])
    for row in (15, 33, 36, 56, 68):
        assert same_bits(run(a, kv_type, rows=slice(row, row + 1)), found[row : row + 1])


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_scores_far_apart_neither_overflow_nor_vanish(kv_type: str) -> None:
    ends = range(250, 300)
    a = operands(kv_type, ends, 1, 4, 64)
    array_of(a, op.Q)[:] *= 100
    found = run(a, kv_type)
    assert np.isfinite(found).all()
    assert same_bits(run(a, kv_type, rows=slice(7, 8)), found[7:8])


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_value_that_is_not_finite_spoils_only_rows_that_see_it(kv_type: str) -> None:
    ends = range(100, 180)
    a = operands(kv_type, ends, 1, 3, 40)
    clean = run(a, kv_type)
    pages = a.kept[0]
    # Position 150: in the second block, at the layer of the slots.
    if kv_type == "Q8_0":
        pages["values"]["scales"][1, 1, 0, 1, 150 % 128] = np.nan
    else:
        pages["values"]["codes"][1, 1, 0, 150 % 128, 33] = np.inf
    found = run(a, kv_type)
    assert same_bits(found[:50], clean[:50])
    assert np.isnan(found[50:]).all()
    for row in (49, 50, 79):
        assert same_bits(run(a, kv_type, rows=slice(row, row + 1)), found[row : row + 1])


def test_a_sink_far_above_every_score() -> None:
    a = operands("F16", (200,), 1, 4, 64, with_sinks=True)
    array_of(a, op.SINKS)[:] = 500.0
    assert np.abs(run(a, "F16")).max() < 1e-30
