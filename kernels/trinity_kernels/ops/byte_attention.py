"""Attention in both directions with int8 operands, for encoders with quantized weights.

Shapes: Q, K, V and OUT are M rows of HEADS * HEAD_DIM float32. Every row sees all M rows. A score
is q k * SCALE. ``pack_bytes`` writes keys and values to PACKED, ``head_bytes`` for each head:

    keys     [16 positions][HEAD_DIM / 4][16][4] bytes: code + 128; then a float32 scale for each
             position. The mean of all keys is subtracted first, which adds a constant to the
             scores of a query
    values   [4 positions][HEAD_DIM / 16][16][4] int8 codes; then a float32 scale for each dimension

Positions are padded to 64, dimensions of keys to 4, of values to 64.
Numerics: queries and keys have 8 bits and a scale for each row of a head; values have 8 bits and a
scale for each dimension; probabilities have 8 bits below the largest of their 64 positions. Sums of
64 positions are exact, sums of a row are float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import (
    get_f32,
    get_f64,
    get_i8,
    get_i32,
    get_i64,
    set_f32,
    set_i8,
    set_i32,
    slots_of,
)
from trinity_kernels.ops.byte_blocks import negated_sums, score_block, value_block
from trinity_kernels.ops.byte_softmax import BLOCK, softmax_block, weights_bytes, whole_sum
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level, shared

Q, K, V, STRIDE, OUT, OUT_STRIDE, PACKED, HEADS, HEAD_DIM, SCALE = range(3, 13)
SCRATCH, SCRATCH_STRIDE = 13, 14
AT_ONCE = 4  # queries that are processed together
LEVELS = frozenset({"amx", "avx512vnni", "avx2"})  # levels on which it is faster than float32
_TOP = np.float32(127)
_TINY = np.float32(1e-30)


@shared
def padded_positions(positions: int) -> int:
    """Positions, rounded up to whole blocks."""
    return (positions + 63) // 64 * 64


@shared
def _key_dims(head_dim: int) -> int:
    return (head_dim + 3) // 4 * 4


@shared
def _value_dims(head_dim: int) -> int:
    return (head_dim + 63) // 64 * 64


@shared
def _values_at(positions: int, head_dim: int) -> int:
    """Bytes from the start of a head's packed keys to its values."""
    return padded_positions(positions) * (_key_dims(head_dim) + 4)


@shared
def head_bytes(positions: int, head_dim: int) -> int:
    """Bytes of a head's packed keys and values."""
    values = (padded_positions(positions) + 4) * _value_dims(head_dim)
    return _values_at(positions, head_dim) + values


def scratch_bytes(positions: int, head_dim: int) -> int:
    """Bytes of a thread's scratch: queries, scores, probabilities, sums; or a head's mean."""
    padded = padded_positions(positions)
    queries = AT_ONCE * (_key_dims(head_dim) + 64 + 8) + 4 * _value_dims(head_dim)
    blocks = padded // BLOCK
    probabilities = AT_ONCE * (padded + 4 * BLOCK + 64 * blocks + weights_bytes(blocks))
    return queries + probabilities + AT_ONCE * 4 * _value_dims(head_dim)


@inline
def _code(x: Any, factor: Any) -> Any:
    return np.int32(np.rint(np.float32(x * factor)))


@inline
def _scale_of(largest: Any) -> Any:
    """The scale of codes up to 127; NaN if a value is not finite."""
    return np.float32(largest / _TOP)


@inline
def _factor_of(scale: Any) -> Any:
    """The factor from values to codes; 0 for a scale of 0 or NaN."""
    if scale > _TINY and scale < np.float32(1e30):
        return np.float32(np.float32(1) / scale)
    return np.float32(0)


def _largest(isa: Any, x: int, mean: int, count: int) -> Any:
    """The largest |x - mean| of ``count`` values; NaN if one is not finite."""
    found = np.float32(0)
    poison = np.float32(0)
    for d in range(count):
        v = np.float32(get_f32(x + 4 * d) - get_f32(mean + 4 * d))
        found = max(found, np.float32(abs(v)))
        poison = np.float32(poison + np.float32(v * np.float32(0)))
    return np.float32(found + poison)


def _vector_largest(isa: Any, x: int, mean: int, count: int) -> Any:
    zero = simd.splat_f32x16(np.float32(0))
    found = zero
    poison = zero
    for d in range(0, count, 16):
        v = zero
        if d + 16 <= count:
            v = simd.load_f32x16(x + 4 * d) - simd.load_f32x16(mean + 4 * d)
        else:
            left = count - d
            v = simd.load_tail_f32(x + 4 * d, left) - simd.load_tail_f32(mean + 4 * d, left)
        found = simd.max_f32x16(found, simd.abs_f32x16(v))
        poison = poison + v * zero
    return simd.max_lane_f32x16(found) + simd.sum_f32x16(poison)


