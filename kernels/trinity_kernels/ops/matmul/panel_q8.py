"""Panels times tokens of the q8 or q19 form: exact sums of 32 or 16 products, then float32.

A line of a panel is multiplied by 4 activations that all rows share: two panels together on
avx512vnni (panel_wide.py), line by line on avx2 (panel_avx2.py), pairs of rows on neon-i8mm
(panel_pairs.py). The three codes of activations of 19 bits are multiplied separately.

Numerics: the error of an output is that of rounding its terms to float32: scale * scale * code as
stored in the panel, and the minima.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul import panel_avx2
from trinity_kernels.ops.matmul.activations import (
    q8_halves,
    q8_negated,
    q8_scales,
    q8_sums,
    q19_halves,
    q19_middle,
    q19_scales,
    q19_sums,
)
from trinity_kernels.ops.matmul.panel_layout import TOKENS, has_halves, q8_scales_at
from trinity_kernels.ops.matmul.panel_pairs import emit_blocks
from trinity_kernels.ops.matmul.panel_wide import LEVEL, wide_blocks
from trinity_kernels.ops.matmul.readers import is_fine
from trinity_kernels.quants import READERS
from trinity_kernels.tags import chosen


def _is_whole(quant: str) -> bool:
    """Whether codes are unsigned and have all 8 bits."""
    return READERS[quant].top > 127


def _emit_block(level: str, quant: str, builder: Any, total: Any, lines: Any, words: Any) -> Any:
    """<16 x i32>: ``total`` + the sums of products of 16 rows and the words of one token."""
    emit = byte_dots.emit_dot_bytes if _is_whole(quant) else byte_dots.emit_dot_i8i8
    for line, word in zip(lines, words, strict=True):
        total = emit(level, builder, total, line, word)
    return total


@instructions("void", "tag", "tag", *["intp"] * 10)
def panel_blocks(
    builder: Any,
    isa: Any,
    qt: Any,
    panel: Any,
    scales: Any,
    blocks: Any,
    x: Any,
    last: Any,
    stride: Any,
    x_middle: Any,
    x_scales: Any,
    x_sums: Any,
    to: Any,
) -> Any:
    """Multiply a panel by ``TOKENS`` tokens at ``x``; add to as many lines of 16 float32 at ``to``.

    ``last`` replaces tokens after it. ``x_middle``: bytes from a token's codes to its middle codes,
    and from these to its ones (q19). ``x_scales``, ``x_sums``: bytes from a token's codes to its
    scales, and to its sums of blocks or halves (activations.py).
    """
    level, quant = isa.value, qt.value
    fine = READERS[quant].form == "q19"
    parts = 2 if has_halves(qt) else 1
    tokens, step = TOKENS[READERS[quant].form][level], 8 // parts
    if level == "neon-i8mm":
        emit_blocks(
            builder,
            [panel, scales, blocks, x, last, stride, x_middle, x_scales, x_sums, to],
            parts,
            fine,
            READERS[quant].has_minima,
            _is_whole(quant),
        )
        return
    if level == panel_avx2.LEVEL:
        panel_avx2.emit_blocks(
            builder,
            [panel, scales, blocks, x, last, stride, x_middle, x_scales, x_sums, to],
            quant,
            parts,
            READERS[quant].has_minima,
        )
        return
    sums = [cgutils.alloca_once(builder, simd.F32X16.ir) for _ in range(tokens)]
    rows = []
    for t in range(tokens):
        before = _load(builder, builder.add(to, simd.I64(64 * t)), simd.F32X16)
        builder.store(before, sums[t])
        over = builder.icmp_signed("<", last, simd.I64(t))
        number = builder.select(over, last, simd.I64(t))
        rows.append(builder.add(x, builder.mul(number, stride)))
    with cgutils.for_range(builder, blocks) as loop:
        b = loop.index
        at = builder.add(panel, builder.mul(b, simd.I64(512)))
        lines = [_load(builder, builder.add(at, simd.I64(64 * g)), simd.I8X64) for g in range(8)]
        at = builder.add(scales, builder.mul(b, simd.I64(128 * parts)))
        factors = [
            _load(builder, builder.add(at, simd.I64(64 * i)), simd.F32X16) for i in range(2 * parts)
        ]
        for t, row in enumerate(rows):
            at = builder.add(row, builder.mul(b, simd.I64(32)))
            codes = [_words(builder, at)]
            for _ in range(2 if fine else 0):
                at = builder.add(at, x_middle)
                codes.append(_words(builder, at))
            at = builder.add(row, builder.mul(b, simd.I64(4)))
            scale = _broadcast(builder, builder.add(at, x_scales), simd.F32, simd.F32X16)
            at = builder.add(row, builder.mul(b, simd.I64(4 * parts)))
            at = builder.add(at, x_sums)
            total = builder.load(sums[t])
            for i in range(parts):
                some = slice(step * i, step * i + step)
                whole = ir.Constant(simd.I32X16.ir, None)
                for words in codes:
                    # One chain for each token, so that the sums of all tokens fit the registers.
                    whole = builder.shl(whole, ir.Constant(simd.I32X16.ir, [8] * 16))
                    whole = _emit_block(level, quant, builder, whole, lines[some], words[some])
                whole = builder.sitofp(whole, simd.F32X16.ir)
                least = builder.add(at, simd.I64(4 * i))
                least = _broadcast(builder, least, simd.F32, simd.F32X16)
                total = _fma(builder, factors[parts + i], least, total)
                total = _fma(builder, builder.fmul(factors[i], scale), whole, total)
            builder.store(total, sums[t])
    for t in range(tokens):
        at = simd.pointer(builder, builder.add(to, simd.I64(64 * t)), simd.F32X16.ir)
        builder.store(builder.load(sums[t]), at, align=1)


def _words(builder: Any, at: Any) -> list[Any]:
    """The codes of a block of one token, each four of them copied to all lanes of 32 bits."""
    places = [builder.add(at, simd.I64(4 * g)) for g in range(8)]
    return [
        builder.bitcast(_broadcast(builder, p, simd.I32, simd.I32X16), simd.I8X64.ir)
        for p in places
    ]


def _load(builder: Any, address: Any, vec: Any) -> Any:
    return builder.load(simd.pointer(builder, address, vec.ir), align=1)


def _broadcast(builder: Any, address: Any, element: Any, vec: Any) -> Any:
    one = builder.load(simd.pointer(builder, address, element), align=1)
    return simd.broadcast(builder, one, vec)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, [a, b, c])


@inline
def _tables(qt: Any, k: int) -> Any:
    """Bytes from a token's codes to its scales, and to its sums of blocks or halves."""
    if is_fine(qt):
        if has_halves(qt):
            return q19_scales(k), q19_halves(k)
        return q19_scales(k), q19_sums(k)
    if has_halves(qt):
        return q8_scales(k), q8_halves(k)
    return q8_scales(k), q8_sums(k)


