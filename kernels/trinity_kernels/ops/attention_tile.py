"""Attention of a tile of queries over one block of positions.

A tile has up to ``MOST`` queries: consecutive tokens of a sequence, each with some heads of one KV
head. Keys and values of a block are converted to float32 once for the tile. Queries form groups
(``_group``) that share every load of keys and values.
Memory of a tile: queries as ``pack_queries`` writes them; ranges, for each query the first position
that it sees and the first that it does not (int32); merged, for each query a part
(attention_parts.py); panels, keys and values of a block in the layout of F32 pages.
Numerics: as attention_block.py, with the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32, get_i32, set_f32
from trinity_kernels.ops import kv_codes
from trinity_kernels.ops.attention_block import attend_block, softmax, weighed
from trinity_kernels.ops.attention_parts import copy_part, merge
from trinity_kernels.ops.kv_layout import load_16, padded_dim, tile_bytes, width
from trinity_kernels.ops.matmul.columns import hidden
from trinity_kernels.tags import chosen, constant, per_level

MOST = 48  # queries, a multiple of every group


def memory_bytes(head_dim: int, value_dim: int) -> int:
    """Bytes of a tile's queries, ranges and panels."""
    padded = -(-value_dim // 32) * 32
    return MOST * (4 * head_dim + 64 + 8) + 512 * (head_dim + padded)


@constant
def _group(qt: Any) -> int:
    """Queries that are computed together."""
    return 4 if qt.value == "Q8_0" else 6


@constant
def _vectors(isa: Any) -> int:
    """Vectors of scores or values that are computed together: the sums of a group fit registers."""
    return 4 if isa.value in ("amx", "avx512vnni") else 1


@inline
def _share(isa: Any, left: int, most: int) -> int:
    """Vectors to compute next of those ``left``: at most ``most``, and no single one at the end."""
    if most > _vectors(isa):
        most = _vectors(isa)
    if most == 4 and 4 < left < 7:
        return 3
    return min(left, most)


@instructions("void", "literal", *["intp"] * 4, "float32", "intp")
def _emit_scores(
    builder: Any, vectors: Any, queries: Any, head_dim: Any, keys: Any, tile: Any, scale: Any,
    p: Any,
) -> Any:  # fmt: skip
    """The scores of 6 queries for ``vectors`` tiles of keys, which are ``tile`` bytes apart."""
    kind = simd.F32X16.ir
    at = [
        hidden(builder, builder.add(keys, builder.mul(tile, simd.I64(v)))) for v in range(vectors)
    ]
    sums = [[cgutils.alloca_once(builder, kind) for _ in at] for _ in range(6)]
    for row in sums:
        for total in row:
            builder.store(ir.Constant(kind, None), total)
    with cgutils.for_range(builder, head_dim) as loop:
        on = builder.mul(loop.index, simd.I64(64))
        held = [_load(builder, builder.add(one, on), kind) for one in at]
        query = builder.add(queries, builder.mul(loop.index, simd.I64(24)))
        _add_products(builder, sums, [builder.add(query, simd.I64(4 * i)) for i in range(6)], held)
    factor = simd.broadcast(builder, scale, simd.F32X16)
    for i, row in enumerate(sums):
        for v, total in enumerate(row):
            to = builder.add(p, simd.I64(512 * i + 64 * v))
            product = builder.fmul(builder.load(total), factor)
            builder.store(product, simd.pointer(builder, to, kind), align=1)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(simd.pointer(builder, address, kind), align=1)


def _add_products(builder: Any, sums: list[list[Any]], scalars: list[Any], held: list[Any]) -> None:
    """Add the product of each scalar, in memory, with each vector."""
    for row, at in zip(sums, scalars, strict=True):
        x = simd.broadcast(builder, _load(builder, at, simd.F32), simd.F32X16)
        for total, vector in zip(row, held, strict=True):
            operands = [x, vector, builder.load(total)]
            fused = simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, operands)
            builder.store(fused, total)


