"""Products by panels, for prompts and batches: 16 rows of weights and several tokens at a time.

SCRATCH has one panel or two (panel_layout.py) and the sums of some tokens for each thread. A part
of 16 rows is packed, and multiplied by all tokens while it is in the first-level cache; avx512vnni
takes 32 rows. Steps of less than ``PACK_FROM`` tokens without MANY, and rows that fill no panel,
use dot products (rows.py). Few tokens of ternary types need no panels on avx512vnni
(dot_ternary.py).
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
from trinity_kernels.ops.matmul.dot_ternary import multiply_few, tokens_without_packing
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
    KEPT,
    next_tokens,
    panels_at_once,
    part_elements,
    q8_panel_bytes,
    ternary_panel_bytes,
    tokens_at_once,
)
from trinity_kernels.ops.matmul.panel_pack import pack_affine4, pack_block32, pack_superblock
from trinity_kernels.ops.matmul.panel_q8 import multiply_q8_panel
from trinity_kernels.ops.matmul.panel_ternary import multiply_ternary_panel, pack_ternary_panel
from trinity_kernels.ops.matmul.prefetch import prefetch_near
from trinity_kernels.ops.matmul.readers import elements, is_ternary
from trinity_kernels.ops.matmul.readers import nbytes as bytes_of
from trinity_kernels.ops.matmul.rows import rows_by_dots
from trinity_kernels.quants import READERS, BlockReader
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.quants.ternary import Ternary
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import chosen

_PACKS: dict[type[BlockReader], Any] = {
    Affine4: pack_affine4,
    Block32: pack_block32,
    SuperBlock: pack_superblock,
    Ternary: pack_ternary_panel,
}


@chosen
def _pack(isa: Any, qt: Any, w: Any, stride: Any, k: Any, to: Any, ahead: Any) -> Any:
    """Pack ``k`` elements of 16 rows, ``stride`` bytes apart, into a panel at ``to``.

    At ``ahead`` as many bytes are prefetched.
    """
    pack = _PACKS[type(READERS[qt.value])]
    return lambda isa, qt, w, stride, k, to, ahead: pack(isa, qt, w, stride, k, to, ahead)


@chosen
def _multiply(
    isa: Any, qt: Any, panel: Any, second: Any, k: Any, start: Any, size: Any, x: Any, count: Any,
    x_stride: Any, to: Any,
) -> Any:  # fmt: skip
    """Multiply panels of ``size`` elements of rows by ``count`` tokens, from element ``start`` on.

    The products are added to a line of 16 float32 at ``to`` for each token and panel.
    """
    multiply = multiply_ternary_panel if is_ternary(qt) else multiply_q8_panel
    return lambda isa, qt, panel, second, k, start, size, x, count, x_stride, to: multiply(
        isa, qt, panel, second, k, start, size, x, count, x_stride, to
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
    if tokens <= tokens_without_packing(isa, qt):
        multiply_few(isa, qt, record, 16 * first, 16 * last, tokens, thread)
        if thread == threads - 1:
            rows_by_dots(isa, qt, record, 16 * panels, n, tokens)
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
    line = 64 * together
    panel = sums + line * (KEPT + at_once)
    part = min(k, part_elements(qt))
    zeros = simd.splat_f32x16(np.float32(0))
    for number in range(first, last, together):
        row = 16 * number
        count_of_panels = min(together, last - number)
        for kept in range(0, tokens, KEPT):
            some = min(KEPT, tokens - kept)
            for start in range(0, k, positive(part)):
                size = min(part, k - start)
                nbytes = _panel_bytes(qt, size)
                skipped = start // elements(qt) * bytes_of(qt)
                for p in range(count_of_panels):
                    rows = w + (row + 16 * p) * w_stride
                    ahead = rows + 16 * (together * w_stride + skipped)
                    _pack(isa, qt, rows + skipped, w_stride, size, panel + p * nbytes, ahead)
                # A last single panel is multiplied twice.
                second = nbytes * (count_of_panels - 1)
                token, count = kept, 0
                while token < kept + some:
                    count = next_tokens(isa, qt, kept + some - token)
                    # The hardware prefetcher does not follow the stride between tokens.
                    for t in range(token + count, min(token + count + at_once, tokens)):
                        prefetch_near(x + t * x_stride + start, size)
                    to = sums
                    if part < k:
                        to += line * (token - kept)
                    if start == 0:
                        for address in range(to, to + line * at_once, 64):
                            simd.store_f32x16(address, zeros)
                    _multiply(
                        isa, qt, panel, second, k, start, size, x + token * x_stride, count,
                        x_stride, to,
                    )  # fmt: skip
                    if start + size == k:
                        for t in range(count):
                            at = out + (token + t) * out_stride + 4 * row
                            for p in range(count_of_panels):
                                y = simd.load_f32x16(to + line * t + 64 * p)
                                epilogue.store_16(y, scale, bias, add, row + 16 * p, at + 64 * p)
                    token += count
    if thread == threads - 1:
        rows_by_dots(isa, qt, record, 16 * panels, n, tokens)
