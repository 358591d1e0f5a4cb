"""out = scale * (x @ w.T) + bias, or added onto out: the operation that takes the time.

Shapes: x is M rows of activations in the form that the weight's type names, ``X_STRIDE`` bytes
apart; w is N rows of K weights, ``W_STRIDE`` bytes apart; out is M rows of float32. Threads share
the rows of w, so a weight is read by one thread, once per ``_TOKENS`` tokens.
Numerics: an output depends on its row and its token alone, not on M, threads or blocking.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.memory import get_f32, get_f64, get_i64, set_f32
from trinity_kernels.quants.dot import dot_row
from trinity_kernels.quants.float_block import block_size, block_sums, dot_block
from trinity_kernels.record import ROWS

X, X_STRIDE, W, W_STRIDE, N, K, OUT, OUT_STRIDE, SCALE, BIAS, ADD = range(3, 14)

# Rows of w that stay in the first-level cache while the tokens pass.
_PANEL = 16


@inline
def rows_by_dots(isa: Any, qt: Any, record: int, first: int, last: int, tokens: int) -> None:
    """Rows first to last by dot products, for few tokens and for rows that fill no panel."""
    x = get_i64(record + 8 * X)
    x_stride = get_i64(record + 8 * X_STRIDE)
    w = get_i64(record + 8 * W)
    w_stride = get_i64(record + 8 * W_STRIDE)
    k = get_i64(record + 8 * K)
    scale = np.float32(get_f64(record + 8 * SCALE))
    bias = get_i64(record + 8 * BIAS)
    add = get_i64(record + 8 * ADD)
    out = get_i64(record + 8 * OUT)
    out_stride = get_i64(record + 8 * OUT_STRIDE)
    for row in range(first, last):
        for token in range(tokens):
            to = out + token * out_stride + 4 * row
            y = dot_row(isa, qt, w + row * w_stride, x + token * x_stride, k)
            y = np.float32(y * scale)
            if bias != 0:
                y = np.float32(y + get_f32(bias + 4 * row))
            if add != 0:
                y = np.float32(get_f32(to) + y)
            set_f32(to, y)


@kernel
def matmul(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Rows of w shared out evenly in multiples of 16; see the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x = get_i64(record + 8 * X)
    x_stride = get_i64(record + 8 * X_STRIDE)
    w = get_i64(record + 8 * W)
    w_stride = get_i64(record + 8 * W_STRIDE)
    n = get_i64(record + 8 * N)
    k = get_i64(record + 8 * K)
    out = get_i64(record + 8 * OUT)
    out_stride = get_i64(record + 8 * OUT_STRIDE)
    scale = np.float32(get_f64(record + 8 * SCALE))
    bias = get_i64(record + 8 * BIAS)
    add = get_i64(record + 8 * ADD)
    panels = (n + 15) // 16
    first = panels * thread // threads * 16
    last = min(n, panels * (thread + 1) // threads * 16)
    rows, at_once = block_size(isa, qt)
    if rows > 0 and tokens > 1 and k % 16 == 0:
        sums = block_sums(isa, qt)
        for row in range(first, last, rows):
            height = min(rows, last - row)
            # Every group of tokens asks for its part of the next rows.
            part = rows * w_stride // ((tokens + at_once - 1) // at_once)
            ahead = w + (row + rows) * w_stride
            for token in range(0, tokens, at_once):
                width = min(at_once, tokens - token)
                dot_block(
                    isa, qt, w + row * w_stride, w_stride, height, x + token * x_stride, x_stride,
                    width, k, ahead, part * 16 // k, sums,
                )  # fmt: skip
                ahead += part
                for r in range(height):
                    for t in range(width):
                        y = np.float32(get_f32(sums + 4 * (r * at_once + t)) * scale)
                        if bias != 0:
                            y = np.float32(y + get_f32(bias + 4 * (row + r)))
                        to = out + (token + t) * out_stride + 4 * (row + r)
                        if add != 0:
                            y = np.float32(get_f32(to) + y)
                        set_f32(to, y)
        return
    for start in range(first, last, 16):
        stop = min(start + 16, last)
        for token in range(tokens):
            xt = x + token * x_stride
            to = out + token * out_stride
            for row in range(start, stop):
                y = dot_row(isa, qt, w + row * w_stride, xt, k)
                y = np.float32(y * scale)
                if bias != 0:
                    y = np.float32(y + get_f32(bias + 4 * row))
                if add != 0:
                    y = np.float32(get_f32(to + 4 * row) + y)
                set_f32(to + 4 * row, y)
