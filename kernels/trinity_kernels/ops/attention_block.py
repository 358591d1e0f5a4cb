"""Attention of some queries over one block of positions: scores, softmax, sum of values.

Keys and values have the layout of kv_layout.py, codes that of kv_codes.py. Four queries share every
load of keys and values, with as many sums as the level's registers hold.
Numerics: as attention.py; the bits are the same on every level and for any number of queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.lanes import tree_sum, zero_lanes
from trinity_kernels.memory import fma_f32, get_f16, get_f32, set_f32
from trinity_kernels.ops import kv_codes
from trinity_kernels.ops.exponential import exp_f32, exp_f32x16
from trinity_kernels.ops.kv_layout import get_element, load_16, padded_dim, tile_bytes, width
from trinity_kernels.ops.softcap import capped, capped_f32x16
from trinity_kernels.tags import chosen, constant, per_level


@constant
def _tiles_at_once(isa: Any) -> int:
    """Tiles of keys, or vectors of values, whose sums for four queries fit the registers."""
    return 2 if isa.value in ("amx", "avx512vnni") else 1


@chosen
def _begin(isa: Any, qt: Any, q: int, head_dim: int, codes: int) -> Any:
    """The address of a query as ``_score`` takes it; ``codes``: memory for its codes."""
    if qt.value == "Q8_0":
        return _quantized
    return lambda isa, qt, q, head_dim, codes: q


def _quantized(isa: Any, qt: Any, q: int, head_dim: int, codes: int) -> int:
    kv_codes.quantize_query(isa, q, head_dim, codes)
    return codes


@chosen
def _score(qt: Any, q: int, keys: int, j: int, head_dim: int) -> Any:
    """The product of a query with the key of position ``j``."""
    return kv_codes.score if qt.value == "Q8_0" else _product


def _product(qt: Any, q: int, keys: int, j: int, head_dim: int) -> Any:
    s = np.float32(0)
    for d in range(head_dim):
        at = width(qt) * ((j // 16 * head_dim + d) * 16 + j % 16)
        s = fma_f32(get_f32(q + 4 * d), get_element(qt, keys + at), s)
    return s


@chosen
def _weight(qt: Any, p: Any, scale: int) -> Any:
    """A probability, times the scale at that address if values have scales."""
    if qt.value == "Q8_0":
        return lambda qt, p, scale: np.float32(p * get_f16(scale))
    return lambda qt, p, scale: p


@constant
def _step_ahead(qt: Any) -> int:
    """Bytes to prefetch for each position and 32 dimensions."""
    return 32 if qt.value == "Q8_0" else 64


def attend_block(
    isa: Any, qt: Any, q: int, q_step: int, head_dim: int, value_dim: int, group: int, keys: int,
    values: int, hidden: int, count: int, scale: Any, softcap: Any, probabilities: int, parts: int,
    part_stride: int, codes: int, ahead: int,
) -> None:  # fmt: skip
    """Compute the parts of ``group`` queries over ``count`` positions.

    Queries are ``q_step`` bytes apart. The first ``hidden`` positions are before the window.
    ``codes``: memory of ``kv_codes.codes_bytes``. ``ahead``: the address of the next block's keys,
    for prefetching.
    """
    padded = padded_dim(value_dim)
    for g in range(group):
        p = probabilities + 4 * 128 * g
        query = _begin(isa, qt, q + g * q_step, head_dim, codes)
        m = np.float32(-np.inf)
        for j in range(hidden, count):
            s = np.float32(_score(qt, query, keys, j, head_dim) * scale)
            if softcap != 0:
                s = capped(s, softcap)
            set_f32(p + 4 * j, s)
            m = max(m, s)
        lanes = zero_lanes()
        for j in range(hidden, count):
            e = exp_f32(np.float32(get_f32(p + 4 * j) - m))
            set_f32(p + 4 * j, e)
            lanes[j % 16] = np.float32(lanes[j % 16] + e)
        part = parts + g * part_stride
        for d in range(padded):
            total = np.float32(0)
            if d < value_dim:
                scales = values + 128 * padded + d // 32 * 256
                for j in range(hidden, count):
                    v = get_element(qt, values + width(qt) * (j * padded + d))
                    x = _weight(qt, get_f32(p + 4 * j), scales + 2 * j)
                    total = fma_f32(x, v, total)
            set_f32(part + 4 * d, total)
        set_f32(part + 4 * padded, m)
        set_f32(part + 4 * padded + 4, tree_sum(lanes))


@chosen
def _scores_1(
    isa: Any, qt: Any, q: int, head_dim: int, keys: int, tiles: int, scale: Any, p: int, codes: int
) -> Any:  # fmt: skip
    """The scores of one query."""
    return _code_scores_1 if qt.value == "Q8_0" else _float_scores_1


def _code_scores_1(
    isa: Any, qt: Any, q: int, head_dim: int, keys: int, tiles: int, scale: Any, p: int, codes: int
) -> None:  # fmt: skip
    to = codes + kv_codes.WEIGHTS
    kv_codes.quantize_query(isa, q, head_dim, to)
    kv_codes.scores_1(isa, qt, to, head_dim, keys, tiles, scale, p)


def _float_scores_1(
    isa: Any, qt: Any, q: int, head_dim: int, keys: int, tiles: int, scale: Any, p: int, codes: int
) -> None:  # fmt: skip
    factor = simd.splat_f32x16(scale)
    size = width(qt) * head_dim * 16
    fours = tiles // 4
    for four in range(fours):
        # Four sums, because one would wait for itself.
        a = simd.splat_f32x16(np.float32(0))
        b = simd.splat_f32x16(np.float32(0))
        c = simd.splat_f32x16(np.float32(0))
        e = simd.splat_f32x16(np.float32(0))
        k = keys + 4 * four * size
        for d in range(head_dim):
            x = simd.splat_f32x16(get_f32(q + 4 * d))
            a = simd.fma_f32x16(x, load_16(qt, k), a)
            b = simd.fma_f32x16(x, load_16(qt, k + size), b)
            c = simd.fma_f32x16(x, load_16(qt, k + 2 * size), c)
            e = simd.fma_f32x16(x, load_16(qt, k + 3 * size), e)
            k += width(qt) * 16
        to = p + 256 * four
        simd.store_f32x16(to, a * factor)
        simd.store_f32x16(to + 64, b * factor)
        simd.store_f32x16(to + 128, c * factor)
        simd.store_f32x16(to + 192, e * factor)
    for tile in range(4 * fours, tiles):
        a = simd.splat_f32x16(np.float32(0))
        k = keys + tile * size
        for d in range(head_dim):
            x = simd.splat_f32x16(get_f32(q + 4 * d))
            a = simd.fma_f32x16(x, load_16(qt, k + width(qt) * 16 * d), a)
        simd.store_f32x16(p + 64 * tile, a * factor)


@chosen
def _scores_4(
    isa: Any, qt: Any, q: int, step: int, head_dim: int, keys: int, tiles: int, scale: Any,
    p: int, values: int, codes: int,
) -> Any:  # fmt: skip
    """The scores of four queries; prefetches the block's values, which are read next."""
    return _code_scores_4 if qt.value == "Q8_0" else _float_scores_4


