"""Panels on avx512vnni: two panels, 32 rows of weights, times several tokens in one loop.

A word of a token (four activations, copied to all lanes) is multiplied by a line of each panel, so
there are fewer loads than products. The offset of unsigned codes is compensated by the start value
of the exact sums: the negated sum of a token's codes, shifted to the left.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import byte_dots
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.panel_layout import PANELS, TOKENS, has_halves
from trinity_kernels.ops.matmul.panel_pack import codes_above
from trinity_kernels.quants import READERS

LEVEL = "avx512vnni"


def _load(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    place = builder.add(address, simd.I64(offset)) if offset else address
    return builder.load(simd.pointer(builder, place, kind), align=1)


def _everywhere(builder: Any, address: Any, offset: int, vec: Any) -> Any:
    return simd.broadcast(builder, _load(builder, address, offset, vec.ir.element), vec)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, [a, b, c])


def _token_rows(builder: Any, x: Any, last: Any, stride: Any, tokens: int) -> list[Any]:
    """The addresses of tokens; ``last`` replaces tokens after it."""
    rows = []
    for t in range(tokens):
        over = builder.icmp_signed("<", last, simd.I64(t))
        number = builder.select(over, last, simd.I64(t))
        rows.append(builder.add(x, builder.mul(number, stride)))
    return rows


def _accumulators(builder: Any, kind: Any, tokens: int) -> list[list[Any]]:
    """Zero sums, [panel][token]."""
    found = [[cgutils.alloca_once(builder, kind) for _ in range(tokens)] for _ in range(PANELS)]
    for one in (one for some in found for one in some):
        builder.store(ir.Constant(kind, None), one)
    return found


def _store(builder: Any, sums: list[list[Any]], to: Any) -> None:
    """Store a line of each panel for each token."""
    for p, some in enumerate(sums):
        for t, total in enumerate(some):
            at = builder.add(to, simd.I64(64 * (PANELS * t + p)))
            value = builder.load(total)
            builder.store(value, simd.pointer(builder, at, value.type), align=1)


def _add_products(
    builder: Any, sums: list[list[Any]], panels: list[Any], words: list[Any], first: int, end: int
) -> list[list[Any]]:
    """``sums`` + the products of lines ``first`` to ``end`` of the panels and tokens' words."""
    for g in range(first, end):
        lines = [_load(builder, panel, 64 * g, simd.I8X64.ir) for panel in panels]
        for t, at in enumerate(words):
            word = builder.bitcast(_everywhere(builder, at, 4 * g, simd.I32X16), simd.I8X64.ir)
            for some, line in zip(sums, lines, strict=True):
                some[t] = byte_dots.emit_dot_bytes(LEVEL, builder, some[t], line, word)
    return sums


