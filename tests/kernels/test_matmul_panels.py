"""Products by panels of 16 rows on the vector levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import (
    Product,
    aligned,
    at_the_edge,
    lengths_and_shapes,
    product,
    row_lengths,
    same_bits,
)
from tests.kernels.reference import Floats
from tests.matrix import KINDS, some
from trinity_kernels.isa import BASES, available_levels
from trinity_kernels.ops.matmul import dot_block_rows, dot_ternary, operands, panel_layout, variants
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.ops.matmul.panels import matmul_panels
from trinity_kernels.quants import READERS
from trinity_kernels.team import Team

LEVELS = sorted(panel_layout.LEVELS & set(available_levels()))
pytestmark = pytest.mark.skipif(not LEVELS, reason="this CPU has none of the levels")
TAGS = pytest.mark.parametrize("tag", some(sorted(variants.types_of(matmul_panels)), KINDS))
LEVEL = pytest.mark.parametrize("level", LEVELS)
TERNARY = sorted(tag for tag in variants.types_of(matmul_panels) if FORMS[tag] == "ternary")
ROWS_OF_BLOCKS = {name for name in FORMS if dot_block_rows.block_rows(READERS[name])}
SHAPES = ((4, 16), (5, 53), (16, 37), (33, 33), (65, 18), (7, 80))


def run(p: Product, level: str, team: Team | None = None, many: bool = False) -> Floats:
    scratch = -(-variants.scratch_bytes(matmul_panels, p.tag, p.shape[1]) // 64) * 64
    values = p.slots() | {
        operands.SCRATCH: aligned(2 * scratch),
        operands.SCRATCH_STRIDE: scratch,
        operands.MANY: many,
    }
    before = p.out.copy()
    launch(matmul_panels, level, p.tag, len(p.x), values, team)
    result = p.out.copy()
    p.out[:] = before
    return result


@pytest.mark.few(3)
@LEVEL
@TAGS
def test_within_the_bound(level: str, tag: str, two: Team) -> None:
    for k, (tokens, n) in lengths_and_shapes(tag, SHAPES):
        p = product(tag, tokens, n, k)
        found = run(p, level, two)
        assert np.all(np.abs(found - p.expected) <= p.bound), (k, tokens, n)
        if FORMS[tag] == "ternary":
            assert same_bits(found, p.run("portable")), (k, tokens, n)
        rest = slice(n // 16 * 16, None)
        assert same_bits(found[:, rest], p.run(level)[:, rest]), (k, tokens, n)


@pytest.mark.few(2)
@LEVEL
@TAGS
def test_threads_and_other_tokens_leave_the_bits_alone(level: str, tag: str, two: Team) -> None:
    p = product(tag, 33, 53, row_lengths(tag)[-1])
    found = run(p, level)
    assert same_bits(found, run(p, level, two))
    assert same_bits(found[:21], run(p.first(21), level, two))


@pytest.mark.few(2)
@LEVEL
@TAGS
def test_many_gives_few_tokens_the_bits_of_many(level: str, tag: str, two: Team) -> None:
    for k in row_lengths(tag):
        p = product(tag, 33, 53, k)
        found = run(p, level)
        for tokens in range(1, operands.PACK_FROM):
            assert same_bits(found[:tokens], run(p.first(tokens), level, two, many=True)), k


@pytest.mark.parametrize("level", sorted(BASES.keys() & set(LEVELS)))
@TAGS
def test_a_level_has_the_bits_of_its_base(level: str, tag: str, two: Team) -> None:
    for k in row_lengths(tag):
        for tokens, n in SHAPES:
            p = product(tag, tokens, n, k)
            assert same_bits(run(p, level, two), run(p, BASES[level])), (k, tokens, n)


@LEVEL
@TAGS
def test_few_tokens_go_row_by_row(level: str, tag: str, two: Team) -> None:
    for k in row_lengths(tag):
        p = product(tag, operands.PACK_FROM - 1, 37, k)
        found = run(replace(p, rows=at_the_edge(p.rows)), level, two)
        assert same_bits(found, p.run(level)), k


@LEVEL
@pytest.mark.parametrize("tag", TERNARY)
def test_a_few_tokens_of_ternary_types(level: str, tag: str, two: Team) -> None:
    """Few tokens are not packed. The last token is repeated in an incomplete group of four."""
    for k in row_lengths(tag):
        p = product(tag, dot_ternary.MOST_TOKENS + 1, 48, k)
        expected = p.run("portable")
        for tokens in range(operands.PACK_FROM, len(p.x) + 1):
            assert same_bits(run(p.first(tokens), level, two), expected[:tokens]), (k, tokens)


@LEVEL
@TAGS
def test_reads_nothing_beyond_the_weights(level: str, tag: str) -> None:
    for k in row_lengths(tag):
        p = product(tag, 5, 32, k)
        assert same_bits(run(replace(p, rows=at_the_edge(p.rows)), level), run(p, level))


@LEVEL
@pytest.mark.parametrize("tag", some(sorted(ROWS_OF_BLOCKS), KINDS))
def test_rows_with_any_number_of_blocks_after_whole_chunks(level: str, tag: str) -> None:
    """Rows are multiplied four at a time; the last ones end where memory ends."""
    for blocks in range(1, 34):
        p = product(tag, 1, 16, 32 * blocks)
        found = run(replace(p, rows=at_the_edge(p.rows)), level)
        assert same_bits(found, p.run(level)), blocks
