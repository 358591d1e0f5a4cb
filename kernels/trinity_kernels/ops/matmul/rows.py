"""Products row by row, for every level and type; steps of one token use them.

Threads share the rows of weights. 16 rows at a time are multiplied by all tokens; plain numbers are
multiplied by several tokens in blocks (float_block.py).
Numerics: an output depends only on its row and its token, not on M, threads or blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel_with
from trinity_kernels.memory import get_f32, get_f64, get_i64, slots_of
from trinity_kernels.ops.matmul import epilogue
from trinity_kernels.ops.matmul.dot import dot_row, dot_rows, rows_at_once
from trinity_kernels.ops.matmul.float_block import (
    ROW_BYTES,
    TOKEN_BYTES,
    block_size,
    dot_block,
    sums_on_stack,
)
from trinity_kernels.ops.matmul.operands import (
    ADD,
    BIAS,
    OUT,
    OUT_STRIDE,
    SCALE,
    W_STRIDE,
    X_STRIDE,
    K,
    N,
    W,
    X,
)
from trinity_kernels.quants import grid
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive


@inline
def rows_by_dots(isa: Any, qt: Any, record: int, first: int, last: int, tokens: int) -> None:
    """Multiply rows first to last by dot products: few tokens, or rows that fill no panel."""
    x, x_stride, w, w_stride, k = slots_of(record, (X, X_STRIDE, W, W_STRIDE, K))
    bias, add, out, out_stride = slots_of(record, (BIAS, ADD, OUT, OUT_STRIDE))
    scale = np.float32(get_f64(record + 8 * SCALE))
    at_once = rows_at_once(isa, qt)
    if at_once > 0:
        sums = sums_on_stack()
        while first + at_once <= last:
            for token in range(tokens):
                dot_rows(isa, qt, w + first * w_stride, w_stride, x + token * x_stride, k, sums)
                for r in range(at_once):
                    y = get_f32(sums + 4 * r)
                    to = out + token * out_stride + 4 * (first + r)
                    epilogue.store(y, scale, bias, add, first + r, to)
            first += at_once
    for row in range(first, last):
        for token in range(tokens):
            y = dot_row(isa, qt, w + row * w_stride, x + token * x_stride, k)
            epilogue.store(y, scale, bias, add, row, out + token * out_stride + 4 * row)


@inline
def _blocks(isa: Any, qt: Any, record: int, first: int, last: int, tokens: int) -> None:
    """Multiply rows first to last of plain numbers block by block (float_block.py).

    Some rows, which stay in the second-level cache, are multiplied by all tokens, and meanwhile the
    next ones are prefetched.
    """
    x, x_stride, w, w_stride, k = slots_of(record, (X, X_STRIDE, W, W_STRIDE, K))
    bias, add, out, out_stride = slots_of(record, (BIAS, ADD, OUT, OUT_STRIDE))
    scale = np.float32(get_f64(record + 8 * SCALE))
    rows, at_once = block_size(isa, qt)
    sums = sums_on_stack()
    together = 4 * rows
    if 4 * k * tokens > TOKEN_BYTES:
        together = max(ROW_BYTES // positive(w_stride) // rows * rows, together)
    # Each block prefetches a part of the next rows.
    part = rows * w_stride // positive((tokens + at_once - 1) // at_once)
    for start in range(first, last, positive(together)):
        stop = min(start + together, last)
        ahead = w + stop * w_stride
        for token in range(0, tokens, at_once):
            width = min(at_once, tokens - token)
            for row in range(start, stop, rows):
                height = min(rows, stop - row)
                dot_block(
                    isa, qt, w + row * w_stride, w_stride, height, x + token * x_stride, x_stride,
                    width, k, ahead, part * 16 // k, sums,
                )  # fmt: skip
                ahead += part
                for r in range(height):
                    for t in range(width):
                        y = get_f32(sums + 4 * (r * at_once + t))
                        to = out + (token + t) * out_stride + 4 * (row + r)
                        epilogue.store(y, scale, bias, add, row + r, to)


@kernel_with(amx=grid.TYPES)
def matmul(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Multiply; threads share the rows of w equally, in multiples of 16."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, x_stride, w, w_stride, n = slots_of(record, (X, X_STRIDE, W, W_STRIDE, N))
    k, out, out_stride, bias, add = slots_of(record, (K, OUT, OUT_STRIDE, BIAS, ADD))
    scale = np.float32(get_f64(record + 8 * SCALE))
    panels = (n + 15) // 16
    first = panels * thread // threads * 16
    last = min(n, panels * (thread + 1) // threads * 16)
    if block_size(isa, qt)[0] > 0 and tokens > 1 and k % 16 == 0:
        _blocks(isa, qt, record, first, last, tokens)
        return
    # These rows stay in the first-level cache for all tokens.
    for start in range(first, last, 16):
        stop = min(start + 16, last)
        for token in range(tokens):
            xt = x + token * x_stride
            to = out + token * out_stride
            for row in range(start, stop):
                y = dot_row(isa, qt, w + row * w_stride, xt, k)
                epilogue.store(y, scale, bias, add, row, to + 4 * row)
