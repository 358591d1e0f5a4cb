"""Attention in both directions on AMX tiles, for encoders whose weights are plain numbers.

Shapes: Q, K, V and OUT are M rows of HEADS * HEAD_DIM float32. Every row sees all M rows. A score
is q k * SCALE. Operands are sums of two bfloat16, the first part and the rest. ``pack_split``
writes keys and values to PACKED, ``head_bytes`` for each head:

    keys     [16 positions][chunk][16 pairs][16 positions][2] bfloat16. A chunk has 32 elements of
             a row: first parts, rests, first parts, each of HEAD_DIM elements. The row of a query
             has first parts, first parts, rests, so that one product has all three terms
    values   [32 positions][16 dimensions][2 parts][16 pairs][16 dimensions][2] bfloat16; a pair
             is positions i and i + 16 of the 32

Positions are padded to BLOCK, dimensions of values to 32.
A share is QUERIES queries of a head. Blocks of BLOCK positions, which stay in the second-level
cache, are multiplied by ROWS_AT_ONCE queries at a time: scores, probabilities relative to the
largest score so far, sums of values.
Numerics: the product of two rests is omitted, so a product has a relative error of about 2**-15;
sums are float32 in the order of tiles. 2**x has a relative error of 3e-6. Scores are divided by
ln 2 in the queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels._jit import inline, kernel_with
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32, get_f64, get_i64, set_f32, slots_of
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import shared

Q, K, V, STRIDE, OUT, OUT_STRIDE, PACKED, HEADS, HEAD_DIM, SCALE = range(3, 13)
SCRATCH, SCRATCH_STRIDE = 13, 14
LEVELS = frozenset({"amx"})
ROWS_AT_ONCE = 32  # queries of two tiles
BLOCK = 256  # positions
QUERIES = 4 * ROWS_AT_ONCE
_STEPS = BLOCK // 32
_SCORES = 4 * ROWS_AT_ONCE * BLOCK  # bytes
_FACTORS = 128  # bytes of 16 queries' largest scores and of the factors of earlier sums
_LOG2E = 1.4426950408889634
_LOWEST = np.float32(-3e38)
_POWERS = (1.000002593, 0.6930038345, 0.2414427569, 0.05201146061, 0.01353416792)
_multiply_scores = tiles.wide_bf16[1, 1]
_multiply_values = tiles.wide_bf16[2, 2]


@shared
def _chunks(head_dim: int) -> int:
    """Chunks of 32 elements of a row of three parts."""
    return (3 * head_dim + 31) // 32


@shared
def _value_dims(head_dim: int) -> int:
    return (head_dim + 31) // 32 * 32


@shared
def padded_positions(positions: int) -> int:
    """Positions, rounded up to whole blocks."""
    return (positions + BLOCK - 1) // BLOCK * BLOCK


@shared
def _values_at(positions: int, head_dim: int) -> int:
    """Bytes from the start of a head's packed keys to its values."""
    return padded_positions(positions) * 64 * _chunks(head_dim)


@shared
def head_bytes(positions: int, head_dim: int) -> int:
    """Bytes of a head's packed keys and values."""
    values = padded_positions(positions) * 4 * _value_dims(head_dim)
    return _values_at(positions, head_dim) + values


@shared
def _group_bytes(head_dim: int) -> int:
    """Bytes of ROWS_AT_ONCE queries' sums of values and of probabilities, and their factors."""
    return ROWS_AT_ONCE * (4 * _value_dims(head_dim) + 64) + 2 * _FACTORS


@shared
def _row_bytes(head_dim: int) -> int:
    """Bytes of memory in which 16 rows of three parts are made."""
    return 1024 * _chunks(head_dim) + 64


def scratch_bytes(positions: int, head_dim: int) -> int:
    """Bytes of a thread's scratch: tiles of 16 rows; or queries, scores, sums, and groups."""
    groups = QUERIES // ROWS_AT_ONCE * _group_bytes(head_dim)
    queries = QUERIES * 64 * _chunks(head_dim)
    return _row_bytes(head_dim) + queries + _SCORES + 4096 + groups


