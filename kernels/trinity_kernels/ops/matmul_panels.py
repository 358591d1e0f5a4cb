"""The matrix product without tiles, for prompts and batches: 16 rows by some tokens at a time.

The record is that of ops/matmul.py with SCRATCH, per thread room for a panel (quants/panel.py) and
the sums of some tokens. A panel is made once and multiplied by all tokens. A step of less than
``FEW`` tokens takes the rows one by one, as in ops/matmul.py.
Numerics: products of a block are summed exactly, then in float32 block by block, so an output
depends on its row and its token alone, and on whether there are ``FEW`` tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_f64, get_i64
from trinity_kernels.ops.matmul import (
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
    rows_by_dots,
)
from trinity_kernels.quants.panel import TOKENS, has_halves, panel_bytes
from trinity_kernels.quants.unpack import step_bytes_of
from trinity_kernels.record import ROWS

SCRATCH, SCRATCH_STRIDE = 15, 16
FEW = 4
LEVELS = frozenset(TOKENS)

if not jit_disabled():
    from trinity_kernels import simd
    from trinity_kernels.quants.panel import make_panel, panel_blocks, tokens_at_once

    panel_room = inline(panel_bytes)


def scratch_bytes(k: int) -> int:
    """Bytes that a thread needs."""
    return panel_bytes(k) + 64 * max(TOKENS.values())


@inline
def _write(record: int, sums: int, row: int, token: int) -> None:
    """One token's 16 sums to out."""
    scale = simd.splat_f32x16(np.float32(get_f64(record + 8 * SCALE)))
    bias = get_i64(record + 8 * BIAS)
    to = get_i64(record + 8 * OUT) + token * get_i64(record + 8 * OUT_STRIDE) + 4 * row
    y = simd.load_f32x16(sums) * scale
    if bias != 0:
        y = y + simd.load_f32x16(bias + 4 * row)
    if get_i64(record + 8 * ADD) != 0:
        y = simd.load_f32x16(to) + y
    simd.store_f32x16(to, y)


@kernel
def matmul_panels(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Panels of 16 rows, shared out evenly; see the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    n = get_i64(record + 8 * N)
    panels = n // 16
    first = panels * thread // threads
    last = panels * (thread + 1) // threads
    if tokens < 4:
        stop = 16 * last
        if thread == threads - 1:
            stop = n
        rows_by_dots(isa, qt, record, 16 * first, stop, tokens)
        return
    k = get_i64(record + 8 * K)
    x = get_i64(record + 8 * X)
    x_stride = get_i64(record + 8 * X_STRIDE)
    w = get_i64(record + 8 * W)
    w_stride = get_i64(record + 8 * W_STRIDE)
    panel = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    pairs = (k + 63) // 64
    scales = panel + 1024 * pairs
    sums = panel + panel_room(k)
    x_scales = 64 * pairs
    x_sums = x_scales + (k + 511) // 512 * 64
    if has_halves(qt):
        x_sums += (k + 511) // 512 * 64 + 64 * pairs
    nbytes = step_bytes_of(qt) // 8
    at_once = tokens_at_once(isa)
    for number in range(first, last):
        make_panel(isa, qt, w + 16 * number * w_stride, w_stride, nbytes, k, panel)
        for token in range(0, tokens, at_once):
            count = min(at_once, tokens - token)
            panel_blocks(
                isa, qt, panel, scales, k // 32, x + token * x_stride, count - 1, x_stride,
                x_scales, x_sums, sums,
            )  # fmt: skip
            for t in range(count):
                _write(record, sums + 64 * t, 16 * number, token + t)
    if thread == threads - 1:
        rows_by_dots(isa, qt, record, 16 * panels, n, tokens)
