"""Attention over the cache: error bounds, equal bits, and merging of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.launch import launch, launch_all
from tests.kernels.operands import Attention, attention, same_bits
from tests.kernels.reference import Floats
from trinity_kernels.ops import attention as op
from trinity_kernels.ops.kv_layout import KV_TYPES
from trinity_kernels.team import Team

BORDERS = (0, 15, 16, 127, 128, 129, 300)
# KV heads, query heads per KV head, head dimension.
SHAPES = ((2, 1, 8), (2, 3, 64), (1, 4, 80), (1, 5, 128), (1, 8, 24), (2, 13, 16))
CASES = pytest.mark.parametrize(
    ("kv_type", "shape"), [(kv, shape) for kv in KV_TYPES for shape in SHAPES]
)


def whole(a: Attention, kv_type: str, level: str, team: Team | None = None) -> Floats:
    a.out[:] = np.nan
    launch(op.attention, level, kv_type, a.tokens, a.slots, team)
    return a.out.copy()


def by_parts(a: Attention, kv_type: str, level: str, team: Team | None = None) -> Floats:
    a.out[:] = np.nan
    steps = [(op.attention_parts, kv_type, a.slots), (op.attention_merge, "none", a.slots)]
    launch_all(steps, level, a.tokens, team)
    return a.out.copy()


@CASES
def test_within_the_bound(kv_type: str, shape: tuple[int, int, int], level: str, two: Team) -> None:
    a = attention(kv_type, BORDERS, *shape)
    for found in (whole(a, kv_type, level), whole(a, kv_type, level, two)):
        assert np.all(np.abs(found - a.expected) <= a.bound)


@CASES
def test_parts_levels_and_threads_leave_the_bits_alone(
    kv_type: str, shape: tuple[int, int, int], two: Team, levels: tuple[str, ...]
) -> None:
    a = attention(kv_type, BORDERS, *shape)
    expected = whole(a, kv_type, "portable")
    for level in levels:
        for team in (None, two):
            assert same_bits(whole(a, kv_type, level, team), expected), level
            assert same_bits(by_parts(a, kv_type, level, team), expected), level


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_other_tokens_leave_the_bits_alone(kv_type: str, level: str) -> None:
    many = attention(kv_type, (300, 5, 300), 1, 5, 80)
    found = whole(many, kv_type, level)
    one = {**many.slots, op.OUT: many.out[2:], op.Q: _q(many)[2:]}
    launch(op.attention, level, kv_type, 1, one)
    assert same_bits(many.out[2], found[2])


@pytest.mark.parametrize("shape", [(2, 1, 8), (3, 1, 40), (1, 2, 32)])
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_tokens_that_see_the_same_leave_the_bits_alone(
    kv_type: str, shape: tuple[int, int, int], level: str, two: Team
) -> None:
    """In bidirectional attention, a block has rows of one text and of the next."""
    ends = (300,) * 33 + (299,) * 3 + (20,) * 21 + (130,) * 12
    a = attention(kv_type, ends, *shape)
    expected = whole(a, kv_type, level)
    assert np.all(np.abs(expected - a.expected) <= a.bound)
    a.slots[op.FIRSTS] = np.zeros(len(ends), np.int32)
    for team in (None, two):
        assert same_bits(whole(a, kv_type, level, team), expected)
    a.slots[op.FIRSTS] = np.repeat(np.array([0, 140, 3, 17], np.int32), (15, 21, 21, 12))
    found = whole(a, kv_type, level)
    assert same_bits(whole(a, kv_type, level, two), found)
    assert same_bits(found[:15], expected[:15])
    for row in (15, 33, 36, 56, 68):
        one = {
            **a.slots,
            op.OUT: a.out[row:],
            op.Q: _q(a)[row:],
            op.POSITIONS: a.slots[op.POSITIONS][row:],  # type: ignore[index]
            op.FIRSTS: a.slots[op.FIRSTS][row:],  # type: ignore[index]
        }
        launch(op.attention, level, kv_type, 1, one)
        assert same_bits(a.out[row], found[row])


@pytest.mark.parametrize("shape", [(2, 3, 64), (3, 1, 40), (1, 10, 32)])
@pytest.mark.parametrize("window", [0, 100, 128, 200])
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_tokens_of_a_prompt_have_the_bits_of_single_tokens(
    kv_type: str, window: int, shape: tuple[int, int, int], two: Team, levels: tuple[str, ...]
) -> None:
    """Two prompts, whose tokens cross the ends of blocks, and tokens of others between them."""
    ends = (*range(100, 161), 5, *range(250, 263), 9, 300, 301)
    a = attention(kv_type, ends, *shape)
    a.slots[op.WINDOW] = window
    for level in levels:
        expected = by_parts(a, kv_type, level)
        for team in (None, two):
            assert same_bits(whole(a, kv_type, level, team), expected), level


def _q(a: Attention) -> Floats:
    q = a.slots[op.Q]
    assert isinstance(q, np.ndarray)
    return q


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_scores_far_apart_neither_overflow_nor_vanish(kv_type: str, level: str) -> None:
    a = attention(kv_type, (300, 129), 1, 4, 64)
    _q(a)[:] *= 100
    found = whole(a, kv_type, level)
    assert np.isfinite(found).all()
    assert same_bits(by_parts(a, kv_type, level), found)


VARIANTS: list[dict[str, Any]] = [
    {"window": 1},
    {"window": 16},
    {"window": 130},
    {"softcap": 5.0},
    {"with_sinks": True},
    {"value_dim": 48},
    {"value_dim": 5, "window": 130, "with_sinks": True},
    {"window": 129, "softcap": 30.0, "with_sinks": True},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("shape", [(2, 3, 64), (1, 5, 128), (1, 8, 24), (1, 11, 24)])
def test_windows_caps_and_sinks(
    kv_type: str,
    shape: tuple[int, int, int],
    variant: dict[str, Any],
    two: Team,
    levels: tuple[str, ...],
) -> None:
    for positions in (BORDERS, (700, 390, 255)):
        a = attention(kv_type, positions, *shape, **variant)
        first = whole(a, kv_type, "portable")
        assert np.all(np.abs(first - a.expected) <= a.bound)
        for level in levels:
            assert same_bits(whole(a, kv_type, level, two), first), level
            assert same_bits(by_parts(a, kv_type, level, two), first), level


def test_a_sink_far_above_every_score(level: str) -> None:
    a = attention("F32", (200,), 1, 4, 64, with_sinks=True)
    sinks = a.slots[op.SINKS]
    assert isinstance(sinks, np.ndarray)
    sinks[:] = 500.0
    found = whole(a, "F32", level)
    assert np.abs(found).max() < 1e-30
