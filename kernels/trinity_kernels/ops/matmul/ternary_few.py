"""Ternary weights times a batch of tokens on avx512vnni, without packing: for types like I2_S.

Four rows of weights are multiplied by four tokens at a time. Each byte of weights has four codes,
which are multiplied where they are, in four passes: the first pass multiplies the codes in the
highest bits, which are 64 times too large. Before each later pass the sums are divided by four, so
the last pass adds codes of the right size. The divisions are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32, get_f64, get_i32, slots_of
from trinity_kernels.ops.matmul import epilogue
from trinity_kernels.ops.matmul.activations import ternary_tail
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
from trinity_kernels.ops.matmul.prefetch import prefetch_bytes
from trinity_kernels.quants import READERS, emit
from trinity_kernels.quants.ternary import Ternary
from trinity_kernels.tags import constant

LEVEL = "avx512vnni"
MOST_TOKENS = 12  # panels multiply more tokens faster, although they are packed first
_BLOCK = 256  # codes, in 64 bytes
_ROWS, _TOKENS = 4, 4  # that are multiplied at once: 16 vectors of sums
_MASKS = (192, 48, 12, 3)


@constant
def tokens_without_packing(isa: Any, qt: Any) -> int:
    """The most tokens that ``multiply_few`` takes; 0 if the level or type needs panels."""
    reader = READERS[qt.value]
    if isa.value != LEVEL or not isinstance(reader, Ternary) or reader.scale_at:
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

    ``last``: the last token, which replaces those after it.
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