@instructions("f32x16", "f32x16")
def _power_of_2(builder: Any, x: Any) -> Any:
    """2**x of 16 float32 up to 127; 0 for very low x, NaN for NaN."""
    kind, whole, default = simd.F32X16.ir, ir.Constant(simd.I16, -1), simd.I32(4)
    floor = [x, simd.I32(1), x, whole, default]
    r = simd.call_named(builder, "llvm.x86.avx512.mask.reduce.ps.512", kind, floor)
    p = ir.Constant(kind, [_POWERS[-1]] * 16)
    for power in _POWERS[-2::-1]:
        terms = [p, r, ir.Constant(kind, [power] * 16)]
        p = simd.call_named(builder, "llvm.fma.v16f32", kind, terms)
    scale = [p, x, p, whole, default]
    return simd.call_named(builder, "llvm.x86.avx512.mask.scalef.ps.512", kind, scale)


@instructions("void", "intp", "f32x16", "f32x16")
def _store_pairs(builder: Any, to: Any, a: Any, b: Any) -> Any:
    """Write 16 pairs (a, b) of bfloat16 parts, and 1024 bytes further those of the rests.

    The first part is truncated, the rest rounded half up.
    """
    words = simd.I32X16.ir
    high = ir.Constant(words, [-65536] * 16)
    shift, half = ir.Constant(words, [16] * 16), ir.Constant(words, [32768] * 16)
    firsts = [builder.bitcast(x, words) for x in (a, b)]
    rests = []
    for x, first in zip((a, b), firsts, strict=True):
        rest = builder.fsub(x, builder.bitcast(builder.and_(first, high), simd.F32X16.ir))
        rests.append(builder.add(builder.bitcast(rest, words), half))
    for offset, (low, top) in ((0, firsts), (1024, rests)):
        word = builder.or_(builder.lshr(low, shift), builder.and_(top, high))
        place = simd.pointer(builder, builder.add(to, simd.I64(offset)), words)
        builder.store(word, place, align=1)


@inline
def _part(x: int, left: int) -> Any:
    """16 float32, of which there are only ``left``, then zeros."""
    value = simd.splat_f32x16(np.float32(0))
    if left >= 16:
        value = simd.load_f32x16(x)
    elif left > 0:
        value = simd.load_tail_f32(x, left)
    return value


@inline
def _three_parts(x: int, dim: int, factor: Any, rests: int, to: int) -> None:
    """Write a row three times: its rests at part ``rests``, else its first parts.

    Writes up to 31 zeros after the row.
    """
    factors = simd.splat_f32x16(factor)
    zeros = simd.splat_f32x16(np.float32(0))
    tiles.store_bf16x32(to + 64 * (_chunks(dim) - 1), zeros, zeros)
    for part in range(3):
        for d in range(0, dim, 32):
            low = _part(x + 4 * d, dim - d) * factors
            high = _part(x + 4 * d + 64, dim - d - 16) * factors
            if part == rests:
                low, high = tiles.bf16_rest(low), tiles.bf16_rest(high)
            tiles.store_bf16x32(to + 2 * (part * dim + d), low, high)


@inline
def _pack_keys(k: int, stride: int, positions: int, dim: int, to: int, rows: int) -> None:
    """Pack the keys of one head; ``rows``: memory for 16 rows."""
    width = 64 * _chunks(dim)
    for first in range(0, positions, 16):
        for i in range(16):
            if first + i < positions:
                x = k + (first + i) * stride
                _three_parts(x, dim, np.float32(1), 1, rows + i * width)
        for chunk in range(_chunks(dim)):
            at = to + first * width + 1024 * chunk
            tiles.transpose_16x16(rows + 64 * chunk, at, width)


@inline
def _pack_values(v: int, stride: int, positions: int, dim: int, to: int) -> None:
    """Pack the values of one head."""
    dims = _value_dims(dim)
    for first in range(0, positions, 32):
        for i in range(16):
            for d in range(0, dim, 16):
                x = v + (first + i) * stride + 4 * d
                a = simd.splat_f32x16(np.float32(0))
                b = simd.splat_f32x16(np.float32(0))
                if first + i < positions:
                    a = _part(x, dim - d)
                if first + i + 16 < positions:
                    b = _part(x + 16 * stride, dim - d)
                _store_pairs(to + 4 * first * dims + 128 * d + 64 * i, a, b)


