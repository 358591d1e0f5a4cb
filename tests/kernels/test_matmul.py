"""Products of every type on every level: bounds, equal bits, extremes, no read past the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import launch
from tests.kernels.operands import at_the_edge, product, row_lengths, same_bits
from tests.matrix import types
from trinity_kernels.ops.matmul import float_block, operands
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.quants import TYPES
from trinity_kernels.selftest.activation_forms import ternary_codes
from trinity_kernels.team import Team

TAGS = pytest.mark.parametrize("tag", types(FORMS))
SHAPES = ((1, 1, True), (1, 37, False), (5, 17, False), (65, 3, True))


@TAGS
def test_within_the_bound_of_rounding(tag: str, level: str, two: Team) -> None:
    for k in row_lengths(tag):
        for tokens, n, plain in SHAPES:
            p = product(tag, tokens, n, k, plain=plain)
            for team in (None, two):
                error = np.abs(p.run(level, team) - p.expected)
                assert np.all(error <= p.bound), (k, tokens, n, (error / p.bound).max())


@pytest.mark.few(4)
@TAGS
def test_levels_threads_and_other_tokens_leave_the_bits_alone(
    tag: str, two: Team, levels: tuple[str, ...]
) -> None:
    for k in row_lengths(tag)[-2:]:
        p = product(tag, 7, 53, k)
        expected = p.run("portable")
        for level in levels:
            for team in (None, two):
                assert same_bits(p.run(level, team), expected), (level, k, team)
            alone = p.out.copy()
            for token in range(len(p.x)):
                one = slice(token, token + 1)
                slots = {**p.slots(one), operands.OUT: alone[one]}
                launch(matmul, level, tag, 1, slots, two)
            assert same_bits(alone, expected), (level, k, "one by one")


@pytest.mark.parametrize("tag", sorted(float_block.TYPES & {"F32", "F16", "BF16"}))
def test_rows_beyond_the_cache_have_the_bits_of_dot_products(
    tag: str, two: Team, levels: tuple[str, ...]
) -> None:
    """Several blocks of rows by tokens of more bytes than rows stay in the cache for."""
    k, tokens = 4096, 9
    assert 4 * k * tokens > float_block.TOKEN_BYTES
    n = 2 * float_block.ROW_BYTES // TYPES[tag].nbytes((1, k)) + 5
    p = product(tag, tokens, n, k)
    expected = p.run("portable")
    for level in levels:
        for team in (None, two):
            assert same_bits(p.run(level, team), expected), (level, team)


def test_i2_s_rounds_only_after_an_exact_sum(level: str) -> None:
    p = product("I2_S", 3, 33, 27 * 128)
    codes, s = ternary_codes(p.x)
    weights, _ = reference.weight_values("I2_S", p.rows)
    totals = codes.astype(np.int64) @ weights.astype(np.int64).T
    y = totals.astype(np.float32) / s[:, None] * np.float32(0.3125)
    assert p.bias is not None
    assert same_bits(p.run(level), p.out + (y + p.bias))


@pytest.mark.parametrize("tag", types(tag for tag in FORMS if TYPES[tag].block_size > 1))
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_extreme_codes_and_activations(tag: str, byte: int, level: str) -> None:
    """All codes are equal, including Q8_0's -128; activations are at the ends of their range."""
    block = TYPES[tag].block_size
    k = 3 * block if block > 32 else 27 * 32
    rows = reference.random_weights(np.random.default_rng(1), tag, 5, k)
    fields = rows.view(TYPES[tag].block)
    for name in TYPES[tag].block.names or ():
        if not reference.is_number(tag, name) and name != "e":
            whole = np.full(fields[name].dtype.itemsize, byte, np.uint8)
            fields[name][...] = whole.view(fields[name].dtype)[0]
    reference.limit_scales(tag, fields)
    x = np.full((4, k), 3, np.float32)
    x[1] = -3
    x[2, ::2] = -3
    x[3] = 0
    p = product(tag, 4, 5, k, x=x, rows=rows, plain=True)
    found = p.run(level)
    assert np.all(np.abs(found - p.expected) <= p.bound)
    assert not found[3].any()


@TAGS
def test_reads_nothing_beyond_its_operands(tag: str, level: str) -> None:
    for k in row_lengths(tag):
        p = product(tag, 2, 3, k, plain=True)
        used = p.packed if FORMS[tag] != "f32" else p.packed[:, : 4 * k]
        guarded = replace(p, rows=at_the_edge(p.rows), packed=at_the_edge(used.copy()))
        assert same_bits(guarded.run(level), p.run(level))
