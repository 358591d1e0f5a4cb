"""Products by panels, for prompts and batches: 16 rows of weights and several tokens at a time.

SCRATCH has one panel or two (panel_layout.py) and the sums of some tokens for each thread. A panel
is packed once and multiplied by all tokens, on avx512vnni together with a second one. Steps of less
than ``PACK_FROM`` tokens without MANY, and rows that fill no panel, use dot products (rows.py).
Numerics: ternary types have the bits of a single token. For other types the products of a block are
summed exactly, and blocks in float32, so an output depends only on its row, its token, and whether
there are ``PACK_FROM`` tokens or MANY.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import kernel_with
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f64, get_i64
from trinity_kernels.ops.matmul import epilogue
from trinity_kernels.ops.matmul.operands import (
    ADD,
    BIAS,
    MANY,
    OUT,
    OUT_STRIDE,
    PACK_FROM,
    SCALE,
    SCRATCH,
    SCRATCH_STRIDE,
    W_STRIDE,
    X_STRIDE,
    K,
    N,
    W,
    X,
)
from trinity_kernels.ops.matmul.panel_layout import (
    panels_at_once,
    q8_panel_bytes,
    ternary_panel_bytes,
    tokens_at_once,
)
from trinity_kernels.ops.matmul.panel_pack import pack_affine4, pack_block32, pack_superblock
from trinity_kernels.ops.matmul.panel_q8 import multiply_q8_panel
from trinity_kernels.ops.matmul.panel_ternary import multiply_ternary_panel, pack_ternary_panel
from trinity_kernels.ops.matmul.prefetch import prefetch_near
from trinity_kernels.ops.matmul.readers import is_ternary
from trinity_kernels.ops.matmul.rows import rows_by_dots
from trinity_kernels.quants import READERS, BlockReader
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.quants.ternary import Ternary
from trinity_kernels.record import ROWS
from trinity_kernels.tags import chosen

_PACKS: dict[type[BlockReader], Any] = {
    Affine4: pack_affine4,
    Block32: pack_block32,
    SuperBlock: pack_superblock,
    Ternary: pack_ternary_panel,
}


@chosen
def _pack(isa: Any, qt: Any, w: Any, stride: Any, k: Any, to: Any) -> Any:
    """Pack 16 rows, ``stride`` bytes apart, into a panel at ``to``."""
    pack = _PACKS[type(READERS[qt.value])]
    return lambda isa, qt, w, stride, k, to: pack(isa, qt, w, stride, k, to)


@chosen
def _multiply(
    isa: Any, qt: Any, panel: Any, second: Any, k: Any, x: Any, count: Any, x_stride: Any, to: Any
) -> Any:
    """Multiply panels by ``count`` tokens: a line of 16 float32 at ``to`` for each."""
    multiply = multiply_ternary_panel if is_ternary(qt) else multiply_q8_panel
    return lambda isa, qt, panel, second, k, x, count, x_stride, to: multiply(
        isa, qt, panel, second, k, x, count, x_stride, to
    )


@chosen
def _panel_bytes(qt: Any, k: Any) -> Any:
    """Bytes of a panel."""
    size = ternary_panel_bytes if is_ternary(qt) else q8_panel_bytes
    return lambda qt, k: size(k)


@kernel_with("neon-i8mm")
def matmul_panels(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Multiply; threads get equal numbers of panels."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    n = get_i64(record + 8 * N)
    panels = n // 16
    first = panels * thread // threads
    last = panels * (thread + 1) // threads
    if tokens < PACK_FROM and get_i64(record + 8 * MANY) == 0:
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
    out = get_i64(record + 8 * OUT)
    out_stride = get_i64(record + 8 * OUT_STRIDE)
    scale = simd.splat_f32x16(np.float32(get_f64(record + 8 * SCALE)))
    bias = get_i64(record + 8 * BIAS)
    add = get_i64(record + 8 * ADD)
    sums = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    at_once = tokens_at_once(isa, qt)
    together = panels_at_once(isa, qt)
    panel = sums + 64 * at_once * together
    size = _panel_bytes(qt, k)
    for number in range(first, last, together):
        row = 16 * number
        count_of_panels = min(together, last - number)
        for p in range(count_of_panels):
            _pack(isa, qt, w + (row + 16 * p) * w_stride, w_stride, k, panel + p * size)
        # A last single panel is multiplied twice.
        second = size * (count_of_panels - 1)
        for token in range(0, tokens, at_once):
            count = min(at_once, tokens - token)
            # The hardware prefetcher does not follow the stride between tokens.
            for t in range(token + at_once, min(token + 2 * at_once, tokens)):
                prefetch_near(x + t * x_stride, k)
            _multiply(isa, qt, panel, second, k, x + token * x_stride, count, x_stride, sums)
            for t in range(count):
                to = out + (token + t) * out_stride + 4 * row
                for p in range(count_of_panels):
                    y = simd.load_f32x16(sums + 64 * (together * t + p))
                    epilogue.store_16(y, scale, bias, add, row + 16 * p, to + 64 * p)
    if thread == threads - 1:
        rows_by_dots(isa, qt, record, 16 * panels, n, tokens)
