"""Panels on avx2: one panel times several tokens, line by line.

A line, 16 rows of 4 codes, fills two registers. It is multiplied by each token's word (four
activations, copied to all lanes), so there are fewer loads than products, and registers hold the
sums of all tokens. Pairs of products are added in 16 bits. For codes up to 31, several lines are
added in 16 bits; the signs of signed codes are moved to the activations; unsigned codes of 8 bits
are multiplied in two halves. Sums of a block, or of half a block, are exact, and scaled in float32.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.ops.matmul.panel_layout import TOKENS
from trinity_kernels.quants import READERS, BlockReader, emit

LEVEL = "avx2"
_HALVES = 2  # registers of a line
_Sums = list[list[Any]]  # [token][half of the rows]


class _Place:
    """A number that grows by ``step`` in each iteration of a loop, in a register of its own.

    LLVM would compute it from the loop index at every use.
    """

    def __init__(self, builder: Any, start: Any, step: int) -> None:
        self._builder, self._step = builder, step
        self._kept = cgutils.alloca_once_value(builder, start)

    def get(self) -> Any:
        """The present value."""
        return self._builder.load(self._kept)

    def go_on(self) -> None:
        """Advance to the next iteration."""
        after = self._builder.add(self.get(), simd.I64(self._step))
        kind = ir.FunctionType(simd.I64, [simd.I64])
        self._builder.store(self._builder.asm(kind, "", "=r,0", [after], False), self._kept)


def emit_blocks(builder: Any, args: list[Any], quant: str, parts: int, minima: bool) -> None:
    """Emit panel_q8.panel_blocks, with its arguments.

    ``parts``: scales of a block; ``minima``: whether there are minima.
    """
    panel, scales, blocks, x, last, stride, x_middle, x_scales, x_sums, to = args
    reader = READERS[quant]
    step = 8 // parts
    tokens = []
    for t in range(TOKENS[reader.form][LEVEL]):
        over = builder.icmp_signed("<", last, simd.I64(t))
        number = builder.select(over, last, simd.I64(t))
        tokens.append(_Place(builder, builder.add(x, builder.mul(number, stride)), 32))
    lines_at, factors_at = _Place(builder, panel, 512), _Place(builder, scales, 128 * parts)
    # Distances from a block's codes to its scale, and to its sums.
    scale_at, sum_at = _Place(builder, x_scales, 4 - 32), _Place(builder, x_sums, 4 * parts - 32)
    planes = [simd.I64(0)]
    for _ in range(2 if reader.form == "q19" else 0):
        planes.append(builder.add(planes[-1], x_middle))
    with cgutils.for_range(builder, blocks):
        lines, factors = lines_at.get(), factors_at.get()
        rows = [token.get() for token in tokens]
        for i in range(parts):
            exact: _Sums = []
            for plane in planes:
                words = [builder.add(row, plane) for row in rows]
                found = _exact(builder, reader, lines, words, range(step * i, step * i + step))
                exact = _added(builder, exact, found, 8)
            for t, row in enumerate(rows):
                scale = _everywhere(builder, builder.add(row, scale_at.get()), 0, simd.F32X8)
                total = _everywhere(builder, builder.add(row, sum_at.get()), 4 * i, simd.F32X8)
                for half in range(_HALVES):
                    y = emit.load(builder, to, 64 * t + 32 * half, simd.F32X8.ir)
                    if minima:
                        m = emit.load(builder, factors, 64 * (parts + i) + 32 * half, simd.F32X8.ir)
                        y = _fma(builder, m, total, y)
                    d = emit.load(builder, factors, 64 * i + 32 * half, simd.F32X8.ir)
                    products = builder.sitofp(exact[t][half], simd.F32X8.ir)
                    y = _fma(builder, builder.fmul(d, scale), products, y)
                    _store(builder, y, to, 64 * t + 32 * half)
        for place in (*tokens, lines_at, factors_at, scale_at, sum_at):
            place.go_on()


def _exact(
    builder: Any, reader: BlockReader, lines: Any, words: list[Any], numbers: range
) -> _Sums:
    """The sums of products of the lines ``numbers`` and each token's words, int32."""
    step = min(_lines_in_16_bits(reader) or len(numbers), len(numbers))
    sums: _Sums = []
    for first in numbers[::step]:
        found = _lines(builder, reader, lines, words, first, step)
        if _lines_in_16_bits(reader):
            found = [[_fours(builder, one) for one in some] for some in found]
        sums = _added(builder, sums, found)
    return sums


