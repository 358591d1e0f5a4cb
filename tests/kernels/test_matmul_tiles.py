"""Products on AMX tiles: I2_S bit for bit, blocks of 32 exact for few tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import launch_all
from tests.kernels.operands import (
    SCALE,
    Product,
    at_the_edge,
    lengths_and_shapes,
    product,
    row_lengths,
    same_bits,
)
from tests.kernels.reference import Doubles, Floats
from tests.matrix import KINDS, some
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.matmul import activation_tiles, operands
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types, tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.team import Team

pytestmark = pytest.mark.skipif("amx" not in available_levels(), reason="this CPU has no AMX")
TAGS = pytest.mark.parametrize("tag", some(sorted(tile_types()), KINDS))
# The last: more panels than are unpacked together, an odd number to each thread.
SHAPES = ((4, 16), (5, 53), (16, 37), (16, 165), (33, 33), (65, 18), (35, 293))


def run(p: Product, team: Team | None = None, many: bool = False) -> Floats:
    first, second = p.tile_slots(2)
    first[operands.MANY] = second[operands.MANY] = many
    packer = activation_tiles.tiles_of(FORMS[p.tag])
    before = p.out.copy()
    steps = [(packer, "none", first), (matmul_tiles, p.tag, second)]
    launch_all(steps, "amx", len(p.x), team)
    result = p.out.copy()
    p.out[:] = before
    return result


def bfloat_product(p: Product) -> tuple[Doubles, Doubles]:
    """Return the product of the rounded operands, and the sums of magnitudes."""
    values, magnitudes = reference.weight_values(p.tag, p.rows)
    if FORMS[p.tag] == "f32":
        assert p.bias is not None
        return p.expected, np.abs(p.x) @ magnitudes.T
    weights = reference.round_bf16(values.astype(np.float32)).astype(np.float64)
    x = p.x.astype(np.float64)
    if FORMS[p.tag] != "q19":  # of which activations are split in two
        x = reference.round_bf16(p.x).astype(np.float64)
    assert p.bias is not None
    expected = SCALE * (x @ weights.T) + p.bias + p.out
    return expected, np.abs(x) @ magnitudes.T


@pytest.mark.few(1)
@TAGS
def test_within_the_bound(tag: str, two: Team) -> None:
    for k, (tokens, n) in lengths_and_shapes(tag, SHAPES):
        p = product(tag, tokens, n, k)
        found = run(p, two)
        if FORMS[tag] == "ternary":
            assert same_bits(found, p.run("portable")), (k, tokens, n)
            continue
        panels = n // 16 * 16
        if tag in int8_tile_types() and tokens <= operands.TILE_ROWS:
            ratio = reference.tile_roundings(k) / reference.roundings(tag, k)
            error = np.abs(found - p.expected)
            assert np.all((error <= ratio * p.bound)[:, :panels]), (k, tokens, n)
            assert same_bits(found[:, panels:], p.run("avx512vnni")[:, panels:])
            continue
        expected, size = bfloat_product(p)
        error = np.abs(found - expected)[:, :panels]
        # Sums of K products in float32; a weight may round to the other bfloat16, and split
        # activations leave 2**-17 out, the product of the rests as much.
        rounding = 2.0**-12 if FORMS[tag] == "q8" else 2.0**-15
        assert p.bias is not None
        bound = (k * 2.0**-24 + rounding) * size + 2.0**-22 * (np.abs(p.bias) + np.abs(p.out))
        assert np.all(error <= bound[:, :panels]), (k, tokens, n)
        # Rows that fill no panel are multiplied as elsewhere.
        assert same_bits(found[:, panels:], p.run("avx512vnni")[:, panels:]), (k, tokens, n)


@pytest.mark.few(2)
@TAGS
def test_threads_and_other_tokens_leave_the_bits_alone(tag: str, two: Team) -> None:
    for tokens, first in ((33, 21), (16, 5)):
        p = product(tag, tokens, 149, row_lengths(tag)[-1])
        found = run(p)
        assert same_bits(found, run(p, two))
        assert same_bits(found[:first], run(p.first(first), two))


@pytest.mark.few(2)
@TAGS
def test_many_gives_few_tokens_the_bits_of_many(tag: str, two: Team) -> None:
    for k in row_lengths(tag):
        p = product(tag, 33, 149, k)
        found = run(p)
        for tokens in (1, operands.PACK_FROM - 1, operands.PACK_FROM, operands.TILE_ROWS, 17):
            fewer = p.first(tokens)
            assert same_bits(found[:tokens], run(fewer, two, many=True)), (k, tokens)


@TAGS
def test_few_tokens_go_row_by_row(tag: str, two: Team) -> None:
    p = product(tag, operands.PACK_FROM - 1, 37, row_lengths(tag)[2])
    assert same_bits(run(p, two), p.run("avx512vnni"))


@TAGS
def test_reads_nothing_beyond_the_weights(tag: str) -> None:
    for k in row_lengths(tag):
        p = product(tag, 5, 35, k)
        assert same_bits(run(replace(p, rows=at_the_edge(p.rows))), run(p))


@pytest.mark.parametrize(("form", "tag"), [("ternary", "I2_S"), ("q8", "Q8_0"), ("f32", "F16")])
@pytest.mark.parametrize("tokens", [4, 17, 33])
def test_tiles_are_laid_out_as_drawn(form: str, tag: str, tokens: int, two: Team) -> None:
    for k in row_lengths(tag):
        p = product(tag, tokens, 16, k)
        first, _ = p.tile_slots(2)
        packer = activation_tiles.tiles_of(form)
        launch_all([(packer, "none", first)], "amx", tokens, two)
        tiles = first[operands.TILES]
        assert isinstance(tiles, np.ndarray)
        expected = reference.pack_tiles(form, p.x)
        assert same_bits(tiles[: len(expected)], expected)
