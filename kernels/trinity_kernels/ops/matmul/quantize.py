"""Quantization of float32 activations to the forms of products (activations.py).

Shapes: X is M rows of K float32, OUT M rows of the form. A token belongs to one thread; threads
share the independent blocks of a single token. If FEWER_THAN is not 0, steps of that many tokens or
more write nothing, because tiles read the float32 rows.
Numerics: a value that is not finite makes the scale NaN, so a broken model shows in its logits. A
block of q8 or q19 with magnitudes below 1e-35 is zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import Kernel, inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i32, get_i64, set_f32, set_i8, set_i32, set_i64
from trinity_kernels.ops.matmul.activations import (
    q8_groups,
    q8_halves,
    q8_negated,
    q8_scales,
    q8_sums,
    q19_groups,
    q19_halves,
    q19_middle,
    q19_ones,
    q19_scales,
    q19_sums,
    ternary_place,
    ternary_sums,
    ternary_tail,
)
from trinity_kernels.ops.matmul.q8_tables import (
    TINY,
    load_before,
    q8_codes,
    q8_scale,
    store_q8_tables,
)
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, X_STRIDE, OUT, OUT_STRIDE, K, FEWER_THAN = range(3, 9)
TOP = np.float32(1 << 18)  # of numbers of 19 bits: 32 * 255 * TOP fits 32 bits


@inline
def _end_ternary(out: int, k: int, s: Any, total: Any) -> None:
    """Write the padding of the sums, and the tail of the row."""
    tail = out + ternary_tail(k)
    for at in range(out + ternary_sums(k) + (k + 255) // 256 * 4, tail, 4):
        set_i32(at, np.int32(0))
    set_f32(tail, s)
    set_i32(tail + 4, total)


def _ternary_vector(isa: Any, x: int, k: int, out: int) -> None:
    padded = ternary_sums(k)
    largest = simd.splat_f32x16(np.float32(1e-5))
    poison = simd.splat_f32x16(np.float32(0))
    for i in range(0, k, 16):
        v = load_before(x, i, k)
        largest = simd.max_f32x16(largest, simd.abs_f32x16(v))
        poison = poison + v * simd.splat_f32x16(np.float32(0))
    s = np.float32(127) / simd.max_lane_f32x16(largest) + simd.sum_f32x16(poison)
    factor = simd.splat_f32x16(s)
    top = simd.splat_f32x16(np.float32(127))
    low = simd.splat_f32x16(np.float32(-128))
    zeros = simd.splat_i8x16(0)
    for i in range(0, padded, 16):
        place = out + ternary_place(i)
        if i < k:
            scaled = load_before(x, i, k) * factor
            scaled = simd.max_f32x16(low, simd.min_f32x16(top, simd.rint_f32x16(scaled)))
            simd.store_i8x16(place, simd.narrow_i8x16(simd.round_i32x16(scaled)))
        else:
            simd.store_i8x16(place, zeros)
    total = np.int32(0)
    for c in range(padded // 256):
        lanes = simd.splat_i32x16(0)
        for g in range(16):
            # Widen bytes in place: lane l of a 64-byte vector sums bytes 4 l to 4 l + 3.
            four = simd.load_i32x16(out + 256 * c + 64 * (g // 4))
            lanes = lanes - simd.ashr_i32x16(four << simd.splat_i32x16(24 - 8 * (g % 4)), 24)
        negated = simd.sum_i32x16(lanes)
        set_i32(out + padded + 4 * c, negated)
        total -= negated
    _end_ternary(out, k, s, total)


@per_level(_ternary_vector)
def _ternary(isa: Any, x: int, k: int, out: int) -> None:
    padded = ternary_sums(k)
    largest = np.float32(1e-5)
    poison = np.float32(0)
    for i in range(k):
        v = get_f32(x + 4 * i)
        magnitude = np.float32(abs(v))
        largest = magnitude if magnitude > largest else largest
        poison = np.float32(poison + np.float32(v * np.float32(0)))
    s = np.float32(np.float32(np.float32(127) / largest) + poison)
    negated = 0
    total = 0
    for i in range(padded):
        place = ternary_place(i)
        code = 0
        if i < k:
            scaled = np.float32(get_f32(x + 4 * i) * s)
            if scaled == scaled:
                code = int(np.rint(max(np.float32(-128), min(np.float32(127), scaled))))
        set_i8(out + place, np.int8(code))
        negated -= code
        if i % 256 == 255:
            set_i32(out + padded + i // 256 * 4, np.int32(negated))
            total -= negated
            negated = 0
    _end_ternary(out, k, s, np.int32(total))


@inline
def _store_sums(sums: int, halves: int, block: int, d: Any, low: int, high: int) -> None:
    """Write a block's scaled sum, and those of its halves."""
    set_f32(sums + 4 * block, np.float32(d * np.float32(low + high)))
    set_f32(halves + 8 * block, np.float32(d * np.float32(low)))
    set_f32(halves + 8 * block + 4, np.float32(d * np.float32(high)))


