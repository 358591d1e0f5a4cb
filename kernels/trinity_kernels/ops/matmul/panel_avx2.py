"""Panels on avx2: one panel times several tokens, line by line.

A line, 16 rows of 4 codes, is two registers. While they hold it, it meets each token's word, four
activations in all lanes: so loads are fewer than products, and registers hold all tokens' sums.
Products are added by pairs in 16 bits. Of codes up to 31 so are several lines, as many as 16 bits
hold; signs of signed codes are moved onto the activations; codes of 8 bits without a sign go in two
halves. Sums of a block, or of half a one, are exact; they are scaled in float32.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from trinity_kernels import simd
from trinity_kernels.ops.matmul.panel_layout import TOKENS
from trinity_kernels.quants import READERS, emit
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.simd import F32X8, I32X8, I64

LEVEL = "avx2"
_F32X8, _I32X8, _I16X16, _I8X32 = F32X8.ir, I32X8.ir, simd.I16X16.ir, simd.I8X32.ir
_HALVES = 2  # registers of a line
_Sums = list[list[Any]]  # [token][half of the rows]


def emit_blocks(builder: Any, args: list[Any], quant: str, parts: int, minima: bool) -> None:
    """What panel_q8.panel_blocks does; its arguments.

    ``parts``: scales of a block; ``minima``: not all are 0.
    """
    panel, scales, blocks, x, last, stride, x_middle, x_scales, x_sums, to = args
    reader = READERS[quant]
    tokens, step = TOKENS[reader.form][LEVEL], 8 // parts
    totals = [[cgutils.alloca_once(builder, _F32X8) for _ in range(_HALVES)] for _ in range(tokens)]
    rows = []
    for t, halves in enumerate(totals):
        for total in halves:
            builder.store(ir.Constant(_F32X8, None), total)
        over = builder.icmp_signed("<", last, I64(t))
        number = builder.select(over, last, I64(t))
        rows.append(builder.add(x, builder.mul(number, stride)))
    with cgutils.for_range(builder, blocks) as loop:
        b = loop.index
        lines = builder.add(panel, builder.mul(b, I64(512)))
        factors = builder.add(scales, builder.mul(b, I64(128 * parts)))
        codes = [builder.mul(b, I64(32))]
        for _ in range(2 if reader.form == "q19" else 0):
            codes.append(builder.add(codes[-1], x_middle))
        scale_at = builder.add(builder.mul(b, I64(4)), x_scales)
        sum_at = builder.add(builder.mul(b, I64(4 * parts)), x_sums)
        for i in range(parts):
            exact: _Sums = []
            for at in codes:
                words = [builder.add(row, at) for row in rows]
                found = _exact(builder, reader, lines, words, range(step * i, step * i + step))
                exact = _added(builder, exact, found, 8)
            for t, row in enumerate(rows):
                scale = _everywhere(builder, builder.add(row, scale_at), 0, F32X8)
                for half, total in enumerate(totals[t]):
                    y = builder.load(total)
                    if minima:
                        m = emit.load(builder, factors, 64 * (parts + i) + 32 * half, _F32X8)
                        at = builder.add(row, sum_at)
                        y = _fma(builder, m, _everywhere(builder, at, 4 * i, F32X8), y)
                    d = emit.load(builder, factors, 64 * i + 32 * half, _F32X8)
                    products = builder.sitofp(exact[t][half], _F32X8)
                    y = _fma(builder, builder.fmul(d, scale), products, y)
                    builder.store(y, total)
    for t, halves in enumerate(totals):
        for half, total in enumerate(halves):
            at = builder.add(to, I64(64 * t + 32 * half))
            builder.store(builder.load(total), simd.pointer(builder, at, _F32X8), align=1)


def _exact(builder: Any, reader: Any, lines: Any, words: list[Any], numbers: range) -> _Sums:
    """The sums of products of the numbered lines with each token's words, int32."""
    step = min(_lines_in_16_bits(reader) or len(numbers), len(numbers))
    sums: _Sums = []
    for first in numbers[::step]:
        found = _lines(builder, reader, lines, words, first, step)
        if _lines_in_16_bits(reader):
            found = [[_fours(builder, one) for one in some] for some in found]
        sums = _added(builder, sums, found)
    return sums


