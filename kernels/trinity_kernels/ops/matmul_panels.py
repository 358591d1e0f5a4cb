"""The matrix product without tiles, for prompts and batches: 16 rows by some tokens at a time.

The record is that of ops/matmul.py with SCRATCH, per thread room for a panel (quants/panel.py,
quants/ternary_panel.py) and the sums of some tokens. A panel is made once and multiplied by all
tokens. A step of less than ``FEW`` tokens takes the rows one by one, as in ops/matmul.py.
Numerics: ternary types give the bits of a single token. Of others the products of a block are
summed exactly, then in float32 block by block, so an output depends on its row and its token alone,
and on whether there are ``FEW`` tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline, kernel
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
from trinity_kernels.quants import panel, ternary_panel
from trinity_kernels.quants.dot import FORMS
from trinity_kernels.record import ROWS

SCRATCH, SCRATCH_STRIDE = 15, 16
FEW = 4
LEVELS = frozenset(panel.TOKENS)

if not jit_disabled():
    from trinity_kernels import simd
    from trinity_kernels.quants.panel import make_block_panel, multiply_block_panel
    from trinity_kernels.quants.ternary_panel import make_ternary_panel, multiply_ternary_panel


def panel_types() -> frozenset[str]:
    """The types that the kernel takes."""
    return panel.block_panel_types() | ternary_panel.ternary_panel_types()


def scratch_bytes(form: str, k: int) -> int:
    """Bytes that a thread needs."""
    room = panel.block_panel_bytes if form == "q8" else ternary_panel.ternary_panel_bytes
    return 64 * max(*panel.TOKENS.values(), *ternary_panel.TOKENS.values()) + room(k)


def _tokens_at_once(isa: Any, qt: Any) -> Any: ...


@choose(_tokens_at_once)
def _tokens_of(isa: Any, qt: Any) -> Any:
    tokens = panel.TOKENS if FORMS[qt.value] == "q8" else ternary_panel.TOKENS
    count = tokens.get(isa.value, 1)
    return lambda isa, qt: count


def _make(isa: Any, qt: Any, w: int, stride: int, k: int, to: int) -> None: ...


@choose(_make)
def _make_of(isa: Any, qt: Any, w: Any, stride: Any, k: Any, to: Any) -> Any:
    make = make_block_panel if FORMS[qt.value] == "q8" else make_ternary_panel
    return lambda isa, qt, w, stride, k, to: make(isa, qt, w, stride, k, to)


def _multiply(
    isa: Any, qt: Any, rows: int, k: int, x: int, count: int, x_stride: int, to: int
) -> None: ...


@choose(_multiply)
def _multiply_of(
    isa: Any, qt: Any, rows: Any, k: Any, x: Any, count: Any, x_stride: Any, to: Any
) -> Any:
    multiply = multiply_block_panel if FORMS[qt.value] == "q8" else multiply_ternary_panel
    return lambda isa, qt, rows, k, x, count, x_stride, to: multiply(
        isa, qt, rows, k, x, count, x_stride, to
    )


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
    sums = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    at_once = _tokens_at_once(isa, qt)
    rows = sums + 64 * at_once
    for number in range(first, last):
        _make(isa, qt, w + 16 * number * w_stride, w_stride, k, rows)
        for token in range(0, tokens, at_once):
            count = min(at_once, tokens - token)
            _multiply(isa, qt, rows, k, x + token * x_stride, count, x_stride, sums)
            for t in range(count):
                _write(record, sums + 64 * t, 16 * number, token + t)
    if thread == threads - 1:
        rows_by_dots(isa, qt, record, 16 * panels, n, tokens)
