"""Dot products of ternary weights: exact sums of a row, or of blocks of 256 with a scale.

On avx512vnni, several rows and tokens are multiplied at once, so few tokens need no panels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots, memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.lanes import zero_lanes
from trinity_kernels.memory import get_f32, get_f64, get_i32, slots_of
from trinity_kernels.ops.matmul import epilogue
from trinity_kernels.ops.matmul.activations import (
    ternary_place,
    ternary_result,
    ternary_sums,
    ternary_tail,
)
from trinity_kernels.ops.matmul.operands import (
    ADD,
    BIAS,
    OUT,
    OUT_STRIDE,
    SCALE,
    SCRATCH,
    SCRATCH_STRIDE,
    W_STRIDE,
    X_STRIDE,
    K,
    W,
    X,
)
from trinity_kernels.ops.matmul.prefetch import AHEAD, prefetch_bytes
from trinity_kernels.ops.matmul.readers import code, nbytes, scale_at, ternary_codes, ternary_packed
from trinity_kernels.ops.matmul.ternary_blocks import (
    add_1_block,
    add_4_blocks,
    end_blocks,
    no_blocks,
)
from trinity_kernels.quants import READERS, emit
from trinity_kernels.quants.ternary import Ternary
from trinity_kernels.tags import constant, per_level

MOST_TOKENS = 12  # that are multiplied without packing; panels multiply more tokens faster
_LEVEL = "avx512vnni"
_ROWS, _TOKENS = 4, 4  # that are multiplied at once: 16 vectors of sums
_BLOCK = 256  # codes, in 64 bytes
_MASKS = (192, 48, 12, 3)  # of a byte's four codes

# -- one scale for the tensor ----------------------------------------------------------------------


@inline
def _add_shifted(isa: Any, qt: Any, a0: Any, a1: Any, block: int, left: int, x: int) -> Any:
    simd.prefetch(block + AHEAD)
    first, second, third, fourth = ternary_codes(qt, block, left)
    a0 = byte_dots.dot_u8i8(isa, a0, first, simd.load_i8x64(x))
    a1 = byte_dots.dot_u8i8(isa, a1, second, simd.load_i8x64(x + 64))
    a0 = byte_dots.dot_u8i8(isa, a0, third, simd.load_i8x64(x + 128))
    a1 = byte_dots.dot_u8i8(isa, a1, fourth, simd.load_i8x64(x + 192))
    return a0, a1


@inline
def _add_masked(
    isa: Any, qt: Any, a0: Any, a1: Any, a2: Any, a3: Any, block: int, left: int, x: int
) -> Any:
    simd.prefetch(block + AHEAD)
    v = ternary_packed(qt, block, left)
    a0 = byte_dots.dot_u8i8(isa, a0, v & simd.splat_i8x64(192), simd.load_i8x64(x))
    a1 = byte_dots.dot_u8i8(isa, a1, v & simd.splat_i8x64(48), simd.load_i8x64(x + 64))
    a2 = byte_dots.dot_u8i8(isa, a2, v & simd.splat_i8x64(12), simd.load_i8x64(x + 128))
    a3 = byte_dots.dot_u8i8(isa, a3, v & simd.splat_i8x64(3), simd.load_i8x64(x + 192))
    return a0, a1, a2, a3


def _codes_shifted(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """Sums of products of codes shifted to 0 .. 3, for levels whose unsigned operand is small."""
    a0 = simd.splat_i32x16(0)
    a1 = simd.splat_i32x16(0)
    whole = k // 256
    for c in range(whole):
        a0, a1 = _add_shifted(isa, qt, a0, a1, w + 64 * c, 256, x + 256 * c)
    if k % 256 > 0:
        a0, a1 = _add_shifted(isa, qt, a0, a1, w + 64 * whole, k % 256, x + 256 * whole)
    return ternary_result(simd.sum_i32x16(a0 + a1), x, k)


def _codes_masked(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """Sums of products of masked codes, 64, 16, 4 and 1 times too large, each in its own sum."""
    a0 = simd.splat_i32x16(0)
    a1 = simd.splat_i32x16(0)
    a2 = simd.splat_i32x16(0)
    a3 = simd.splat_i32x16(0)
    whole = k // 256
    for c in range(whole):
        a0, a1, a2, a3 = _add_masked(isa, qt, a0, a1, a2, a3, w + 64 * c, 256, x + 256 * c)
    if k % 256 > 0:
        block, p = w + 64 * whole, x + 256 * whole
        a0, a1, a2, a3 = _add_masked(isa, qt, a0, a1, a2, a3, block, k % 256, p)
    # Each lane is a multiple of its factor, so the arithmetic shifts are exact.
    total = simd.ashr_i32x16(a0, 6) + simd.ashr_i32x16(a1, 4) + simd.ashr_i32x16(a2, 2) + a3
    return ternary_result(simd.sum_i32x16(total), x, k)


@per_level(_codes_shifted, avx512vnni=_codes_masked, amx=_codes_masked)
def dot_codes(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    total = 0
    for e in range(k):
        a = int(memory.get_i8(x + ternary_place(e)))
        total += int(code(qt, w + e // 256 * 64, e % 256)) * a
    return ternary_result(total, x, k)


# -- a scale for each block ------------------------------------------------------------------------


@inline
def _products(isa: Any, qt: Any, block: int, x: int) -> Any:
    """The lanes of the products of a block and 256 activations."""
    simd.prefetch(block + AHEAD)
    first, second, third, fourth = ternary_codes(qt, block, 256)
    total = byte_dots.dot_u8i8(isa, simd.splat_i32x16(0), first, simd.load_i8x64(x))
    total = byte_dots.dot_u8i8(isa, total, second, simd.load_i8x64(x + 64))
    total = byte_dots.dot_u8i8(isa, total, third, simd.load_i8x64(x + 128))
    return byte_dots.dot_u8i8(isa, total, fourth, simd.load_i8x64(x + 192))


def _blocks(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    y = no_blocks()
    sums = x + ternary_sums(k)
    size, at = nbytes(qt), scale_at(qt)
    blocks = k // 256
    for b in range(0, blocks - 3, 4):
        block, p = w + size * b, x + 256 * b
        first = _products(isa, qt, block, p)
        second = _products(isa, qt, block + size, p + 256)
        third = _products(isa, qt, block + 2 * size, p + 512)
        fourth = _products(isa, qt, block + 3 * size, p + 768)
        y = add_4_blocks(y, first, second, third, fourth, sums + 4 * b, block + at, size)
    left = blocks % 4
    b = blocks - left
    block, p, sums = w + size * b, x + 256 * b, sums + 4 * b
    if left > 0:
        y = add_1_block(y, 0, _products(isa, qt, block, p), sums, block + at)
    if left > 1:
        block += size
        y = add_1_block(y, 1, _products(isa, qt, block, p + 256), sums + 4, block + at)
    if left > 2:
        block += size
        y = add_1_block(y, 2, _products(isa, qt, block, p + 512), sums + 8, block + at)
    return np.float32(end_blocks(y) / memory.get_f32(x + ternary_tail(k)))


@per_level(_blocks)
def dot_blocks(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    y = zero_lanes()
    size, at = nbytes(qt), scale_at(qt)
    for b in range(k // 256):
        block = w + size * b
        total = 0
        for e in range(256):
            a = int(memory.get_i8(x + 256 * b + ternary_place(e)))
            total += (int(code(qt, block, e)) - 1) * a
        d = memory.get_f16(block + at)
        y[b % 4] = memory.fma_f32(d, np.float32(total), y[b % 4])
    even, odd = np.float32(y[0] + y[2]), np.float32(y[1] + y[3])
    return np.float32(np.float32(even + odd) / memory.get_f32(x + ternary_tail(k)))


# -- several rows and tokens -----------------------------------------------------------------------


@constant
def tokens_without_packing(isa: Any, qt: Any) -> int:
    """The most tokens that ``multiply_few`` takes; 0 if the level or type needs panels."""
    reader = READERS[qt.value]
    if isa.value != _LEVEL or not isinstance(reader, Ternary) or reader.scale_at:
        return 0
    return MOST_TOKENS if reader.packed else 0


@inline
def multiply_few(
    isa: Any, qt: Any, record: int, first: int, last: int, tokens: int, thread: int
) -> None:
    """Multiply rows ``first`` to ``last``, a multiple of 16, by all tokens."""
    x, x_stride, w, w_stride, k = slots_of(record, (X, X_STRIDE, W, W_STRIDE, K))
    bias, add, out, out_stride = slots_of(record, (BIAS, ADD, OUT, OUT_STRIDE))
    scratch, scratch_stride = slots_of(record, (SCRATCH, SCRATCH_STRIDE))
    scale = simd.splat_f32x16(np.float32(get_f64(record + 8 * SCALE)))
    # A line of 16 int32 for each token: the exact sums of 16 rows.
    lines = scratch + thread * scratch_stride
    for row in range(first, last, 16):
        rows = w + row * w_stride
        for r in range(0, 16, _ROWS):
            few = rows + r * w_stride
            prefetch_bytes(few + 16 * w_stride, _ROWS * w_stride)
            for token in range(0, tokens, _TOKENS):
                _multiply(
                    isa, few, w_stride, k, x + token * x_stride, tokens - 1 - token, x_stride,
                    lines + 64 * token + 4 * r,
                )  # fmt: skip
        for token in range(tokens):
            tail = x + token * x_stride + ternary_tail(k)
            below = simd.splat_i32x16(int(get_i32(tail + 4)))
            exact = simd.load_i32x16(lines + 64 * token) - below
            y = simd.to_f32x16(exact) / simd.splat_f32x16(get_f32(tail))
            epilogue.store_16(y, scale, bias, add, row, out + token * out_stride + 4 * row)


@instructions("void", "tag", *["intp"] * 7)
def _multiply(
    builder: Any, isa: Any, w: Any, w_stride: Any, k: Any, x: Any, last: Any, x_stride: Any, to: Any
) -> None:
    """Write the exact sums of rows for each token, 64 bytes apart.

    The four codes of a byte are multiplied where they are, in four passes: the first pass
    multiplies the codes in the highest bits, which are 64 times too large. Before each later pass
    the sums are divided by four, exactly. ``last``: the last token, which replaces those after it.
    """
    rows = [builder.add(w, builder.mul(w_stride, simd.I64(r))) for r in range(_ROWS)]
    tokens = []
    for t in range(_TOKENS):
        over = builder.icmp_signed("<", last, simd.I64(t))
        number = builder.select(over, last, simd.I64(t))
        tokens.append(builder.add(x, builder.mul(number, x_stride)))
    zero = ir.Constant(simd.I32X16.ir, None)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in range(_ROWS * _TOKENS)]
    blocks = builder.lshr(k, simd.I64(8))
    left = builder.icmp_signed("!=", builder.and_(k, simd.I64(_BLOCK - 1)), simd.I64(0))
    for number, mask in enumerate(_MASKS):
        if number:
            for one in sums:
                two = ir.Constant(simd.I32X16.ir, [2] * 16)
                builder.store(builder.ashr(builder.load(one), two), one)

        def add(block: Any, kind: Any, number: int = number, mask: int = mask) -> None:
            at = builder.mul(block, simd.I64(_BLOCK // 4))
            codes = []
            for row in rows:
                loaded = emit.load(builder, builder.add(row, at), 0, kind)
                if kind.count < simd.I8X64.ir.count:
                    rest = ir.Constant(kind, None)
                    loaded = simd.shuffle(builder, loaded, rest, list(range(64)))
                codes.append(emit.masked(builder, loaded, mask))
            place = builder.add(builder.mul(block, simd.I64(_BLOCK)), simd.I64(64 * number))
            for t, token in enumerate(tokens):
                a = emit.load(builder, builder.add(token, place), 0, simd.I8X64.ir)
                for r, one in enumerate(codes):
                    total = sums[_ROWS * t + r]
                    before = builder.load(total)
                    after = byte_dots.emit_dot_bytes(isa.value, builder, before, one, a)
                    builder.store(after, total)

        with cgutils.for_range(builder, blocks) as loop:
            add(loop.index, simd.I8X64.ir)
        with builder.if_then(left):  # 128 codes, in 32 bytes
            add(blocks, simd.I8X32.ir)
    found = _folded(builder, [builder.load(one) for one in sums])
    for t in range(_TOKENS):
        some = simd.shuffle(builder, found, found, list(range(_ROWS * t, _ROWS * t + _ROWS)))
        at = builder.add(to, simd.I64(64 * t))
        builder.store(some, simd.pointer(builder, at, some.type), align=1)


def _folded(builder: Any, vectors: list[Any]) -> Any:
    """A vector with the sum of the lanes of each of 16 vectors."""
    lanes = 16
    while lanes > 1:
        lanes //= 2
        groups = 16 // lanes
        low = [2 * lanes * group + lane for group in range(groups) for lane in range(lanes)]
        high = [lanes + lane for lane in low]
        vectors = [
            builder.add(simd.shuffle(builder, a, b, low), simd.shuffle(builder, a, b, high))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]