@kernel_with("amx")
def pack_split(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Pack keys and values; PACKED must be zeros before the first call."""
    positions = get_i64(get_i64(record + 8 * ROWS))
    heads, dim, stride = slots_of(record, (HEADS, HEAD_DIM, STRIDE))
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    for head in range(thread, heads, positive(threads)):
        to = get_i64(record + 8 * PACKED) + head * head_bytes(positions, dim)
        k = get_i64(record + 8 * K) + 4 * head * dim
        v = get_i64(record + 8 * V) + 4 * head * dim
        _pack_keys(k, stride, positions, dim, to, scratch)
        _pack_values(v, stride, positions, dim, to + _values_at(positions, dim))


@inline
def _pack_queries(
    q: int, stride: int, count: int, dim: int, factor: Any, to: int, row: int
) -> None:
    """Write the tiles of queries, [16 queries][chunk]; ``row``: memory for a row."""
    chunks = _chunks(dim)
    for i in range(count):
        _three_parts(q + i * stride, dim, factor, 2, row)
        at = to + i // 16 * 1024 * chunks + i % 16 * 64
        for chunk in range(chunks):
            simd.store_i8x64(at + 1024 * chunk, simd.load_i8x64(row + 64 * chunk))


@inline
def _block_scores(queries: int, keys: int, chunks: int, steps: int, to: int) -> None:
    """The scores of two tiles of queries: for each 32 keys, four tiles."""
    size = 1024 * chunks
    for step in range(steps):
        k = keys + 2 * step * size
        tiles.tiles_zero()
        for chunk in range(chunks):
            at = 1024 * chunk
            _multiply_scores(queries + at, queries + size + at, k + at, k + size + at)
        tiles.tiles_store(to + 4096 * step)


@inline
def _mask(scores: int, count: int, steps: int) -> None:
    """Set the scores of padding, from position ``count`` on, to the lowest."""
    lowest = simd.splat_f32x16(_LOWEST)
    for step in range(count // 32, steps):
        for row in range(64):
            at = scores + 4096 * step + row // 16 % 2 * 1024 + row // 32 * 2048 + row % 16 * 64
            left = count - 32 * step - row // 16 % 2 * 16
            s = simd.select_below(simd.lane_index(), left, simd.load_f32x16(at), lowest)
            simd.store_f32x16(at, s)


@inline
def _probabilities(scores: int, steps: int, largest: int, lanes: int, first: bool) -> None:
    """Turn the scores of 16 queries into parts of probabilities relative to the largest so far.

    ``lanes``: 16 sums of probabilities for each query. ``largest``: the largest scores; factors of
    the sums of earlier blocks are written after them.
    """
    for row in range(16):
        a = simd.load_f32x16(scores + 64 * row)
        b = simd.load_f32x16(scores + 64 * row + 1024)
        for step in range(1, steps):
            at = scores + 4096 * step + 64 * row
            a = simd.max_f32x16(a, simd.load_f32x16(at))
            b = simd.max_f32x16(b, simd.load_f32x16(at + 1024))
        set_f32(largest + 64 + 4 * row, simd.max_lane_f32x16(simd.max_f32x16(a, b)))
    new = simd.load_f32x16(largest + 64)
    old = simd.splat_f32x16(_LOWEST)
    if not first:
        old = simd.load_f32x16(largest)
    new = simd.max_f32x16(old, new)
    simd.store_f32x16(largest, new)
    factors = _power_of_2(old - new)
    simd.store_f32x16(largest + 64, factors)
    for row in range(16):
        m = simd.splat_f32x16(get_f32(largest + 4 * row))
        total = simd.splat_f32x16(np.float32(0))
        if not first:
            f = simd.splat_f32x16(get_f32(largest + 64 + 4 * row))
            total = simd.load_f32x16(lanes + 64 * row) * f
        for step in range(steps):
            at = scores + 4096 * step + 64 * row
            a = _power_of_2(simd.load_f32x16(at) - m)
            b = _power_of_2(simd.load_f32x16(at + 1024) - m)
            total = total + (a + b)
            _store_pairs(at, a, b)
        simd.store_f32x16(lanes + 64 * row, total)


@inline
def _add_values(
    p: int, values: int, dims: int, steps: int, factors: int, sums: int, to: int, first: bool
) -> None:
    """Multiply earlier sums of 32 queries by ``factors``, and add those of a block."""
    for d in range(0, dims, 32):
        tiles.tiles_zero()
        for step in range(steps):
            v = values + 128 * (step * dims + d)
            at = p + 4096 * step
            _multiply_values(at, at + 2048, v, v + 2048)
        whole = to + 128 * d
        if first:
            tiles.tiles_store(whole)
        else:
            tiles.tiles_store(sums)
            for row in range(16):
                for half in range(2):
                    f = simd.splat_f32x16(get_f32(factors + _FACTORS * half + 4 * row))
                    at = 2048 * half + 64 * row
                    a = simd.fma_f32x16(
                        simd.load_f32x16(whole + at), f, simd.load_f32x16(sums + at)
                    )
                    b = simd.fma_f32x16(
                        simd.load_f32x16(whole + at + 1024), f, simd.load_f32x16(sums + at + 1024)
                    )
                    simd.store_f32x16(whole + at, a)
                    simd.store_f32x16(whole + at + 1024, b)


@inline
def _finish(sums: int, lanes: int, dim: int, out: int) -> None:
    """Write the result of a query; overwrites its sums of probabilities."""
    factor = simd.splat_f32x16(np.float32(np.float32(1) / simd.sum_f32x16(simd.load_f32x16(lanes))))
    for d in range(0, dim, 16):
        x = simd.load_f32x16(sums + d // 32 * 4096 + d // 16 % 2 * 1024) * factor
        if d + 16 <= dim:
            simd.store_f32x16(out + 4 * d, x)
        else:
            simd.store_f32x16(lanes, x)
            for i in range(dim - d):
                set_f32(out + 4 * (d + i), get_f32(lanes + 4 * i))


@kernel_with("amx")
def split_attention(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Attend with QUERIES queries of a head at a time, which are one share."""
    positions = get_i64(get_i64(record + 8 * ROWS))
    heads, dim, stride, out_stride = slots_of(record, (HEADS, HEAD_DIM, STRIDE, OUT_STRIDE))
    factor = np.float32(get_f64(record + 8 * SCALE) * _LOG2E)
    chunks, dims = _chunks(dim), _value_dims(dim)
    row = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    queries = row + _row_bytes(dim)
    scores = queries + QUERIES * 64 * chunks
    sums = scores + _SCORES
    groups = sums + 4096
    tiles.tiles_begin(row)
    shares = (positions + QUERIES - 1) // QUERIES
    for unit in range(heads * shares * thread // threads, heads * shares * (thread + 1) // threads):
        head, start = unit // shares, unit % shares * QUERIES
        keys = get_i64(record + 8 * PACKED) + head * head_bytes(positions, dim)
        values = keys + _values_at(positions, dim)
        count = min(QUERIES, positions - start)
        q = get_i64(record + 8 * Q) + start * stride + 4 * head * dim
        out = get_i64(record + 8 * OUT) + start * out_stride + 4 * head * dim
        _pack_queries(q, stride, count, dim, factor, queries, row)
        for block in range(0, positions, BLOCK):
            steps = (min(BLOCK, positions - block) + 31) // 32
            for first in range(0, count, ROWS_AT_ONCE):
                group = groups + first // ROWS_AT_ONCE * _group_bytes(dim)
                lanes = group + ROWS_AT_ONCE * 4 * dims
                own = lanes + ROWS_AT_ONCE * 64
                _block_scores(
                    queries + first * 64 * chunks, keys + block * 64 * chunks, chunks, steps, scores
                )
                if block + BLOCK > positions:
                    _mask(scores, positions - block, steps)
                for half in range(2):
                    _probabilities(
                        scores + 2048 * half, steps, own + _FACTORS * half, lanes + 1024 * half,
                        block == 0,
                    )  # fmt: skip
                _add_values(
                    scores, values + 4 * block * dims, dims, steps, own + 64, sums, group,
                    block == 0,
                )  # fmt: skip
        for i in range(count):
            group = groups + i // ROWS_AT_ONCE * _group_bytes(dim)
            lanes = group + ROWS_AT_ONCE * 4 * dims
            tile = i % ROWS_AT_ONCE
            _finish(
                group + tile // 16 * 2048 + tile % 16 * 64, lanes + 64 * tile, dim,
                out + i * out_stride,
            )  # fmt: skip
    tiles.tiles_end()
