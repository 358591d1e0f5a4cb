"""Upper bounds of the products of one row of activations and many rows of weights, from a sketch.

A sketch is a copy of a matrix with codes of 4 bits. ``u`` has one number in [-1/2, 1/2) for each
column, drawn at random and shared by all rows. Each row has a scale s for each block of 64 columns:

    s = max|w| / 7, rounded up to float16    code = round(w / s + u + 7.5)    q = (code - 7.5 - u) s

So w - q is uniform in [-s / 2, s / 2] whatever w is, and independent for the columns of a row.
``sketch_codes`` (sketch_codes.py) writes a sketch and ``sketch_inputs`` prepares activations.
``sketch_bounds`` writes q.x + FACTOR sqrt(sum of s^2 n) for every row, where n is a block's number
in the activations (see ``sketch_inputs``); runtime/sketch/head_sketch.py proves that it bounds w.x.

Layout: 16 rows are a panel. Of a block it has 8 vectors of 64 bytes. In vector i, byte 4 r + t has
the codes of row r and columns 4 i + t (low nibble) and 32 + 4 i + t (high nibble). The scales of
all blocks follow the codes of all blocks, 16 float16 for each block.
A prepared row of activations has K int8 codes and then for each block 4 float32: the scales of the
codes of its first and second 32 columns, the sum of (7.5 + u) x, and n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import (
    get_f16,
    get_f32,
    get_f64,
    get_i8,
    get_i64,
    get_u8,
    set_f32,
    set_i8,
)
from trinity_kernels.ops.matmul.activations import q8_scales
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import constant, per_level

X, X_STRIDE, W, N, K, OUT, OUT_STRIDE, TOPS, TOPS_STRIDE, FACTOR, SHIFTS = range(3, 14)
# The forms of activations that ``sketch_inputs`` takes: its tags.
FORMS = ("f32", "q8")
PANEL, BLOCK = 16, 64
TOGETHER = 4  # rows of activations that share the unpacked codes
# Largest code of float activations. With a number in [0, 1) added, it is rounded down to at most
# 127.
_TOP = np.float32(126.5)
_AHEAD = 4096  # bytes from a load to its prefetch
_LEAST = np.float32(1e-30)  # smaller activations count as 0; n covers the error


def panel_bytes(k: int) -> int:
    """Bytes of a panel of rows of ``k`` weights, a multiple of 64."""
    return -(-k // BLOCK * (PANEL * BLOCK // 2 + 2 * PANEL) // 64) * 64


def input_bytes(k: int) -> int:
    """Bytes of a prepared row of ``k`` activations, a multiple of 64."""
    return -(-(k + k // BLOCK * 16) // 64) * 64


# -- activations -----------------------------------------------------------------------------------


@constant
def _is_float(qt: Any) -> bool:
    return bool(qt.value == "f32")


@kernel
def sketch_inputs(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Prepare rows of activations of the form that the tag names.

    Codes of the q8 form are copied: n = |x|^2 / 12 for the block's numbers x. Floats x become
    codes = floor(x / d + v), where d is a scale for 32 columns and v a number in [0, 1) for each
    column, drawn at random: n = (|x| + d sqrt(32))^2 / 12 + 392 d^2, summed over the two parts.
    SHIFTS has u + 7.5 and then v for each column.
    """
    tokens, k = get_i64(get_i64(record + 8 * ROWS)), get_i64(record + 8 * K)
    shifts, draws = get_i64(record + 8 * SHIFTS), get_i64(record + 8 * SHIFTS) + 4 * k
    blocks = k // BLOCK
    for item in range(thread, tokens * blocks, positive(threads)):
        t, b = item // blocks, item % blocks
        x = get_i64(record + 8 * X) + t * get_i64(record + 8 * X_STRIDE)
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
        total, spread = np.float32(0), _LEAST
        for half in range(2):
            first = BLOCK * b + 32 * half
            d, error = np.float32(0), np.float32(0)
            squares = np.float32(0)
            if _is_float(qt):
                largest = np.float32(0)
                for j in range(first, first + 32):
                    v = get_f32(x + 4 * j)
                    largest = max(largest, np.float32(abs(v)))
                    squares = np.float32(squares + np.float32(v * v))
                inverse = np.float32(0)
                if largest > _LEAST:
                    d = np.float32(largest / _TOP)
                    inverse = np.float32(_TOP / largest)
                for j in range(first, first + 32):
                    shifted = np.float32(np.float32(get_f32(x + 4 * j) * inverse))
                    shifted = np.floor(np.float32(shifted + get_f32(draws + 4 * j)))
                    code = int(max(np.float32(-127), min(np.float32(127), shifted)))
                    set_i8(out + j, np.int8(code))
                length = np.float32(np.sqrt(squares) + np.float32(5.6569) * d)
                squares = np.float32(length * length)
                error = np.float32(np.float32(392) * np.float32(d * d))
            else:
                d = get_f32(x + q8_scales(k) + first // 8)
                whole = 0
                for j in range(first, first + 32):
                    code = int(get_i8(x + j))
                    whole += code * code
                    set_i8(out + j, np.int8(code))
                squares = np.float32(np.float32(whole) * np.float32(d * d))
            set_f32(out + k + 16 * b + 4 * half, d)
            part = np.float32(0)
            for j in range(first, first + 32):
                term = np.float32(np.float32(get_i8(out + j)) * get_f32(shifts + 4 * j))
                part = np.float32(part + term)
            total = np.float32(total + np.float32(part * d))
            spread = np.float32(spread + np.float32(squares * np.float32(1 / 12)) + error)
        set_f32(out + k + 16 * b + 8, total)
        set_f32(out + k + 16 * b + 12, spread)


# -- bounds ----------------------------------------------------------------------------------------


@inline
def _sum_of_codes(code: int, lane: int, first: int, x: int) -> int:
    """The products of 32 codes of a row and of activations; ``first``: 0 or 4, the nibble."""
    total = 0
    for j in range(32):
        byte = int(get_u8(code + j // 4 * 64 + 4 * lane + j % 4))
        total += (byte >> first & 15) * int(get_i8(x + 8 * first + j))
    return total


def _bounds_vector(
    isa: Any, w: int, x: int, x_stride: int, count: int, k: int, factor: Any, out: int,
    out_stride: int,
) -> None:  # fmt: skip
    if count == TOGETHER:
        emitted_bounds(isa, TOGETHER, w, x, x_stride, k, factor, out, out_stride)
        return
    for t in range(count):
        emitted_bounds(isa, 1, w, x + t * x_stride, 0, k, factor, out + t * out_stride, 0)


@per_level(_bounds_vector)
def _bounds(
    isa: Any, w: int, x: int, x_stride: int, count: int, k: int, factor: Any, out: int,
    out_stride: int,
) -> None:  # fmt: skip
    """The bounds of a panel for ``count`` rows of activations, at most TOGETHER."""
    blocks = k // BLOCK
    for t in range(count):
        at = x + t * x_stride
        for lane in range(PANEL):
            product, spread = np.float32(0), np.float32(0)
            for b in range(blocks):
                code = w + PANEL * BLOCK // 2 * b
                low = np.float32(_sum_of_codes(code, lane, 0, at + BLOCK * b))
                high = np.float32(_sum_of_codes(code, lane, 4, at + BLOCK * b))
                part = np.float32(low * get_f32(at + k + 16 * b))
                part = np.float32(part - get_f32(at + k + 16 * b + 8))
                part = np.float32(part + np.float32(high * get_f32(at + k + 16 * b + 4)))
                s = get_f16(w + PANEL * BLOCK // 2 * blocks + 2 * PANEL * b + 2 * lane)
                product = np.float32(product + np.float32(s * part))
                n = get_f32(at + k + 16 * b + 12)
                spread = np.float32(spread + np.float32(np.float32(s * s) * n))
            bound = np.float32(product + np.float32(factor * np.float32(np.sqrt(spread))))
            set_f32(out + t * out_stride + 4 * lane, bound)


@instructions("void", "tag", "literal", *["intp"] * 4, "float32", *["intp"] * 2)
def emitted_bounds(
    builder: Any, isa: Any, count: Any, w: Any, x: Any, x_stride: Any, k: Any, factor: Any,
    out: Any, out_stride: Any,
) -> Any:  # fmt: skip
    """Emit the bounds of a panel for ``count`` rows of activations."""
    floats, words, bytes_ = simd.F32X16.ir, simd.I32X16.ir, simd.I8X64.ir

    def plus(address: Any, index: Any, step: int) -> Any:
        return builder.add(address, builder.mul(index, simd.I64(step)))

    def load(address: Any, kind: Any) -> Any:
        return builder.load(simd.pointer(builder, address, kind), align=1)

    def fused(a: Any, b: Any, c: Any) -> Any:
        return simd.call_named(builder, "llvm.fma.v16f32", floats, [a, b, c])

    def number(address: Any, offset: int) -> Any:
        value = load(builder.add(address, simd.I64(offset)), simd.F32)
        return simd.broadcast(builder, value, simd.F32X16)

    xs = [builder.add(x, builder.mul(x_stride, simd.I64(t))) for t in range(count)]
    sums = [[cgutils.alloca_once(builder, floats) for _ in range(2)] for _ in range(count)]
    for both in sums:
        for total in both:
            builder.store(ir.Constant(floats, None), total)
    blocks = builder.sdiv(k, simd.I64(BLOCK))
    scales = plus(w, blocks, PANEL * BLOCK // 2)
    nibble = ir.Constant(bytes_, [15] * 64)
    four = ir.Constant(simd.I16X32.ir, [4] * 32)
    with cgutils.for_range(builder, blocks) as loop:
        at = plus(w, loop.index, PANEL * BLOCK // 2)
        low = [ir.Constant(words, None)] * count
        high = list(low)
        for i in range(8):
            line = builder.add(at, simd.I64(64 * i))
            ahead = simd.pointer(builder, builder.add(line, simd.I64(_AHEAD)), simd.I8)
            hints = [ahead, simd.I32(0), simd.I32(3), simd.I32(1)]
            simd.call_named(builder, "llvm.prefetch.p0", ir.VoidType(), hints)
            codes = load(line, bytes_)
            shifted = builder.lshr(builder.bitcast(codes, simd.I16X32.ir), four)
            parts = [
                builder.and_(codes, nibble),
                builder.and_(builder.bitcast(shifted, bytes_), nibble),
            ]
            for t in range(count):
                for part, half, of in ((parts[0], 0, low), (parts[1], 32, high)):
                    source = builder.add(plus(xs[t], loop.index, BLOCK), simd.I64(half + 4 * i))
                    four_codes = simd.broadcast(builder, load(source, simd.I32), simd.I32X16)
                    operand = builder.bitcast(four_codes, bytes_)
                    of[t] = byte_dots.emit_dot_u8i8(isa.value, builder, of[t], part, operand)
        halves = load(plus(scales, loop.index, 2 * PANEL), simd.F16X16.ir)
        s = builder.fpext(halves, floats)
        squares = builder.fmul(s, s)
        for t in range(count):
            numbers = plus(builder.add(xs[t], k), loop.index, 16)
            part = fused(
                builder.sitofp(low[t], floats), number(numbers, 0),
                builder.fsub(ir.Constant(floats, None), number(numbers, 8)),
            )  # fmt: skip
            part = fused(builder.sitofp(high[t], floats), number(numbers, 4), part)
            product, spread = sums[t]
            builder.store(fused(s, part, builder.load(product)), product)
            builder.store(fused(squares, number(numbers, 12), builder.load(spread)), spread)
    wide = simd.broadcast(builder, factor, simd.F32X16)
    for t in range(count):
        product, spread = (builder.load(total) for total in sums[t])
        root = simd.call_named(builder, "llvm.sqrt.v16f32", floats, [spread])
        to = builder.add(out, builder.mul(out_stride, simd.I64(t)))
        builder.store(fused(wide, root, product), simd.pointer(builder, to, floats), align=1)


@kernel
def sketch_bounds(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Write N bounds for each row of activations to OUT, and the largest of each panel to TOPS."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k, panels = get_i64(record + 8 * K), get_i64(record + 8 * N) // PANEL
    x, x_stride = get_i64(record + 8 * X), get_i64(record + 8 * X_STRIDE)
    out, out_stride = get_i64(record + 8 * OUT), get_i64(record + 8 * OUT_STRIDE)
    tops, tops_stride = get_i64(record + 8 * TOPS), get_i64(record + 8 * TOPS_STRIDE)
    factor = np.float32(get_f64(record + 8 * FACTOR))
    blocks = k // BLOCK
    size = (blocks * (PANEL * BLOCK // 2 + 2 * PANEL) + 63) // 64 * 64
    for panel in range(panels * thread // threads, panels * (thread + 1) // threads):
        w = get_i64(record + 8 * W) + panel * size
        for first in range(0, tokens, TOGETHER):
            count = min(TOGETHER, tokens - first)
            to = out + first * out_stride + 4 * PANEL * panel
            _bounds(isa, w, x + first * x_stride, x_stride, count, k, factor, to, out_stride)
        for t in range(tokens):
            at = out + t * out_stride + 4 * PANEL * panel
            top = get_f32(at)
            for lane in range(1, PANEL):
                top = max(top, get_f32(at + 4 * lane))
            set_f32(tops + t * tops_stride + 4 * panel, top)
