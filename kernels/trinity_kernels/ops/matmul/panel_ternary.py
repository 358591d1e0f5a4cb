"""Panels of the ternary form: packing, and products with several tokens.

Sums are exact integers, so every result has the bits of a single token's dot product. AVX2 adds
products of codes up to 3 in 16 bits over 32 lines before it widens them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32, get_i32
from trinity_kernels.ops.matmul.activations import ternary_sums, ternary_tail
from trinity_kernels.ops.matmul.panel_layout import (
    TERNARY_SCRATCH,
    TOKENS,
    panels_at_once,
    ternary_panel_bytes,
    ternary_scales_at,
)
from trinity_kernels.ops.matmul.panel_pairs import emit_codes, transpose_codes
from trinity_kernels.ops.matmul.panel_wide import LEVEL, wide_codes
from trinity_kernels.ops.matmul.prefetch import prefetch_bytes
from trinity_kernels.ops.matmul.readers import nbytes, scale_at
from trinity_kernels.ops.matmul.ternary_blocks import load_scales
from trinity_kernels.ops.matmul.unpack import unpack_row
from trinity_kernels.tags import chosen


@inline
def pack_ternary_panel(isa: Any, qt: Any, w: int, stride: int, k: int, to: int, ahead: int) -> None:
    """Pack 16 rows, ``stride`` bytes apart, into a panel at ``to``; prefetch those at ``ahead``."""
    blocks = (k + 255) // 256
    scales = to + ternary_scales_at(k)
    scratch = scales + 64 * blocks
    if scale_at(qt) != 0:
        load_scales(qt, w, stride, blocks, scales)
    for b in range(blocks):
        prefetch_bytes(ahead + 16 * nbytes(qt) * b, 16 * nbytes(qt))
        size = min(256, k - 256 * b)
        for row in range(16):
            unpack_row(isa, qt, w + row * stride + b * nbytes(qt), scratch + 64 * row, size)
        for piece in range(4):
            transpose_codes(isa, scratch + 1024 * piece, to + 4096 * b + 1024 * piece)


def _emit_bytes(level: str, builder: Any, line: Any, words: Any, sums: Any) -> None:
    """Add the products of a line and each token's word."""
    for word, total in zip(words, sums, strict=True):
        found = byte_dots.emit_dot_i8i8(level, builder, builder.load(total), line, word)
        builder.store(found, total)


def _emit_halves(level: str, builder: Any, line: Any, words: Any, sums: Any) -> None:
    """The same in 16 bits; ``sums`` has two vectors for each token."""
    half = ir.VectorType(simd.I16, 16)
    for part in range(2):
        a = simd.shuffle(builder, line, line, list(range(32 * part, 32 * part + 32)))
        for word, total in zip(words, sums[part::2], strict=True):
            b = simd.shuffle(builder, word, word, list(range(32)))
            pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.ub.sw", half, [a, b])
            builder.store(builder.add(builder.load(total), pairs), total)


def _widen(builder: Any, halves: Any, sums: Any) -> None:
    """Add the sums of 16 bits to those of 32 bits, and reset them."""
    half, eight = ir.VectorType(simd.I16, 16), ir.VectorType(simd.I32, 8)
    ones = ir.Constant(half, [1] * 16)
    for t, total in enumerate(sums):
        both = [
            simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", eight, [builder.load(one), ones])
            for one in halves[2 * t : 2 * t + 2]
        ]
        whole = simd.shuffle(builder, both[0], both[1], list(range(16)))
        builder.store(builder.add(builder.load(total), whole), total)
        for one in halves[2 * t : 2 * t + 2]:
            builder.store(ir.Constant(half, None), one)