def _code_scores_4(
    isa: Any, qt: Any, q: int, step: int, head_dim: int, keys: int, tiles: int, scale: Any,
    p: int, values: int, codes: int,
) -> None:  # fmt: skip
    to = codes + kv_codes.WEIGHTS
    for i in range(4):
        at = to + i * kv_codes.query_bytes(head_dim)
        kv_codes.quantize_query(isa, q + i * step, head_dim, at)
    kv_codes.scores_4(isa, qt, to, head_dim, keys, tiles, scale, p, values)


def _float_scores_4(
    isa: Any, qt: Any, q: int, step: int, head_dim: int, keys: int, tiles: int, scale: Any,
    p: int, values: int, codes: int,
) -> None:  # fmt: skip
    factor = simd.splat_f32x16(scale)
    line = width(qt) * 16
    pairs = 0
    if _tiles_at_once(isa) == 2:
        pairs = tiles // 2
    for pair in range(pairs):
        # Two tiles at once give eight independent sums.
        a0 = simd.splat_f32x16(np.float32(0))
        a1 = simd.splat_f32x16(np.float32(0))
        b0 = simd.splat_f32x16(np.float32(0))
        b1 = simd.splat_f32x16(np.float32(0))
        c0 = simd.splat_f32x16(np.float32(0))
        c1 = simd.splat_f32x16(np.float32(0))
        e0 = simd.splat_f32x16(np.float32(0))
        e1 = simd.splat_f32x16(np.float32(0))
        k0 = keys + 2 * pair * head_dim * line
        k1 = k0 + head_dim * line
        for d in range(head_dim):
            simd.prefetch_l2(values)
            values += 64
            v0 = load_16(qt, k0 + line * d)
            v1 = load_16(qt, k1 + line * d)
            at = q + 4 * d
            x = simd.splat_f32x16(get_f32(at))
            a0 = simd.fma_f32x16(x, v0, a0)
            a1 = simd.fma_f32x16(x, v1, a1)
            x = simd.splat_f32x16(get_f32(at + step))
            b0 = simd.fma_f32x16(x, v0, b0)
            b1 = simd.fma_f32x16(x, v1, b1)
            x = simd.splat_f32x16(get_f32(at + 2 * step))
            c0 = simd.fma_f32x16(x, v0, c0)
            c1 = simd.fma_f32x16(x, v1, c1)
            x = simd.splat_f32x16(get_f32(at + 3 * step))
            e0 = simd.fma_f32x16(x, v0, e0)
            e1 = simd.fma_f32x16(x, v1, e1)
        to = p + 128 * pair
        simd.store_f32x16(to, a0 * factor)
        simd.store_f32x16(to + 64, a1 * factor)
        simd.store_f32x16(to + 512, b0 * factor)
        simd.store_f32x16(to + 576, b1 * factor)
        simd.store_f32x16(to + 1024, c0 * factor)
        simd.store_f32x16(to + 1088, c1 * factor)
        simd.store_f32x16(to + 1536, e0 * factor)
        simd.store_f32x16(to + 1600, e1 * factor)
    for tile in range(2 * pairs, tiles):
        for _ in range(0, width(qt) * 16 * head_dim, 64):
            simd.prefetch_l2(values)
            values += 64
        a = simd.splat_f32x16(np.float32(0))
        b = simd.splat_f32x16(np.float32(0))
        c = simd.splat_f32x16(np.float32(0))
        e = simd.splat_f32x16(np.float32(0))
        k = keys + width(qt) * tile * head_dim * 16
        for d in range(head_dim):
            v = load_16(qt, k + width(qt) * 16 * d)
            at = q + 4 * d
            a = simd.fma_f32x16(simd.splat_f32x16(get_f32(at)), v, a)
            b = simd.fma_f32x16(simd.splat_f32x16(get_f32(at + step)), v, b)
            c = simd.fma_f32x16(simd.splat_f32x16(get_f32(at + 2 * step)), v, c)
            e = simd.fma_f32x16(simd.splat_f32x16(get_f32(at + 3 * step)), v, e)
        simd.store_f32x16(p + 64 * tile, a * factor)
        simd.store_f32x16(p + 512 + 64 * tile, b * factor)
        simd.store_f32x16(p + 1024 + 64 * tile, c * factor)
        simd.store_f32x16(p + 1536 + 64 * tile, e * factor)