def _lines(
    builder: Any, reader: Any, lines: Any, words: list[Any], first: int, count: int
) -> _Sums:
    """The sums of products of ``count`` lines, pairs of them where 16 bits hold these."""
    narrow = _lines_in_16_bits(reader) > 0
    kind = _I16X16 if narrow else _I32X8
    totals = [[cgutils.alloca_once(builder, kind) for _ in range(_HALVES)] for _ in words]
    for one in (one for some in totals for one in some):
        builder.store(ir.Constant(kind, None), one)
    # Unrolled, it would take token after token, and no line would stay in a register.
    with cgutils.for_range(builder, simd.unknown(builder, count)) as loop:
        place = builder.add(lines, builder.shl(loop.index, I64(6)))
        line = [emit.load(builder, place, 64 * first + 32 * h, _I8X32) for h in range(_HALVES)]
        factors = [_factors(builder, reader, codes) for codes in line]
        offset = builder.shl(loop.index, I64(2))
        for some, at in zip(totals, words, strict=True):
            word = _everywhere(builder, builder.add(at, offset), 4 * first, I32X8)
            word = builder.bitcast(word, _I8X32)
            for total, numbers, codes in zip(some, factors, line, strict=True):
                value = builder.load(total)
                for found in _products(builder, reader, numbers, codes, word):
                    value = builder.add(value, found if narrow else _fours(builder, found))
                builder.store(value, total)
    return [[builder.load(one) for one in some] for some in totals]


def _is_signed(reader: Any) -> bool:
    return not isinstance(reader, Affine4) and bool(reader.signed)


def _lines_in_16_bits(reader: Any) -> int:
    """Lines of which 16 bits hold the sums of pairs of products; 0 where not even two."""
    if _is_signed(reader):
        return 0
    return next((n for n in (8, 4) if n * 2 * 128 * reader.top < 1 << 15), 0)


def _factors(builder: Any, reader: Any, codes: Any) -> Any:
    """The codes as numbers without a sign."""
    if not _is_signed(reader):
        return codes
    return simd.call_named(builder, "llvm.x86.avx2.psign.b", _I8X32, [codes, codes])


def _products(builder: Any, reader: Any, factors: Any, codes: Any, word: Any) -> list[Any]:
    """Products with a word, pairs of them added in 16 bits."""
    words = [word]
    if _is_signed(reader):
        words = [simd.call_named(builder, "llvm.x86.avx2.psign.b", _I8X32, [word, codes])]
    elif reader.top > 127:  # two of them do not fit
        words = [
            builder.and_(word, ir.Constant(_I8X32, [-int(i % 2 == one) for i in range(32)]))
            for one in (0, 1)
        ]
    name = "llvm.x86.avx2.pmadd.ub.sw"
    return [simd.call_named(builder, name, _I16X16, [factors, one]) for one in words]


def _fours(builder: Any, pairs: Any) -> Any:
    """Neighbouring pairs added, int32."""
    ones = ir.Constant(_I16X16, [1] * 16)
    return simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", _I32X8, [pairs, ones])


def _added(builder: Any, before: _Sums, found: _Sums, bits: int = 0) -> _Sums:
    """The sums before, if any, shifted by so many bits, and those that were found."""
    if not before:
        return found
    by = ir.Constant(_I32X8, [bits] * 8)
    return [
        [builder.add(builder.shl(a, by), b) for a, b in zip(some, those, strict=True)]
        for some, those in zip(before, found, strict=True)
    ]


def _everywhere(builder: Any, address: Any, offset: int, vec: Any) -> Any:
    return simd.broadcast(builder, emit.load(builder, address, offset, vec.ir.element), vec)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v8f32", _F32X8, [a, b, c])