@inline
def _no_q8_block(out: int, k: int, b: int) -> None:
    """Write the zeros that pad the arrays."""
    set_f32(out + q8_scales(k) + 4 * b, np.float32(0))
    set_f32(out + q8_sums(k) + 4 * b, np.float32(0))
    set_i64(out + q8_halves(k) + 8 * b, 0)
    set_i64(out + q8_negated(k) + 8 * b, 0)


def _q8_vector(isa: Any, x: int, k: int, out: int, first: int, last: int) -> None:
    """Quantize two blocks at a time."""
    padded = q8_scales(k)
    for b in range(first, last, 2):
        if 32 * b >= padded:
            _no_q8_block(out, k, b)
            _no_q8_block(out, k, b + 1)
            continue
        v0 = simd.load_f32x16(x + 128 * b)
        v1 = simd.load_f32x16(x + 128 * b + 64)
        d0, inverse = q8_scale(v0, v1)
        low = simd.concat_i8x16(q8_codes(v0, inverse), q8_codes(v1, inverse))
        d1 = np.float32(0)
        high = simd.splat_i8x32(0)
        if 32 * b + 32 < k:
            v0 = simd.load_f32x16(x + 128 * b + 128)
            v1 = simd.load_f32x16(x + 128 * b + 192)
            d1, inverse = q8_scale(v0, v1)
            high = simd.concat_i8x16(q8_codes(v0, inverse), q8_codes(v1, inverse))
        codes = simd.concat_i8x32(low, high)
        simd.store_i8x64(out + 32 * b, codes)
        store_q8_tables(
            isa, codes, d0, d1, out + padded + 4 * b, out + q8_sums(k) + 4 * b,
            out + q8_groups(k) + 32 * b, out + q8_halves(k) + 8 * b, out + q8_negated(k) + 8 * b,
        )  # fmt: skip


@inline
def _scale_and_inverse(x: int, exists: bool, top: Any) -> tuple[Any, Any]:
    """The scale of 32 values, which makes ``top`` of the largest magnitude, and its inverse.

    The scale is NaN if a value is no finite number, and 0 if the values do not exist.
    """
    largest = np.float32(0)
    poison = np.float32(0)
    if exists:
        for i in range(32):
            v = get_f32(x + 4 * i)
            magnitude = np.float32(abs(v))
            largest = magnitude if magnitude > largest else largest
            poison = np.float32(poison + np.float32(v * np.float32(0)))
    d = np.float32(0)
    inverse = np.float32(0)
    if largest > TINY:
        d = np.float32(largest / top)
        inverse = np.float32(top / largest)
    return np.float32(d + poison), inverse