@instructions("void", "tag", "tag", *["intp"] * 12)
def wide_blocks(
    builder: Any,
    isa: Any,
    qt: Any,
    panel: Any,
    second: Any,
    scales: Any,
    blocks: Any,
    x: Any,
    last: Any,
    stride: Any,
    x_middle: Any,
    x_scales: Any,
    x_sums: Any,
    x_negated: Any,
    to: Any,
) -> Any:
    """Multiply two panels by ``TOKENS`` tokens: two lines of 16 float32 at ``to`` for each token.

    ``last`` replaces tokens after it. ``second``, ``scales``: bytes from the first panel to the
    second, and from a panel to its scales. ``x_middle``: bytes from a token's codes to its middle
    codes, and from these to its ones (q19). ``x_scales``, ``x_sums``, ``x_negated``: bytes from a
    token's codes to its scales, to its sums of blocks or halves, and to its negated sums
    (activations.py).
    """
    quant = qt.value
    parts = 2 if has_halves(qt) else 1
    fine = READERS[quant].form == "q19"
    above = 0 if fine else codes_above(isa, qt)
    tokens, step = TOKENS[READERS[quant].form][LEVEL], 8 // parts
    rows = _token_rows(builder, x, last, stride, tokens)
    totals = _accumulators(builder, simd.F32X16.ir, tokens)
    with cgutils.for_range(builder, blocks) as loop:
        b = loop.index
        first = builder.add(panel, builder.mul(b, simd.I64(512)))
        panels = [first, builder.add(first, second)]
        first = builder.add(panel, builder.add(scales, builder.mul(b, simd.I64(128 * parts))))
        factors = [first, builder.add(first, second)]
        codes = [builder.mul(b, simd.I64(32))]
        for _ in range(2 if fine else 0):
            codes.append(builder.add(codes[-1], x_middle))
        scale_at = builder.add(builder.mul(b, simd.I64(4)), x_scales)
        sum_at = builder.add(builder.mul(b, simd.I64(4 * parts)), x_sums)
        negated_at = builder.add(builder.mul(b, simd.I64(8)), x_negated)
        for i in range(parts):
            start = [ir.Constant(simd.I32X16.ir, None)] * tokens
            if above:
                start = [
                    _start(builder, builder.add(row, negated_at), i, parts, above) for row in rows
                ]
            sums = [list(start) for _ in range(PANELS)]
            for number, at in enumerate(codes):
                if number:
                    eight = ir.Constant(simd.I32X16.ir, [8] * 16)
                    sums = [[builder.shl(one, eight) for one in some] for some in sums]
                words = [builder.add(row, at) for row in rows]
                sums = _add_products(builder, sums, panels, words, step * i, step * i + step)
            for p, place in enumerate(factors):
                d = _load(builder, place, 64 * i, simd.F32X16.ir)
                for t, row in enumerate(rows):
                    total = builder.load(totals[p][t])
                    if not above:
                        m = _load(builder, place, 64 * (parts + i), simd.F32X16.ir)
                        at = builder.add(row, sum_at)
                        total = _fma(
                            builder, m, _everywhere(builder, at, 4 * i, simd.F32X16), total
                        )
                    scale = _everywhere(builder, builder.add(row, scale_at), 0, simd.F32X16)
                    exact = builder.sitofp(sums[p][t], simd.F32X16.ir)
                    total = _fma(builder, builder.fmul(d, scale), exact, total)
                    builder.store(total, totals[p][t])
    _store(builder, totals, to)


def _start(builder: Any, at: Any, part: int, parts: int, above: int) -> Any:
    """The start value of the sums of a block, or half a block, for codes with offset ``above``."""
    number = _load(builder, at, 4 * part, simd.I32)
    if parts == 1:
        number = builder.add(number, _load(builder, at, 4, simd.I32))
    number = builder.mul(number, simd.I32(above))
    return simd.broadcast(builder, number, simd.I32X16)


@instructions("void", "tag", *["intp"] * 7)
def wide_codes(
    builder: Any,
    isa: Any,
    panel: Any,
    second: Any,
    blocks: Any,
    x: Any,
    last: Any,
    stride: Any,
    to: Any,
) -> Any:
    """Multiply blocks of 256 ternary codes of two panels by ``TOKENS`` tokens.

    Each token gets two lines of 16 int32 at ``to``. ``last`` replaces tokens after it.
    ``second``: bytes from the first panel to the second.
    """
    tokens, step = TOKENS["ternary"][LEVEL], 16
    rows = _token_rows(builder, x, last, stride, tokens)
    totals = _accumulators(builder, simd.I32X16.ir, tokens)
    with cgutils.for_range(builder, builder.mul(blocks, simd.I64(64 // step))) as loop:
        first = builder.add(panel, builder.mul(loop.index, simd.I64(64 * step)))
        panels = [first, builder.add(first, second)]
        at = builder.mul(loop.index, simd.I64(4 * step))
        sums = [[builder.load(one) for one in some] for some in totals]
        words = [builder.add(row, at) for row in rows]
        sums = _add_products(builder, sums, panels, words, 0, step)
        for some, those in zip(sums, totals, strict=True):
            for total, one in zip(some, those, strict=True):
                builder.store(total, one)
    _store(builder, totals, to)