@instructions("void", "tag", *["intp"] * 6)
def panel_codes(
    builder: Any, isa: Any, panel: Any, blocks: Any, x: Any, last: Any, stride: Any, to: Any
) -> Any:
    """Multiply blocks of 256 codes by ``TOKENS`` tokens; add to as many lines of int32 at ``to``.

    ``last`` replaces tokens after it.
    """
    level = isa.value
    tokens = TOKENS["ternary"][level]
    step = 32 if level == "avx2" else 16
    if level == "neon-i8mm":
        emit_codes(builder, [panel, blocks, x, last, stride, to])
        return
    sums = [cgutils.alloca_once(builder, simd.I32X16.ir) for _ in range(tokens)]
    kind = ir.VectorType(simd.I16, 16)
    halves = [cgutils.alloca_once(builder, kind) for _ in range(2 * tokens)]
    rows = []
    for t in range(tokens):
        at = simd.pointer(builder, builder.add(to, simd.I64(64 * t)), simd.I32X16.ir)
        builder.store(builder.load(at, align=1), sums[t])
        over = builder.icmp_signed("<", last, simd.I64(t))
        number = builder.select(over, last, simd.I64(t))
        rows.append(builder.add(x, builder.mul(number, stride)))
    if level == "avx2":
        for one in halves:
            builder.store(ir.Constant(kind, None), one)
    with cgutils.for_range(builder, builder.mul(blocks, simd.I64(64 // step))) as loop:
        first = builder.mul(loop.index, simd.I64(64 * step))
        place = builder.mul(loop.index, simd.I64(4 * step))
        for g in range(step):
            at = builder.add(panel, builder.add(first, simd.I64(64 * g)))
            line = builder.load(simd.pointer(builder, at, simd.I8X64.ir), align=1)
            words = []
            for row in rows:
                at = builder.add(row, builder.add(place, simd.I64(4 * g)))
                one = builder.load(simd.pointer(builder, at, simd.I32), align=1)
                both = simd.broadcast(builder, one, simd.I32X16)
                words.append(builder.bitcast(both, simd.I8X64.ir))
            if level == "avx2":
                _emit_halves(level, builder, line, words, halves)
            else:
                _emit_bytes(level, builder, line, words, sums)
        if level == "avx2":
            _widen(builder, halves, sums)
    for t in range(tokens):
        at = simd.pointer(builder, builder.add(to, simd.I64(64 * t)), simd.I32X16.ir)
        builder.store(builder.load(sums[t]), at, align=1)


@inline
def _wide_codes(
    isa: Any, qt: Any, panel: int, second: int, blocks: int, x: int, last: int, x_stride: int,
    to: int,
) -> None:  # fmt: skip
    if last == 9:
        wide_codes(qt, 10, panel, second, blocks, x, last, x_stride, to)
    elif last == 7:
        wide_codes(qt, 8, panel, second, blocks, x, last, x_stride, to)
    else:
        wide_codes(qt, 4, panel, second, blocks, x, last, x_stride, to)


@inline
def _codes_of_row(
    isa: Any, qt: Any, panel: int, second: int, blocks: int, x: int, last: int, x_stride: int,
    to: int,
) -> None:  # fmt: skip
    panel_codes(isa, panel, blocks, x, last, x_stride, to)


@inline
def _codes_of_block(
    isa: Any, qt: Any, panel: int, second: int, blocks: int, x: int, last: int, x_stride: int,
    to: int,
) -> None:  # fmt: skip
    for line in range(to, to + 64 * (last + 1), 64):
        simd.store_f32x16(line, simd.splat_f32x16(np.float32(0)))
    panel_codes(isa, panel, blocks, x, last, x_stride, to)


@chosen
def _codes(
    isa: Any, qt: Any, panel: Any, second: Any, blocks: Any, x: Any, last: Any, x_stride: Any,
    to: Any,
) -> Any:  # fmt: skip
    """Multiply blocks of panels by tokens, which have a line of int32 at ``to`` for each panel.

    The products are added to the lines, or replace them if blocks have scales.
    """
    codes = _codes_of_block if scale_at(qt) else _codes_of_row
    if isa.value == LEVEL:
        codes = _wide_codes
    return lambda isa, qt, panel, second, blocks, x, last, x_stride, to: codes(
        isa, qt, panel, second, blocks, x, last, x_stride, to
    )


@inline
def _finish(isa: Any, qt: Any, k: int, x: int, count: int, x_stride: int, to: int) -> None:
    """Replace exact sums of whole rows by the results."""
    panels = panels_at_once(isa, qt)
    for t in range(count):
        tail = x + t * x_stride + ternary_tail(k)
        below = simd.splat_i32x16(int(get_i32(tail + 4)))
        s = simd.splat_f32x16(get_f32(tail))
        for line in range(to + 64 * panels * t, to + 64 * panels * (t + 1), 64):
            simd.store_f32x16(line, simd.to_f32x16(simd.load_i32x16(line) - below) / s)


@inline
def _multiply_blocks(
    isa: Any, qt: Any, panel: int, second: int, k: int, x: int, count: int, x_stride: int, to: int
) -> None:
    blocks = k // 256
    panels = panels_at_once(isa, qt)
    scales = panel + ternary_scales_at(k)
    # Four accumulators for each line, after the panels and the scratch of packing.
    sums = panel + panels * ternary_panel_bytes(k) + TERNARY_SCRATCH
    for line in range(0, 256 * count * panels, 64):
        simd.store_f32x16(sums + line, simd.splat_f32x16(np.float32(0)))
    for b in range(blocks):
        _codes(isa, qt, panel + 4096 * b, second, 1, x + 256 * b, count - 1, x_stride, to)
        for t in range(count):
            below = simd.splat_i32x16(int(get_i32(x + t * x_stride + ternary_sums(k) + 4 * b)))
            for p in range(panels):
                line = panels * t + p
                d = simd.load_f32x16(scales + second * p + 64 * b)
                exact = simd.load_i32x16(to + 64 * line) + below
                at = sums + 256 * line + b % 4 * 64
                y = simd.fma_f32x16(d, simd.to_f32x16(exact), simd.load_f32x16(at))
                simd.store_f32x16(at, y)
    for t in range(count):
        s = simd.splat_f32x16(get_f32(x + t * x_stride + ternary_tail(k)))
        for line in range(panels * t, panels * (t + 1)):
            at = sums + 256 * line
            even = simd.load_f32x16(at) + simd.load_f32x16(at + 128)
            odd = simd.load_f32x16(at + 64) + simd.load_f32x16(at + 192)
            simd.store_f32x16(to + 64 * line, (even + odd) / s)


@inline
def multiply_ternary_panel(
    isa: Any, qt: Any, panel: int, second: int, k: int, start: int, size: int, x: int, count: int,
    x_stride: int, to: int,
) -> None:  # fmt: skip
    """Multiply panels, the second ``second`` bytes after the first, by ``count`` tokens.

    As multiply_q8_panel, but the lines at ``to`` are exact sums, int32, until a row ends. Panels of
    a type whose blocks have scales have whole rows.
    """
    if scale_at(qt) == 0:
        _codes(isa, qt, panel, second, (size + 255) // 256, x + start, count - 1, x_stride, to)
        if start + size == k:
            _finish(isa, qt, k, x, count, x_stride, to)
    else:
        _multiply_blocks(isa, qt, panel, second, k, x, count, x_stride, to)