@per_level(_q8_vector)
def _q8(isa: Any, x: int, k: int, out: int, first: int, last: int) -> None:
    padded = q8_scales(k)
    sums, groups, halves = out + q8_sums(k), out + q8_groups(k), out + q8_halves(k)
    for b in range(first, last):
        if 32 * b >= padded:
            _no_q8_block(out, k, b)
            continue
        d, inverse = _scale_and_inverse(x + 128 * b, 32 * b < k, np.float32(127))
        set_f32(out + padded + 4 * b, d)
        low = 0
        high = 0
        for g in range(8):
            negated = 0
            for t in range(4):
                i = 4 * g + t
                code = 0
                if 32 * b < k:
                    scaled = np.float32(get_f32(x + 128 * b + 4 * i) * inverse)
                    if scaled == scaled:
                        code = int(np.rint(max(np.float32(-127), min(np.float32(127), scaled))))
                set_i8(out + 32 * b + i, np.int8(code))
                negated -= code
            set_i32(groups + 32 * b + 4 * g, np.int32(negated))
            if g < 4:
                low -= negated
            else:
                high -= negated
        _store_sums(sums, halves, b, d, low, high)
        set_i32(out + q8_negated(k) + 8 * b, np.int32(-low))
        set_i32(out + q8_negated(k) + 8 * b + 4, np.int32(-high))


@inline
def _store_numbers(out: int, middle: int, ones: int, numbers: Any) -> None:
    """Write 16 numbers as high, middle and ones codes."""
    high = simd.ashr_i32x16(numbers + simd.splat_i32x16(0x8080), 16)
    rest = numbers - (high << simd.splat_i32x16(16))
    more = simd.ashr_i32x16(rest + simd.splat_i32x16(128), 8)
    simd.store_i8x16(out, simd.narrow_i8x16(high))
    simd.store_i8x16(middle, simd.narrow_i8x16(more))
    simd.store_i8x16(ones, simd.narrow_i8x16(rest - (more << simd.splat_i32x16(8))))


def _q19_vector(isa: Any, x: int, k: int, out: int, first: int, last: int) -> None:
    padded = q19_middle(k)
    middle, ones, scales = out + padded, out + q19_ones(k), out + q19_scales(k)
    sums = out + q19_sums(k)
    groups, halves = out + q19_groups(k), out + q19_halves(k)
    for b in range(first, last):
        d = np.float32(0)
        if 32 * b < k:
            v0 = simd.load_f32x16(x + 128 * b)
            v1 = simd.load_f32x16(x + 128 * b + 64)
            largest = simd.max_lane_f32x16(
                simd.max_f32x16(simd.abs_f32x16(v0), simd.abs_f32x16(v1))
            )
            inverse = np.float32(0)
            if largest > TINY:
                d = np.float32(largest / TOP)
                inverse = np.float32(TOP / largest)
            zero = simd.splat_f32x16(np.float32(0))
            d = np.float32(d + simd.sum_f32x16(v0 * zero + v1 * zero))
            factor = simd.splat_f32x16(inverse)
            top = simd.splat_f32x16(TOP)
            low = simd.splat_f32x16(-TOP)
            v0 = simd.max_f32x16(low, simd.min_f32x16(top, simd.rint_f32x16(v0 * factor)))
            v1 = simd.max_f32x16(low, simd.min_f32x16(top, simd.rint_f32x16(v1 * factor)))
            c0 = simd.round_i32x16(v0)
            c1 = simd.round_i32x16(v1)
            _store_numbers(out + 32 * b, middle + 32 * b, ones + 32 * b, c0)
            _store_numbers(out + 32 * b + 16, middle + 32 * b + 16, ones + 32 * b + 16, c1)
        elif 32 * b < padded:
            simd.store_i8x32(out + 32 * b, simd.splat_i8x32(0))
            simd.store_i8x32(middle + 32 * b, simd.splat_i8x32(0))
            simd.store_i8x32(ones + 32 * b, simd.splat_i8x32(0))
        set_f32(scales + 4 * b, d)
        if 32 * b >= padded:
            _store_sums(sums, halves, b, d, 0, 0)
            continue
        lanes = simd.splat_i32x8(0)
        four = simd.load_i32x8(out + 32 * b)
        more = simd.load_i32x8(middle + 32 * b)
        rest = simd.load_i32x8(ones + 32 * b)
        eight = simd.splat_i32x8(8)
        for t in range(4):
            left = simd.splat_i32x8(24 - 8 * t)
            code = (simd.ashr_i32x8(four << left, 24) << eight) + simd.ashr_i32x8(more << left, 24)
            lanes = lanes - (code << eight) - simd.ashr_i32x8(rest << left, 24)
        at = groups + 32 * b
        simd.store_i32x8(at, lanes)
        low = get_i32(at) + get_i32(at + 4) + get_i32(at + 8) + get_i32(at + 12)
        high = get_i32(at + 16) + get_i32(at + 20) + get_i32(at + 24) + get_i32(at + 28)
        _store_sums(sums, halves, b, d, -low, -high)