per_level(_vector_largest)(_largest)


def _four_values(
    isa: Any, v: int, stride: int, rows: int, scales: int, count: int, to: int
) -> None:
    """The codes of ``count`` dimensions of up to 4 rows, side by side."""
    for d in range(count):
        for r in range(4):
            code = np.int32(0)
            if r < rows:
                factor = _factor_of(get_f32(scales + 4 * d))
                code = _code(get_f32(v + r * stride + 4 * d), factor)
            set_i8(to + 4 * d + r, np.int8(code))


def _vector_four_values(
    isa: Any, v: int, stride: int, rows: int, scales: int, count: int, to: int
) -> None:
    one = simd.splat_f32x16(np.float32(1))
    low = simd.splat_f32x16(_TINY)
    high = simd.splat_f32x16(np.float32(1e30))
    zero = simd.splat_f32x16(np.float32(0))
    for d in range(0, count, 16):
        scale = simd.load_f32x16(scales + 4 * d)
        factor = simd.select_less(low, scale, one / scale, zero)
        factor = simd.select_less(scale, high, factor, zero)
        word = simd.splat_i32x16(0)
        for r in range(rows):
            x = v + r * stride + 4 * d
            value = zero
            if d + 16 <= count:
                value = simd.load_f32x16(x)
            else:
                value = simd.load_tail_f32(x, count - d)
            byte = simd.round_i32x16(value * factor) & simd.splat_i32x16(255)
            word = word | (byte << simd.splat_i32x16(8 * r))
        simd.store_i32x16(to + 4 * d, word)


per_level(_vector_four_values)(_four_values)


def _add_row(isa: Any, x: int, to: int, peaks: int, count: int) -> None:
    """Add a row to sums at ``to``; ``peaks``, if not 0, become the maxima of themselves and |x|."""
    for d in range(count):
        v = get_f32(x + 4 * d)
        if peaks == 0:
            set_f32(to + 4 * d, np.float32(get_f32(to + 4 * d) + v))
        else:
            peak = max(get_f32(peaks + 4 * d), np.float32(abs(v)))
            set_f32(peaks + 4 * d, np.float32(peak + np.float32(v * np.float32(0))))


def _vector_add_row(isa: Any, x: int, to: int, peaks: int, count: int) -> None:
    whole = count // 16 * 16
    for d in range(0, whole, 16):
        v = simd.load_f32x16(x + 4 * d)
        if peaks == 0:
            simd.store_f32x16(to + 4 * d, simd.load_f32x16(to + 4 * d) + v)
        else:
            peak = simd.max_f32x16(simd.abs_f32x16(v), simd.load_f32x16(peaks + 4 * d))
            simd.store_f32x16(peaks + 4 * d, peak + v * simd.splat_f32x16(np.float32(0)))
    for d in range(whole, count):
        v1 = get_f32(x + 4 * d)
        if peaks == 0:
            set_f32(to + 4 * d, np.float32(get_f32(to + 4 * d) + v1))
        else:
            peak1 = max(get_f32(peaks + 4 * d), np.float32(abs(v1)))
            set_f32(peaks + 4 * d, np.float32(peak1 + np.float32(v1 * np.float32(0))))


per_level(_vector_add_row)(_add_row)


def _row_codes(isa: Any, x: int, mean: int, count: int, factor: Any, to: int) -> None:
    """Write the codes of x - mean to ``to``."""
    for d in range(count):
        v = np.float32(get_f32(x + 4 * d) - get_f32(mean + 4 * d))
        set_i8(to + d, np.int8(_code(v, factor)))


def _vector_row_codes(isa: Any, x: int, mean: int, count: int, factor: Any, to: int) -> None:
    factors = simd.splat_f32x16(factor)
    whole = count // 16 * 16
    for d in range(0, whole, 16):
        v = simd.load_f32x16(x + 4 * d) - simd.load_f32x16(mean + 4 * d)
        simd.store_i8x16(to + d, simd.narrow_i8x16(simd.round_i32x16(v * factors)))
    for d in range(whole, count):
        v1 = np.float32(get_f32(x + 4 * d) - get_f32(mean + 4 * d))
        set_i8(to + d, np.int8(_code(v1, factor)))


per_level(_vector_row_codes)(_row_codes)