@inline
def _cap(p: int, tiles: int, softcap: Any) -> None:
    cap = simd.splat_f32x16(softcap)
    for i in range(tiles):
        simd.store_f32x16(p + 64 * i, capped_f32x16(simd.load_f32x16(p + 64 * i), cap))


@inline
def softmax(p: int, hidden: int, count: int, softcap: Any, tail: int) -> None:
    """Replace scores by exp(s - m), and write m and their sum to ``tail``.

    The first ``hidden`` scores, at most 15, become 0.
    """
    tiles = (count + 15) // 16
    if softcap != 0:
        _cap(p, tiles, softcap)
    lowest = simd.splat_f32x16(np.float32(-np.inf))
    largest = lowest
    if hidden > 0:
        first = simd.load_f32x16(p)
        simd.store_f32x16(p, simd.select_below(simd.lane_index(), hidden, lowest, first))
    last = simd.load_f32x16(p + 64 * (tiles - 1))
    last = simd.select_below(simd.lane_index(), count - 16 * (tiles - 1), last, lowest)
    simd.store_f32x16(p + 64 * (tiles - 1), last)
    for i in range(tiles):
        largest = simd.max_f32x16(largest, simd.load_f32x16(p + 64 * i))
    m = simd.max_lane_f32x16(largest)
    shift = simd.splat_f32x16(m)
    lanes = simd.splat_f32x16(np.float32(0))
    for i in range(tiles):
        e = exp_f32x16(simd.load_f32x16(p + 64 * i) - shift)
        simd.store_f32x16(p + 64 * i, e)
        lanes = lanes + e
    set_f32(tail, m)
    set_f32(tail + 4, simd.sum_f32x16(lanes))