@per_level(_q19_vector)
def _q19(isa: Any, x: int, k: int, out: int, first: int, last: int) -> None:
    padded = q19_middle(k)
    middle, ones, scales = out + padded, out + q19_ones(k), out + q19_scales(k)
    sums = out + q19_sums(k)
    groups, halves = out + q19_groups(k), out + q19_halves(k)
    for b in range(first, last):
        d, inverse = _scale_and_inverse(x + 128 * b, 32 * b < k, TOP)
        set_f32(scales + 4 * b, d)
        if 32 * b >= padded:
            _store_sums(sums, halves, b, d, 0, 0)
            continue
        low = 0
        high = 0
        for g in range(8):
            negated = 0
            for t in range(4):
                i = 32 * b + 4 * g + t
                code = 0
                if 32 * b < k:
                    scaled = np.float32(get_f32(x + 4 * i) * inverse)
                    if scaled == scaled:
                        code = int(np.rint(max(-TOP, min(TOP, scaled))))
                large = (code + 0x8080) >> 16
                rest = code - 65536 * large
                more = (rest + 128) >> 8
                set_i8(out + i, np.int8(large))
                set_i8(middle + i, np.int8(more))
                set_i8(ones + i, np.int8(rest - 256 * more))
                negated -= code
            set_i32(groups + 32 * b + 4 * g, np.int32(negated))
            if g < 4:
                low -= negated
            else:
                high -= negated
        _store_sums(sums, halves, b, d, low, high)


@kernel
def quantize_ternary(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """For each token s = 127 / max(max|x|, 1e-5), and codes, rounded half to even and clamped.

    Source: BitNet b1.58's activation quantization, transformers' ActQuant.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k = get_i64(record + 8 * K)
    for t in range(thread, tokens, positive(threads)):
        x = get_i64(record + 8 * X) + t * get_i64(record + 8 * X_STRIDE)
        _ternary(isa, x, k, get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE))


@inline
def _blocks(isa: Any, record: int, thread: int, threads: int, fine: int) -> None:
    """Quantize rows to the q8 form, or with ``fine`` to q19."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    limit = get_i64(record + 8 * FEWER_THAN)
    if limit != 0 and tokens >= limit:
        return
    k = get_i64(record + 8 * K)
    pairs = (k + 511) // 512 * 8
    first, last, begin = 0, 2 * pairs, thread
    if tokens == 1:
        first, last, begin = (
            2 * (pairs * thread // threads),
            2 * (pairs * (thread + 1) // threads),
            0,
        )
    for t in range(begin, tokens, positive(threads)):
        x = get_i64(record + 8 * X) + t * get_i64(record + 8 * X_STRIDE)
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
        if fine != 0:
            _q19(isa, x, k, out, first, last)
        else:
            _q8(isa, x, k, out, first, last)


@kernel
def quantize_q8(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """For each block of 32 scale = max|x| / 127, and codes, rounded half to even."""
    _blocks(isa, record, thread, threads, 0)


@kernel
def quantize_q19(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """For each block of 32 scale = max|x| / 2**18, and numbers, rounded half to even."""
    _blocks(isa, record, thread, threads, 1)


def quantizer_of(form: str) -> Kernel:
    """The kernel that quantizes to a form."""
    return {"ternary": quantize_ternary, "q8": quantize_q8, "q19": quantize_q19}[form]
