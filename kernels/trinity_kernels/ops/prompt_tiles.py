"""Keys, values, queries and probabilities in AMX tiles, for attention of prompts.

Queries form groups of ``GROUP``, two halves of 16. Operands are bfloat16, in tiles of 1,024 bytes:

    keys           [16 positions][32 dimensions]: 16 pairs of dimensions of 16 positions
    values         [32 positions][16 dimensions]: 16 pairs of positions of 16 dimensions
    queries        [half][32 dimensions]: 16 queries of 32 dimensions
    probabilities  [half][32 positions]: 16 queries of 32 positions
    scores         float32 [32 positions][half][16 positions]: 16 queries of 16 positions
    sums           float32 [32 dimensions][half][16 dimensions]: 16 queries of 16 dimensions

Dimensions that a head lacks are zeros in keys and queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f16, get_f32, set_f32, set_i8
from trinity_kernels.ops.byte_softmax import power_of_2
from trinity_kernels.ops.kv_layout import get_element, load_16, padded_dim, tile_bytes, width
from trinity_kernels.ops.matmul.q8_tables import load_before
from trinity_kernels.ops.softcap import capped_f32x16
from trinity_kernels.tags import chosen

GROUP = 32
SCORES_BYTES = 4 * 128 * GROUP
PROBABILITIES_BYTES = 2 * 128 * GROUP
LOWEST = np.float32(-3e38)  # the score of a position that a query does not see
_multiply = tiles.wide_bf16[1, 1]


@instructions("void", "intp")
def _load_sums(builder: Any, address: Any) -> Any:
    """Load what ``tiles_store`` stored."""
    for tile in range(4):
        at = builder.add(address, simd.I64(1024 * tile))
        simd.call_named(
            builder, "llvm.x86.tileloadd64", ir.VoidType(),
            [simd.I8(tile), simd.pointer(builder, at, simd.I8), simd.I64(64)],
        )  # fmt: skip


@instructions("void", "intp", "f32x16", "f32x16")
def _store_pairs(builder: Any, address: Any, first: Any, second: Any) -> Any:
    """Write 16 pairs of bfloat16: an element of ``first``, then one of ``second``."""
    words = tiles.emit_bf16x32(builder, first, second)
    pairs = [lane + 16 * half for lane in range(16) for half in range(2)]
    words = simd.shuffle(builder, words, words, pairs)
    builder.store(words, simd.pointer(builder, address, words.type), align=1)


@chosen
def _four_dimensions(qt: Any, keys: int, head_dim: int, d: int) -> Any:
    """Dimensions d to d + 3 of 16 keys at a tile, as float32; zeros from head_dim on."""
    return _four_of_codes if qt.value == "Q8_0" else _four_of_floats


def _four_of_floats(qt: Any, keys: int, head_dim: int, d: int) -> Any:
    zero = simd.splat_f32x16(np.float32(0))
    at = keys + 16 * width(qt) * d
    if d + 4 <= head_dim:
        step = 16 * width(qt)
        return (
            load_16(qt, at), load_16(qt, at + step), load_16(qt, at + 2 * step),
            load_16(qt, at + 3 * step),
        )  # fmt: skip
    a, b, c = zero, zero, zero
    if d < head_dim:
        a = load_16(qt, at)
    if d + 1 < head_dim:
        b = load_16(qt, at + 16 * width(qt))
    if d + 2 < head_dim:
        c = load_16(qt, at + 32 * width(qt))
    return a, b, c, zero


def _four_of_codes(qt: Any, keys: int, head_dim: int, d: int) -> Any:
    fours = (head_dim + 3) // 4
    zero = simd.splat_f32x16(np.float32(0))
    if d // 4 >= fours:
        return zero, zero, zero, zero
    codes = simd.load_i32x16(keys + 16 * d)
    scale = simd.load_f16x16(keys + 64 * fours + d // 32 * 32)
    top = simd.splat_i32x16(24)
    a = simd.ashr_i32x16(codes << top, 24)
    b = simd.ashr_i32x16(codes << simd.splat_i32x16(16), 24)
    c = simd.ashr_i32x16(codes << simd.splat_i32x16(8), 24)
    e = simd.ashr_i32x16(codes, 24)
    return (
        simd.to_f32x16(a) * scale, simd.to_f32x16(b) * scale, simd.to_f32x16(c) * scale,
        simd.to_f32x16(e) * scale,
    )  # fmt: skip


@inline
def pack_keys(qt: Any, keys: int, first: int, last: int, head_dim: int, to: int) -> None:
    """Write the tiles of positions, from tile ``first`` to ``last``."""
    dims = (head_dim + 31) // 32 * 32
    for tile in range(first, last):
        source = keys + tile * int(tile_bytes(qt, head_dim))
        at = to + tile * 32 * dims
        for d in range(0, dims, 4):
            a, b, c, e = _four_dimensions(qt, source, head_dim, d)
            _store_pairs(at + 32 * d, a, b)
            _store_pairs(at + 32 * d + 64, c, e)


@chosen
def _values_16(qt: Any, values: int, padded: int, j: int, d: int) -> Any:
    """Dimensions d to d + 15 of the value of position ``j``, as float32."""
    if qt.value == "Q8_0":

        def scaled(qt: Any, values: int, padded: int, j: int, d: int) -> Any:
            scale = get_f16(values + 128 * padded + d // 32 * 256 + 2 * j)
            return load_16(qt, values + j * padded + d) * simd.splat_f32x16(scale)

        return scaled
    return lambda qt, values, padded, j, d: load_16(qt, values + width(qt) * (j * padded + d))


@inline
def _pack_pair(
    qt: Any, values: int, padded: int, value_dim: int, j: int, has_first: bool, has_second: bool,
    to: int, poison: Any,
) -> Any:  # fmt: skip
    """Write the values of positions j and j + 1, or zeros; add 0 times each value to ``poison``."""
    zero = simd.splat_f32x16(np.float32(0))
    for d in range(0, padded, 16):
        a, b = zero, zero
        if has_first:
            a = _values_16(qt, values, padded, j, d)
        if has_second:
            b = _values_16(qt, values, padded, j + 1, d)
        if d + 16 > value_dim:
            a = simd.select_below(simd.lane_index(), value_dim - d, a, zero)
            b = simd.select_below(simd.lane_index(), value_dim - d, b, zero)
        poison = simd.fma_f32x16(a, zero, simd.fma_f32x16(b, zero, poison))
        _store_pairs(to + 64 * d, a, b)
    return poison


@inline
def pack_values(qt: Any, values: int, low: int, high: int, value_dim: int, to: int) -> bool:
    """Write the tiles of positions from ``low`` to ``high``; other positions of these tiles are 0.

    Returns whether all these values are finite.
    """
    padded = padded_dim(value_dim)
    poison = simd.splat_f32x16(np.float32(0))
    for j in range(low // 32 * 32, (high + 31) // 32 * 32, 2):
        at = to + j // 32 * 64 * padded + j % 32 * 32
        if low <= j and j + 1 < high:
            poison = _pack_pair(qt, values, padded, value_dim, j, True, True, at, poison)
        else:
            first, second = low <= j < high, low <= j + 1 < high
            poison = _pack_pair(qt, values, padded, value_dim, j, first, second, at, poison)
    return bool(simd.sum_f32x16(poison) == np.float32(0))


@chosen
def _value(qt: Any, values: int, padded: int, j: int, d: int) -> Any:
    """Dimension d of the value of position ``j``."""
    if qt.value == "Q8_0":

        def scaled(qt: Any, values: int, padded: int, j: int, d: int) -> Any:
            scale = get_f16(values + 128 * padded + d // 32 * 256 + 2 * j)
            return np.float32(get_element(qt, values + j * padded + d) * scale)

        return scaled
    return lambda qt, values, padded, j, d: get_element(qt, values + width(qt) * (j * padded + d))


@inline
def remove_values(
    qt: Any, values: int, low: int, high: int, value_dim: int, to: int, rest: int
) -> None:
    """Set values that are not finite to 0 in their tiles.

    A float32 of each position from ``low`` to ``high`` at ``rest`` becomes NaN if the position has
    such a value, otherwise 0.
    """
    padded = padded_dim(value_dim)
    for j in range(low, high):
        poison = np.float32(0)
        for d in range(value_dim):
            x = np.float32(_value(qt, values, padded, j, d) * np.float32(0))
            if x != x:
                at = to + j // 32 * 64 * padded + j % 32 // 2 * 64 + d // 16 * 1024 + d % 16 * 4
                set_i8(at + j % 2 * 2, np.int8(0))
                set_i8(at + j % 2 * 2 + 1, np.int8(0))
            poison = np.float32(poison + x)
        set_f32(rest + 4 * j, poison)


@inline
def pack_query(q: int, head_dim: int, to: int) -> None:
    """Write one query to its rows of tiles, which begin at ``to``."""
    for d in range(0, head_dim, 32):
        low = load_before(q, d, head_dim)
        high = simd.splat_f32x16(np.float32(0))
        if d + 16 < head_dim:
            high = load_before(q, d + 16, head_dim)
        tiles.store_bf16x32(to + 32 * d, low, high)


@inline
def group_scores(queries: int, keys: int, dims: int, first: int, last: int, scores: int) -> None:
    """The scores of a group, for 32 positions at a time, from 32 * ``first`` to 32 * ``last``."""
    line = 32 * dims  # bytes of a half's queries, or of the keys of 16 positions
    for pair in range(first, last):
        k = keys + 2 * line * pair
        tiles.tiles_zero()
        for at in range(0, line, 1024):
            _multiply(queries + at, queries + line + at, k + at, k + line + at)
        tiles.tiles_store(scores + 4096 * pair)


@inline
def add_values(
    probabilities: int, values: int, padded: int, first: int, last: int, sums: int
) -> None:
    """Add the products of a group's probabilities with values, 32 positions at a time, to sums."""
    for d in range(0, padded, 32):
        to = sums + 128 * d
        _load_sums(to)
        v = values + 64 * d
        for j in range(first, last):
            p, at = probabilities + 1024 * j, v + 64 * padded * j
            _multiply(p, p + 4096, at, at + 1024)
        tiles.tiles_store(to)