@instructions("void", "literal", "literal", *["intp"] * 6)
def _emit_values(
    builder: Any, queries: Any, vectors: Any, p: Any, count: Any, values: Any, stride: Any,
    part: Any, part_stride: Any,
) -> Any:  # fmt: skip
    """Add the products of probabilities with ``count`` rows of values to sums at ``part``."""
    kind = simd.F32X16.ir
    rows = [builder.add(part, builder.mul(part_stride, simd.I64(i))) for i in range(queries)]
    places = [
        [simd.pointer(builder, builder.add(row, simd.I64(64 * v)), kind) for v in range(vectors)]
        for row in rows
    ]
    sums = [[cgutils.alloca_once(builder, kind) for _ in row] for row in places]
    for row, to in zip(sums, places, strict=True):
        for total, place in zip(row, to, strict=True):
            builder.store(builder.load(place, align=1), total)
    with cgutils.for_range(builder, count) as loop:
        at = builder.add(values, builder.mul(loop.index, stride))
        held = [_load(builder, builder.add(at, simd.I64(64 * v)), kind) for v in range(vectors)]
        first = builder.add(p, builder.mul(loop.index, simd.I64(4)))
        scalars = [builder.add(first, simd.I64(512 * i)) for i in range(queries)]
        _add_products(builder, sums, scalars, held)
    for row, to in zip(sums, places, strict=True):
        for total, place in zip(row, to, strict=True):
            builder.store(builder.load(total), place, align=1)


@chosen
def _group_values(
    qt: Any, n: int, p: int, count: int, values: int, stride: int, part: int, part_stride: int
) -> Any:  # fmt: skip
    """Add ``n`` vectors of values of a group."""
    if qt.value == "Q8_0":
        return _four_values
    return _six_values


def _four_values(
    qt: Any, n: int, p: int, count: int, values: int, stride: int, part: int, part_stride: int
) -> None:  # fmt: skip
    if n == 2:
        _emit_values(4, 2, p, count, values, stride, part, part_stride)
    else:
        _emit_values(4, 1, p, count, values, stride, part, part_stride)


def _six_values(
    qt: Any, n: int, p: int, count: int, values: int, stride: int, part: int, part_stride: int
) -> None:  # fmt: skip
    if n == 4:
        _emit_values(6, 4, p, count, values, stride, part, part_stride)
    elif n == 3:
        _emit_values(6, 3, p, count, values, stride, part, part_stride)
    elif n == 2:
        _emit_values(6, 2, p, count, values, stride, part, part_stride)
    else:
        _emit_values(6, 1, p, count, values, stride, part, part_stride)


@inline
def _own_values(n: int, p: int, count: int, values: int, stride: int, part: int) -> None:
    """Add ``n`` vectors of values of one query."""
    for v in range(n):
        _emit_values(1, 1, p, count, values + 64 * v, stride, part + 64 * v, 0)


@chosen
def _group_scores(
    isa: Any, qt: Any, queries: int, head_dim: int, keys: int, first: int, last: int, scale: Any,
    p: int,
) -> Any:  # fmt: skip
    """The scores of a group for the tiles of keys from ``first`` to ``last``."""
    return _code_scores if qt.value == "Q8_0" else _float_scores


def _code_scores(
    isa: Any, qt: Any, queries: int, head_dim: int, keys: int, first: int, last: int, scale: Any,
    p: int,
) -> None:  # fmt: skip
    k = keys + first * tile_bytes(qt, head_dim)
    kv_codes.scores_4(isa, qt, queries, head_dim, k, last - first, scale, p + 64 * first, k)


def _float_scores(
    isa: Any, qt: Any, queries: int, head_dim: int, keys: int, first: int, last: int, scale: Any,
    p: int,
) -> None:  # fmt: skip
    tile = 64 * head_dim
    while first < last:
        n = _share(isa, last - first, 4)
        k, to = keys + first * tile, p + 64 * first
        if n == 4:
            _emit_scores(4, queries, head_dim, k, tile, scale, to)
        elif n == 3:
            _emit_scores(3, queries, head_dim, k, tile, scale, to)
        elif n == 2:
            _emit_scores(2, queries, head_dim, k, tile, scale, to)
        else:
            _emit_scores(1, queries, head_dim, k, tile, scale, to)
        first += n


@chosen
def _key_panel(qt: Any, keys: int, first: int, last: int, head_dim: int, panel: int) -> Any:
    """The address of a block's keys as ``_group_scores`` takes them; writes tiles to ``panel``."""
    if qt.value == "F16":

        def widened(
            qt: Any, keys: int, first: int, last: int, head_dim: int, panel: int
        ) -> int:  # fmt: skip
            for i in range(first * head_dim, last * head_dim):
                simd.store_f32x16(panel + 64 * i, load_16(qt, keys + 32 * i))
            return panel

        return widened
    return lambda qt, keys, first, last, head_dim, panel: keys