@chosen
def weighed(qt: Any, p: int, queries: int, count: int, scales: int, codes: int) -> Any:
    """The address of probabilities times the values' scales at ``scales``, if there are any."""
    if qt.value == "Q8_0":
        return _with_scales
    return lambda qt, p, queries, count, scales, codes: p


def _with_scales(qt: Any, p: int, queries: int, count: int, scales: int, codes: int) -> int:
    kv_codes.weigh(p, queries, (count + 15) // 16, scales, codes)
    return codes


@inline
def _values_1(
    qt: Any, values: int, padded: int, hidden: int, count: int, scales: int, probabilities: int,
    codes: int, part: int,
) -> None:  # fmt: skip
    for d in range(0, padded, 32):
        p = weighed(qt, probabilities, 1, count, scales + 8 * d, codes)
        a = simd.splat_f32x16(np.float32(0))
        b = simd.splat_f32x16(np.float32(0))
        v = values + width(qt) * (d + hidden * padded)
        for j in range(hidden, count):
            x = simd.splat_f32x16(get_f32(p + 4 * j))
            a = simd.fma_f32x16(x, load_16(qt, v), a)
            b = simd.fma_f32x16(x, load_16(qt, v + width(qt) * 16), b)
            v += width(qt) * padded
        simd.store_f32x16(part + 4 * d, a)
        simd.store_f32x16(part + 4 * d + 64, b)


@inline
def _values_4_by_32(
    qt: Any, values: int, padded: int, hidden: int, count: int, scales: int, probabilities: int,
    codes: int, part: int, part_stride: int, ahead: int,
) -> None:  # fmt: skip
    """The values of four queries, 32 dimensions at a time.

    It prefetches at ``ahead`` the keys of this thread's next block.
    """
    for d in range(0, padded, 32):
        p = weighed(qt, probabilities, 4, count, scales + 8 * d, codes)
        a0 = simd.splat_f32x16(np.float32(0))
        a1 = simd.splat_f32x16(np.float32(0))
        b0 = simd.splat_f32x16(np.float32(0))
        b1 = simd.splat_f32x16(np.float32(0))
        c0 = simd.splat_f32x16(np.float32(0))
        c1 = simd.splat_f32x16(np.float32(0))
        e0 = simd.splat_f32x16(np.float32(0))
        e1 = simd.splat_f32x16(np.float32(0))
        v = values + width(qt) * (d + hidden * padded)
        for j in range(hidden, count):
            simd.prefetch_l2(ahead)
            ahead += _step_ahead(qt)
            low = load_16(qt, v)
            high = load_16(qt, v + width(qt) * 16)
            x = simd.splat_f32x16(get_f32(p + 4 * j))
            a0 = simd.fma_f32x16(x, low, a0)
            a1 = simd.fma_f32x16(x, high, a1)
            x = simd.splat_f32x16(get_f32(p + 512 + 4 * j))
            b0 = simd.fma_f32x16(x, low, b0)
            b1 = simd.fma_f32x16(x, high, b1)
            x = simd.splat_f32x16(get_f32(p + 1024 + 4 * j))
            c0 = simd.fma_f32x16(x, low, c0)
            c1 = simd.fma_f32x16(x, high, c1)
            x = simd.splat_f32x16(get_f32(p + 1536 + 4 * j))
            e0 = simd.fma_f32x16(x, low, e0)
            e1 = simd.fma_f32x16(x, high, e1)
            v += width(qt) * padded
        to = part + 4 * d
        simd.store_f32x16(to, a0)
        simd.store_f32x16(to + 64, a1)
        simd.store_f32x16(to + part_stride, b0)
        simd.store_f32x16(to + part_stride + 64, b1)
        simd.store_f32x16(to + 2 * part_stride, c0)
        simd.store_f32x16(to + 2 * part_stride + 64, c1)
        simd.store_f32x16(to + 3 * part_stride, e0)
        simd.store_f32x16(to + 3 * part_stride + 64, e1)


@inline
def _values_4_by_16(
    qt: Any, values: int, padded: int, hidden: int, count: int, scales: int, probabilities: int,
    codes: int, part: int, part_stride: int, ahead: int,
) -> None:  # fmt: skip
    """As _values_4_by_32, but 16 dimensions at a time."""
    p = probabilities
    for d in range(0, padded, 16):
        if d % 32 == 0:
            p = weighed(qt, probabilities, 4, count, scales + 8 * d, codes)
        for _ in range(0, width(qt) * 16 * count, 64):
            simd.prefetch_l2(ahead)
            ahead += 64
        a = simd.splat_f32x16(np.float32(0))
        b = simd.splat_f32x16(np.float32(0))
        c = simd.splat_f32x16(np.float32(0))
        e = simd.splat_f32x16(np.float32(0))
        v = values + width(qt) * (d + hidden * padded)
        for j in range(hidden, count):
            some = load_16(qt, v)
            at = p + 4 * j
            a = simd.fma_f32x16(simd.splat_f32x16(get_f32(at)), some, a)
            b = simd.fma_f32x16(simd.splat_f32x16(get_f32(at + 512)), some, b)
            c = simd.fma_f32x16(simd.splat_f32x16(get_f32(at + 1024)), some, c)
            e = simd.fma_f32x16(simd.splat_f32x16(get_f32(at + 1536)), some, e)
            v += width(qt) * padded
        to = part + 4 * d
        simd.store_f32x16(to, a)
        simd.store_f32x16(to + part_stride, b)
        simd.store_f32x16(to + 2 * part_stride, c)
        simd.store_f32x16(to + 3 * part_stride, e)


def _vector_block(
    isa: Any, qt: Any, q: int, q_step: int, head_dim: int, value_dim: int, group: int, keys: int,
    values: int, hidden: int, count: int, scale: Any, softcap: Any, probabilities: int, parts: int,
    part_stride: int, codes: int, ahead: int,
) -> None:  # fmt: skip
    padded = padded_dim(value_dim)
    # Skip whole tiles before the window.
    before = hidden // 16 * 16
    scales = values + 128 * padded + 2 * before
    keys += before // 16 * tile_bytes(qt, head_dim)
    values += width(qt) * before * padded
    hidden -= before
    count -= before
    tiles = (count + 15) // 16
    fours = group // 4 * 4
    for g in range(0, fours, 4):
        p = probabilities + 512 * g
        part = parts + g * part_stride
        _scores_4(isa, qt, q + g * q_step, q_step, head_dim, keys, tiles, scale, p, values, codes)
        for i in range(4):
            tail = part + i * part_stride + 4 * padded
            softmax(p + 512 * i, hidden, count, softcap, tail)
        if _tiles_at_once(isa) == 2:
            _values_4_by_32(
                qt, values, padded, hidden, count, scales, p, codes, part, part_stride, ahead
            )
        else:
            _values_4_by_16(
                qt, values, padded, hidden, count, scales, p, codes, part, part_stride, ahead
            )
    for g in range(fours, group):
        p = probabilities + 512 * g
        part = parts + g * part_stride
        _scores_1(isa, qt, q + g * q_step, head_dim, keys, tiles, scale, p, codes)
        softmax(p, hidden, count, softcap, part + 4 * padded)
        _values_1(qt, values, padded, hidden, count, scales, p, codes, part)


per_level(_vector_block)(attend_block)