@inline
def _row_vector(row: int, t: int) -> int:
    """The address of 16 float32 of a query among tiles of a group: vector ``t``."""
    return row + t // 2 * 4096 + t % 2 * 1024


@inline
def limit_scores(scores: int, low: int, high: int, scale: Any, softcap: Any) -> None:
    """Make the scores of one query what ``row_softmax`` takes if it does not see all positions.

    Positions outside of ``low`` to ``high`` get the lowest score. With a cap, scores are capped.
    """
    lanes, lowest = simd.lane_index(), simd.splat_f32x16(LOWEST)
    for t in range(8):
        at = _row_vector(scores, t)
        s = simd.load_f32x16(at)
        if softcap != 0:
            s = capped_f32x16(s * simd.splat_f32x16(scale), simd.splat_f32x16(softcap))
        s = simd.select_below(lanes, high - 16 * t, s, lowest)
        simd.store_f32x16(at, simd.select_below(lanes, low - 16 * t, lowest, s))


@inline
def _rescale(isa: Any, m: Any, larger: Any, lanes: int, sums: int, vectors: int) -> None:
    """Multiply a query's sums by 2**(m - larger)."""
    f = power_of_2(isa, simd.splat_f32x16(np.float32(m - larger)))
    simd.store_f32x16(lanes, simd.load_f32x16(lanes) * f)
    for t in range(vectors):
        at = _row_vector(sums, t)
        simd.store_f32x16(at, simd.load_f32x16(at) * f)