@chosen
def _value_panel(qt: Any, values: int, first: int, last: int, padded: int, panel: int) -> Any:
    """The address of a block's values, or of their codes, as float32; writes rows to ``panel``."""
    if qt.value == "F32":
        return lambda qt, values, first, last, padded, panel: values

    def widened(qt: Any, values: int, first: int, last: int, padded: int, panel: int) -> int:
        for i in range(first * padded // 16, last * padded // 16):
            at = values + width(qt) * 16 * i
            simd.store_f32x16(panel + 64 * i, load_16(qt, at))
        return panel

    return widened


@inline
def _range(ranges: int, i: int, start: int) -> tuple[int, int]:
    """The positions of a block that a query sees; if none, the first is not below the last."""
    low = max(int(get_i32(ranges + 8 * i)) - start, 0)
    return low, min(int(get_i32(ranges + 8 * i + 4)) - start, 128)


@inline
def _seen(ranges: int, first: int, last: int, start: int) -> tuple[int, int]:
    """The positions of a block that some queries see."""
    lowest, highest = 128, 0
    for i in range(first, last):
        low, high = _range(ranges, i, start)
        if low < high:
            lowest, highest = min(lowest, low), max(highest, high)
    return lowest, highest


@inline
def _shared(ranges: int, first: int, last: int, start: int) -> tuple[int, int]:
    """The positions of a block that all queries see; queries that see none are ignored.

    128 and 128 if there are no such positions.
    """
    lowest, highest = 0, 128
    for i in range(first, last):
        low, high = _range(ranges, i, start)
        if low < high:
            lowest, highest = max(lowest, low), min(highest, high)
    if lowest < highest:
        return lowest, highest
    return 128, 128


@inline
def _add_part(
    isa: Any, ranges: int, i: int, start: int, part: int, merged: int, padded: int
) -> None:  # fmt: skip
    """Merge the part of a query with those of earlier blocks."""
    if int(get_i32(ranges + 8 * i)) >= start:
        copy_part(isa, part, merged, padded)
    else:
        merge(isa, merged, part, padded)


def pack_queries(
    isa: Any, qt: Any, q: int, q_stride: int, heads: int, count: int, head_dim: int, queries: int
) -> None:  # fmt: skip
    """Write the queries of a tile as ``attend_tile`` reads them."""


def _vector_pack(
    isa: Any, qt: Any, q: int, q_stride: int, heads: int, count: int, head_dim: int, queries: int
) -> None:  # fmt: skip
    _arrange(isa, qt, q, q_stride, heads, count, head_dim, queries)


per_level(_vector_pack)(pack_queries)


@chosen
def _arrange(
    isa: Any, qt: Any, q: int, q_stride: int, heads: int, count: int, head_dim: int, queries: int
) -> Any:  # fmt: skip
    return _quantized if qt.value == "Q8_0" else _interleaved


def _quantized(
    isa: Any, qt: Any, q: int, q_stride: int, heads: int, count: int, head_dim: int, queries: int
) -> None:  # fmt: skip
    for i in range((count + 3) // 4 * 4):
        one = min(i, count - 1)
        at = q + one // heads * q_stride + one % heads * 4 * head_dim
        kv_codes.quantize_query(isa, at, head_dim, queries + i * kv_codes.query_bytes(head_dim))


def _interleaved(
    isa: Any, qt: Any, q: int, q_stride: int, heads: int, count: int, head_dim: int, queries: int
) -> None:  # fmt: skip
    for i in range((count + 5) // 6 * 6):
        one = min(i, count - 1)
        at = q + one // heads * q_stride + one % heads * 4 * head_dim
        to = queries + 4 * (i // 6 * 6 * head_dim + i % 6)
        for d in range(head_dim):
            set_f32(to + 24 * d, get_f32(at + 4 * d))


@constant
def _query_step(qt: Any) -> int:
    """1 if a query has ``query_bytes``, 0 if it has float32."""
    return 1 if qt.value == "Q8_0" else 0


def attend_tile(
    isa: Any, qt: Any, q: int, q_stride: int, heads: int, count: int, queries: int, ranges: int,
    start: int, head_dim: int, value_dim: int, keys: int, values: int, scale: Any, softcap: Any,
    p: int, parts: int, merged: int, codes: int, panels: int,
) -> None:  # fmt: skip
    """Add the block of positions from ``start`` on to the merged parts of ``count`` queries."""
    padded = padded_dim(value_dim)
    for i in range(count):
        low, high = _range(ranges, i, start)
        if low < high:
            at = q + i // heads * q_stride + i % heads * 4 * head_dim
            attend_block(
                isa, qt, at, 0, head_dim, value_dim, 1, keys, values, low, high, scale, softcap,
                p, parts, 0, codes, keys,
            )  # fmt: skip
            to = merged + i * 4 * (padded + 16)
            _add_part(isa, ranges, i, start, parts, to, padded)


def _vector_tile(
    isa: Any, qt: Any, q: int, q_stride: int, heads: int, count: int, queries: int, ranges: int,
    start: int, head_dim: int, value_dim: int, keys: int, values: int, scale: Any, softcap: Any,
    p: int, parts: int, merged: int, codes: int, panels: int,
) -> None:  # fmt: skip
    padded, group = padded_dim(value_dim), _group(qt)
    stride = 4 * (padded + 16)
    of_query = 4 * head_dim
    if _query_step(qt) == 1:
        of_query = kv_codes.query_bytes(head_dim)
    low, high = _seen(ranges, 0, count, start)
    if low >= high:
        return
    scales = values + 128 * padded
    wide_keys = _key_panel(qt, keys, low // 16, (high + 15) // 16, head_dim, panels)
    wide = _value_panel(qt, values, low, high, padded, panels + 512 * head_dim)
    for g in range(0, count, group):
        end = min(g + group, count)
        low, high = _seen(ranges, g, end, start)
        if low < high:
            _group_scores(
                isa, qt, queries + g * of_query, head_dim, wide_keys, low // 16, (high + 15) // 16,
                scale, p,
            )  # fmt: skip
            for i in range(g, end):
                low, high = _range(ranges, i, start)
                if low < high:
                    before = low // 16 * 16
                    part = parts + (i - g) * stride
                    softmax(
                        p + 512 * (i - g) + 4 * before, low - before, high - before, softcap,
                        part + 4 * padded,
                    )  # fmt: skip
            _weigh_values(
                isa, qt, ranges, g, end, start, wide, scales, padded, value_dim, p, parts, codes
            )
            for i in range(g, end):
                low, high = _range(ranges, i, start)
                if low < high:
                    part = parts + (i - g) * stride
                    _add_part(isa, ranges, i, start, part, merged + i * stride, padded)


per_level(_vector_tile)(attend_tile)


@inline
def _weigh_values(
    isa: Any, qt: Any, ranges: int, first: int, last: int, start: int, values: int, scales: int,
    padded: int, value_dim: int, p: int, parts: int, codes: int,
) -> None:  # fmt: skip
    """Write the sums of a group's parts: the positions that all see together, others one by one."""
    stride, row = 4 * (padded + 16), 4 * padded
    both_low, both_high = _shared(ranges, first, last, start)
    zero = simd.splat_f32x16(np.float32(0))
    for i in range(_group(qt)):
        for d in range(0, padded, 16):
            simd.store_f32x16(parts + i * stride + 4 * d, zero)
    vectors, v = (value_dim + 15) // 16, 0
    while v < vectors:
        n = _share(isa, vectors - v, _widest(qt))
        x = weighed(qt, p, _group(qt), 128, scales + 128 * (v // 2 * 2), codes)
        at, to = values + 64 * v, parts + 64 * v
        for i in range(first, last):
            low, high = _range(ranges, i, start)
            high = min(high, both_low)
            if low < high:
                own = x + 512 * (i - first) + 4 * low
                _own_values(n, own, high - low, at + low * row, row, to + (i - first) * stride)
        if both_low < both_high:
            own = x + 4 * both_low
            _group_values(
                qt, n, own, both_high - both_low, at + both_low * row, row, to, stride
            )  # fmt: skip
        for i in range(first, last):
            low, high = _range(ranges, i, start)
            low = max(low, both_high)
            if low < high:
                own = x + 512 * (i - first) + 4 * low
                _own_values(n, own, high - low, at + low * row, row, to + (i - first) * stride)
        v += n


@constant
def _widest(qt: Any) -> int:
    """Vectors of values that have the same weights."""
    return 2 if qt.value == "Q8_0" else 4