@inline
def _pack_keys(
    isa: Any, k: int, stride: int, positions: int, dim: int, to: int, scratch: int
) -> None:
    """Pack the keys of one head; ``scratch``: the mean, then a row's codes."""
    padded, dims = padded_positions(positions), _key_dims(dim)
    codes = scratch + 4 * _value_dims(dim)
    for d in range(_value_dims(dim)):
        set_f32(scratch + 4 * d, np.float32(0))
    for j in range(positions):
        _add_row(isa, k + j * stride, scratch, 0, dim)
    for d in range(dim):
        set_f32(scratch + 4 * d, np.float32(get_f32(scratch + 4 * d) / np.float32(positions)))
    for d in range(dims):
        set_i8(codes + d, np.int8(0))
    for j in range(padded):
        scale = np.float32(0)
        if j < positions:
            scale = _scale_of(_largest(isa, k + j * stride, scratch, dim))
            _row_codes(isa, k + j * stride, scratch, dim, _factor_of(scale), codes)
        set_f32(to + padded * dims + 4 * j, scale)
        line = to + j // 16 * 16 * dims + j % 16 * 4
        for group in range(dims // 4):
            # Flipping the highest bit adds 128 to a byte.
            word = get_i32(codes + 4 * group) ^ np.int32(-2139062144)
            set_i32(line + 64 * group, word)


@inline
def _pack_values(isa: Any, v: int, stride: int, positions: int, dim: int, to: int) -> None:
    """Pack the values of one head."""
    padded, dims = padded_positions(positions), _value_dims(dim)
    scales = to + padded * dims
    for d in range(dims):
        set_f32(scales + 4 * d, np.float32(0))
    for j in range(positions):
        _add_row(isa, v + j * stride, 0, scales, dim)
    for d in range(dim):
        set_f32(scales + 4 * d, _scale_of(get_f32(scales + 4 * d)))
    for j in range(0, positions, 4):
        rows = min(4, positions - j)
        _four_values(isa, v + j * stride, stride, rows, scales, dim, to + j * dims)


@kernel
def pack_bytes(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Pack keys and values; PACKED must be zeros before the first call."""
    positions = get_i64(get_i64(record + 8 * ROWS))
    heads, dim, stride = slots_of(record, (HEADS, HEAD_DIM, STRIDE))
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    for head in range(thread, heads, positive(threads)):
        to = get_i64(record + 8 * PACKED) + head * head_bytes(positions, dim)
        k = get_i64(record + 8 * K) + 4 * head * dim
        v = get_i64(record + 8 * V) + 4 * head * dim
        _pack_keys(isa, k, stride, positions, dim, to, scratch)
        _pack_values(isa, v, stride, positions, dim, to + _values_at(positions, dim))


def _scores(isa: Any, keys: int, dims: int, codes: int, start: int, to: int) -> None:
    """Products of AT_ONCE rows of codes with BLOCK positions, int32 (row, BLOCK).

    ``start``: the initial sums of the rows (``_starts``).
    """
    for i in range(AT_ONCE):
        for j in range(BLOCK):
            total = np.int32(0)
            for d in range(dims):
                line = keys + (j // 16 * 16 * dims) + d // 4 * 64 + j % 16 * 4 + d % 4
                byte = np.int32(get_i8(line)) & np.int32(255)
                code = np.int32(get_i8(codes + i * dims + d))
                total = np.int32(total + (byte - np.int32(128)) * code)
            set_i32(to + 4 * (i * BLOCK + j), total)


def _vector_scores(isa: Any, keys: int, dims: int, codes: int, start: int, to: int) -> None:
    score_block(isa, keys, 16 * dims, 64, dims // 4, codes, dims, start, to, 4 * BLOCK)


per_level(_vector_scores)(_scores)


def _starts(isa: Any, codes: int, dims: int, start: int) -> None:
    """Write the initial sums of AT_ONCE rows' products, int32."""


def _vector_starts(isa: Any, codes: int, dims: int, start: int) -> None:
    negated_sums(isa, codes, dims, dims // 4, start)


per_level(_vector_starts)(_starts)


def _mixed(isa: Any, values: int, dims: int, positions: int, p: int, weights: int, to: int) -> None:
    """Values times probabilities times the weights of their blocks, float32 (row, dimensions)."""
    blocks = positions // BLOCK
    for i in range(AT_ONCE):
        for d in range(dims):
            whole = np.float32(0)
            for block in range(blocks):
                total = np.int32(0)
                for j in range(block * BLOCK, (block + 1) * BLOCK):
                    byte = np.int32(get_i8(p + i * positions + j)) & np.int32(255)
                    code = np.int32(get_i8(values + j // 4 * 4 * dims + 4 * d + j % 4))
                    total = np.int32(total + byte * code)
                weight = get_f32(weights + i * weights_bytes(blocks) + 4 * block)
                whole = np.float32(whole + np.float32(np.float32(total) * weight))
            set_f32(to + 4 * (i * dims + d), whole)


def _vector_mixed(
    isa: Any, values: int, dims: int, positions: int, p: int, weights: int, to: int
) -> None:
    for d in range(0, dims, 64):
        value_block(
            isa, values + 4 * d, 64, 4 * dims, positions // BLOCK, p, positions, weights,
            weights_bytes(positions // BLOCK), to + 4 * d, 4 * dims,
        )  # fmt: skip


per_level(_vector_mixed)(_mixed)


def _finish(isa: Any, sums: int, scales: int, factor: Any, dim: int, out: int) -> None:
    """Write the result of a row from its sums."""
    for d in range(dim):
        scale = np.float32(get_f32(scales + 4 * d) * factor)
        set_f32(out + 4 * d, np.float32(get_f32(sums + 4 * d) * scale))


def _vector_finish(isa: Any, sums: int, scales: int, factor: Any, dim: int, out: int) -> None:
    for d in range(0, dim, 16):
        whole = simd.load_f32x16(scales + 4 * d) * simd.splat_f32x16(factor)
        whole = simd.load_f32x16(sums + 4 * d) * whole
        if d + 16 <= dim:
            simd.store_f32x16(out + 4 * d, whole)
        else:
            simd.store_f32x16(sums + 4 * d, whole)
            for i in range(d, dim):
                set_f32(out + 4 * i, get_f32(sums + 4 * i))


per_level(_vector_finish)(_finish)


@kernel
def byte_attention(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Attend with AT_ONCE queries of a head at a time, which are one share."""
    positions = get_i64(get_i64(record + 8 * ROWS))
    heads = get_i64(record + 8 * HEADS)
    dim = get_i64(record + 8 * HEAD_DIM)
    scale = np.float32(get_f64(record + 8 * SCALE))
    padded, dims, value_dims = padded_positions(positions), _key_dims(dim), _value_dims(dim)
    nothing = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    codes = nothing + 4 * value_dims
    factors = codes + AT_ONCE * (dims + 64)
    start = factors + AT_ONCE * 4
    scores = start + AT_ONCE * 4
    partial = scores + AT_ONCE * 4 * BLOCK
    p = partial + AT_ONCE * padded // BLOCK * 64
    weights = p + AT_ONCE * padded
    of_row = weights_bytes(padded // BLOCK)
    sums = weights + AT_ONCE * of_row
    for d in range(value_dims):
        set_f32(nothing + 4 * d, np.float32(0))
    for d in range(AT_ONCE * (dims + 64)):
        set_i8(codes + d, np.int8(0))
    blocks = (positions + AT_ONCE - 1) // AT_ONCE
    for unit in range(heads * blocks * thread // threads, heads * blocks * (thread + 1) // threads):
        head = unit // blocks
        first = unit % blocks * AT_ONCE
        keys = get_i64(record + 8 * PACKED) + head * head_bytes(positions, dim)
        values = keys + _values_at(positions, dim)
        count = min(AT_ONCE, positions - first)
        at = 4 * head * dim
        q = get_i64(record + 8 * Q) + first * get_i64(record + 8 * STRIDE) + at
        for i in range(count):
            row = q + i * get_i64(record + 8 * STRIDE)
            found = _scale_of(_largest(isa, row, nothing, dim))
            set_f32(factors + 4 * i, np.float32(found * scale))
            _row_codes(isa, row, nothing, dim, _factor_of(found), codes + i * dims)
        _starts(isa, codes, dims, start)
        for j in range(0, padded, BLOCK):
            _scores(isa, keys + j * dims, dims, codes, start, scores)
            for i in range(count):
                softmax_block(
                    isa, scores + 4 * i * BLOCK, keys + padded * dims + 4 * j,
                    get_f32(factors + 4 * i), positions - j, p + i * padded + j,
                    weights + i * of_row + j // BLOCK * 4, partial + i * padded + j,
                )  # fmt: skip
        for i in range(count):
            total = whole_sum(
                isa, weights + i * of_row, partial + i * padded, get_f32(factors + 4 * i),
                padded // BLOCK,
            )  # fmt: skip
            set_f32(factors + 4 * i, np.float32(np.float32(1) / total))
        _mixed(isa, values, value_dims, padded, p, weights, sums)
        out = get_i64(record + 8 * OUT) + first * get_i64(record + 8 * OUT_STRIDE) + at
        for i in range(count):
            _finish(
                isa, sums + 4 * i * value_dims, values + padded * value_dims,
                get_f32(factors + 4 * i), dim, out + i * get_i64(record + 8 * OUT_STRIDE),
            )  # fmt: skip