@inline
def _multiply_one(
    isa: Any, qt: Any, panel: int, second: int, size: int, x: int, last: int, x_stride: int,
    x_middle: int, x_scales: int, x_sums: int, x_negated: int, to: int,
) -> None:  # fmt: skip
    panel_blocks(
        isa, qt, panel, panel + q8_scales_at(size), size // 32, x, last, x_stride, x_middle,
        x_scales, x_sums, to,
    )  # fmt: skip


@inline
def _multiply_two(
    isa: Any, qt: Any, panel: int, second: int, size: int, x: int, last: int, x_stride: int,
    x_middle: int, x_scales: int, x_sums: int, x_negated: int, to: int,
) -> None:  # fmt: skip
    scales, blocks = q8_scales_at(size), size // 32
    if last == 5:
        wide_blocks(
            isa, qt, 6, panel, second, scales, blocks, x, last, x_stride, x_middle, x_scales,
            x_sums, x_negated, to,
        )  # fmt: skip
    else:
        wide_blocks(
            isa, qt, 4, panel, second, scales, blocks, x, last, x_stride, x_middle, x_scales,
            x_sums, x_negated, to,
        )  # fmt: skip


@chosen
def multiply_q8_panel(
    isa: Any, qt: Any, panel: Any, second: Any, k: Any, start: Any, size: Any, x: Any, count: Any,
    x_stride: Any, to: Any,
) -> Any:  # fmt: skip
    """Multiply panels, the second ``second`` bytes after the first, by ``count`` tokens.

    They have ``size`` elements of rows of ``k``, from ``start`` on. The products are added to a
    line of 16 float32 at ``to`` for each token and panel.
    """
    multiply = _multiply_two if isa.value == LEVEL else _multiply_one
    sums_of = 16 if has_halves(qt) else 32

    def multiply_part(
        isa: Any, qt: Any, panel: int, second: int, k: int, start: int, size: int, x: int,
        count: int, x_stride: int, to: int,
    ) -> None:  # fmt: skip
        x_scales, x_sums = _tables(qt, k)
        # Codes are ``start`` bytes after the row's; the other numbers of their blocks are not.
        x_scales += start // 32 * 4 - start
        x_sums += start // sums_of * 4 - start
        x_negated = q8_negated(k) + start // 16 * 4 - start
        multiply(
            isa, qt, panel, second, size, x + start, count - 1, x_stride, q19_middle(k), x_scales,
            x_sums, x_negated, to,
        )  # fmt: skip

    return multiply_part