@inline
def row_softmax(
    isa: Any, scores: int, probabilities: int, factor: Any, m_at: int, lanes: int, sums: int,
    vectors: int,
) -> None:  # fmt: skip
    """Write the probabilities of one query for 128 positions, and scale what it has so far.

    ``m_at``: its largest exponent. ``lanes``: 16 sums of its probabilities. ``sums`` has
    ``vectors`` vectors of values.
    """
    s0, s1 = simd.load_f32x16(scores), simd.load_f32x16(scores + 1024)
    s2, s3 = simd.load_f32x16(scores + 4096), simd.load_f32x16(scores + 5120)
    s4, s5 = simd.load_f32x16(scores + 8192), simd.load_f32x16(scores + 9216)
    s6, s7 = simd.load_f32x16(scores + 12288), simd.load_f32x16(scores + 13312)
    most = simd.max_f32x16(simd.max_f32x16(s0, s1), simd.max_f32x16(s2, s3))
    more = simd.max_f32x16(simd.max_f32x16(s4, s5), simd.max_f32x16(s6, s7))
    m = get_f32(m_at)
    larger = np.float32(simd.max_lane_f32x16(simd.max_f32x16(most, more)) * factor)
    if larger > m:
        if m > LOWEST:
            _rescale(isa, m, larger, lanes, sums, vectors)
        set_f32(m_at, larger)
        m = larger
    shift, factors = simd.splat_f32x16(np.float32(-m)), simd.splat_f32x16(factor)
    s0 = power_of_2(isa, simd.fma_f32x16(s0, factors, shift))
    s1 = power_of_2(isa, simd.fma_f32x16(s1, factors, shift))
    s2 = power_of_2(isa, simd.fma_f32x16(s2, factors, shift))
    s3 = power_of_2(isa, simd.fma_f32x16(s3, factors, shift))
    s4 = power_of_2(isa, simd.fma_f32x16(s4, factors, shift))
    s5 = power_of_2(isa, simd.fma_f32x16(s5, factors, shift))
    s6 = power_of_2(isa, simd.fma_f32x16(s6, factors, shift))
    s7 = power_of_2(isa, simd.fma_f32x16(s7, factors, shift))
    tiles.store_bf16x32(probabilities, s0, s1)
    tiles.store_bf16x32(probabilities + 1024, s2, s3)
    tiles.store_bf16x32(probabilities + 2048, s4, s5)
    tiles.store_bf16x32(probabilities + 3072, s6, s7)
    found = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    simd.store_f32x16(lanes, simd.load_f32x16(lanes) + found)


@inline
def no_probabilities(probabilities: int) -> None:
    """Write the probabilities of a query that sees none of the positions."""
    zero = simd.splat_i32x16(0)
    for j in range(4):
        simd.store_i32x16(probabilities + 1024 * j, zero)