def _lines(
    builder: Any, reader: BlockReader, lines: Any, words: list[Any], first: int, count: int
) -> _Sums:
    """The sums of products of ``count`` lines, in 16 bits if these are large enough."""
    narrow = _lines_in_16_bits(reader) > 0
    totals: _Sums = [[None] * _HALVES for _ in words]
    for g in range(first, first + count):
        line = [emit.load(builder, lines, 64 * g + 32 * h, simd.I8X32.ir) for h in range(_HALVES)]
        factors = [_factors(builder, reader, codes) for codes in line]
        for some, at in zip(totals, words, strict=True):
            word = _everywhere(builder, at, 4 * g, simd.I32X8)
            word = builder.bitcast(word, simd.I8X32.ir)
            for h, (numbers, codes) in enumerate(zip(factors, line, strict=True)):
                for found in _products(builder, reader, numbers, codes, word):
                    one = found if narrow else _fours(builder, found)
                    some[h] = one if some[h] is None else builder.add(some[h], one)
        # Without this LLVM would process token after token, and no line would stay in a register.
        flat = simd.pinned(builder, [one for some in totals for one in some])
        totals = [flat[i : i + _HALVES] for i in range(0, len(flat), _HALVES)]
    return totals


def _lines_in_16_bits(reader: BlockReader) -> int:
    """The number of lines whose sums of pairs of products fit 16 bits; 0 if not even two."""
    if reader.signed:
        return 0
    return next((n for n in (8, 4) if n * 2 * 128 * reader.top < 1 << 15), 0)


def _factors(builder: Any, reader: BlockReader, codes: Any) -> Any:
    """The magnitudes of the codes."""
    if not reader.signed:
        return codes
    return simd.call_named(builder, "llvm.x86.avx2.psign.b", simd.I8X32.ir, [codes, codes])


def _products(builder: Any, reader: BlockReader, factors: Any, codes: Any, word: Any) -> list[Any]:
    """Products with a word, added by pairs in 16 bits."""
    words = [word]
    if reader.signed:
        words = [simd.call_named(builder, "llvm.x86.avx2.psign.b", simd.I8X32.ir, [word, codes])]
    elif reader.top > 127:  # two of them do not fit
        words = [
            builder.and_(word, ir.Constant(simd.I8X32.ir, [-int(i % 2 == one) for i in range(32)]))
            for one in (0, 1)
        ]
    name = "llvm.x86.avx2.pmadd.ub.sw"
    return [simd.call_named(builder, name, simd.I16X16.ir, [factors, one]) for one in words]


def _fours(builder: Any, pairs: Any) -> Any:
    """Sums of neighbouring pairs, int32."""
    ones = ir.Constant(simd.I16X16.ir, [1] * 16)
    return simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", simd.I32X8.ir, [pairs, ones])


def _added(builder: Any, before: _Sums, found: _Sums, bits: int = 0) -> _Sums:
    """The previous sums, if any, shifted by so many bits, plus the new ones."""
    if not before:
        return found
    by = ir.Constant(simd.I32X8.ir, [bits] * 8)
    return [
        [builder.add(builder.shl(a, by), b) for a, b in zip(some, those, strict=True)]
        for some, those in zip(before, found, strict=True)
    ]


def _store(builder: Any, value: Any, address: Any, offset: int) -> None:
    place = simd.pointer(builder, builder.add(address, simd.I64(offset)), value.type)
    builder.store(value, place, align=1)


def _everywhere(builder: Any, address: Any, offset: int, vec: Any) -> Any:
    return simd.broadcast(builder, emit.load(builder, address, offset, vec.ir.element), vec)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v8f32", simd.F32X8.ir, [a, b, c])
