"""Panels on avx512vnni: two panels, 32 rows of weights, times several tokens in one loop.

A word of a token (four activations, copied to all lanes) is multiplied by a line of each panel, so
there are fewer loads than products. The offset of unsigned codes is compensated by the start value
of the exact sums: the negated sum of a token's codes, shifted to the left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity_kernels import byte_dots
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.columns import hidden
from trinity_kernels.ops.matmul.panel_layout import FEW, PANELS, has_halves
from trinity_kernels.ops.matmul.panel_pack import codes_above
from trinity_kernels.ops.matmul.readers import scale_at
from trinity_kernels.quants import READERS

LEVEL = "avx512vnni"


def _load(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    place = builder.add(address, simd.I64(offset)) if offset else address
    return builder.load(simd.pointer(builder, place, kind), align=1)


def _everywhere(builder: Any, address: Any, offset: int, vec: Any) -> Any:
    return simd.broadcast(builder, _load(builder, address, offset, vec.ir.element), vec)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, [a, b, c])


class _Tokens:
    """The addresses of an array of each token, which move on by ``step`` bytes.

    With a ``stride``, an entry of ``first`` is the first of four tokens. An address is the sum of
    few registers. If the compiler knew how addresses move, it would keep one for each token and
    each offset, on the stack.
    """

    def __init__(
        self, builder: Any, first: list[Any], stride: Any, step: int, tokens: int = 1
    ) -> None:
        self._builder, self._stride, self._step, self._tokens = builder, stride, step, tokens
        self._kept = [cgutils.alloca_once_value(builder, one) for one in first]

    def places(self) -> list[Any]:
        """The present addresses."""
        builder, first = self._builder, [self._builder.load(one) for one in self._kept]
        if not self._stride:
            return first
        stride = hidden(builder, self._stride)
        double = builder.shl(stride, simd.I64(1))
        steps = [simd.I64(0), stride, double, builder.add(double, stride)]
        return [builder.add(one, step) for one in first for step in steps][: self._tokens]

    def go_on(self) -> None:
        """Move on to the next block."""
        builder = self._builder
        for one in self._kept:
            after = builder.add(builder.load(one), simd.I64(self._step))
            builder.store(hidden(builder, after), one)


def _tokens(
    builder: Any, x: Any, last: Any, stride: Any, tokens: int
) -> Callable[[Any, int], _Tokens]:
    """A function that returns an array of each token, from its offset and its step in bytes.

    If there are ``FEW`` tokens, ``last`` replaces tokens after it.
    """
    if tokens == FEW:
        first = []
        for t in range(tokens):
            over = builder.icmp_signed("<", last, simd.I64(t))
            number = builder.select(over, last, simd.I64(t))
            first.append(builder.add(x, builder.mul(number, stride)))
        stride = None
    else:
        fours = [builder.mul(simd.I64(t), stride) for t in range(0, tokens, 4)]
        first = [builder.add(x, one) for one in fours]
    return lambda offset, step: _Tokens(
        builder, [builder.add(one, offset) for one in first], stride, step, tokens
    )


def _lines(builder: Any, at: Any, tokens: int, kind: Any) -> list[list[Any]]:
    """Variables with the lines at ``at``, or zeros if ``at`` is 0: [panel][token]."""
    lines = []
    for p in range(PANELS):
        numbers = [
            _load(builder, at, 64 * (PANELS * t + p), kind) if at else ir.Constant(kind, None)
            for t in range(tokens)
        ]
        lines.append([cgutils.alloca_once_value(builder, one) for one in numbers])
    return lines


def _store_lines(builder: Any, lines: list[list[Any]], to: Any) -> None:
    """Write the variables of ``_lines`` to ``to``."""
    for p, some in enumerate(lines):
        for t, one in enumerate(some):
            at = builder.add(to, simd.I64(64 * (PANELS * t + p)))
            value = builder.load(one)
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


@instructions("void", "tag", "tag", "literal", *["intp"] * 12)
def wide_blocks(
    builder: Any,
    isa: Any,
    qt: Any,
    tokens: Any,
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
    """Multiply two panels by ``tokens`` tokens; add to two lines of 16 float32 at ``to`` for each.

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
    step = 8 // parts
    totals = _lines(builder, to, tokens, simd.F32X16.ir)
    array = _tokens(builder, x, last, stride, tokens)
    codes, x_scale = array(simd.I64(0), 32), array(x_scales, 4)
    x_sum = array(x_negated, 8) if above else array(x_sums, 4 * parts)
    first, factors = (
        _Tokens(builder, [panel], None, 512),
        _Tokens(builder, [builder.add(panel, scales)], None, 128 * parts),
    )
    moving = [codes, x_scale, x_sum, first, factors]
    with cgutils.for_range(builder, blocks):
        panels = [first.places()[0], builder.add(first.places()[0], second)]
        places = [factors.places()[0], builder.add(factors.places()[0], second)]
        planes = [codes.places()]
        for _ in range(2 if fine else 0):
            planes.append([builder.add(row, x_middle) for row in planes[-1]])
        scale_rows, sum_rows = x_scale.places(), x_sum.places()
        for i in range(parts):
            start = [ir.Constant(simd.I32X16.ir, None)] * tokens
            if above:
                start = [_start(builder, row, i, parts, above) for row in sum_rows]
            sums = [list(start) for _ in range(PANELS)]
            for number, words in enumerate(planes):
                if number:
                    eight = ir.Constant(simd.I32X16.ir, [8] * 16)
                    sums = [[builder.shl(one, eight) for one in some] for some in sums]
                sums = _add_products(builder, sums, panels, words, step * i, step * i + step)
            # Otherwise LLVM would mix the lines with what follows, and registers would not suffice.
            flat = simd.pinned(builder, sums[0] + sums[1])
            sums = [flat[:tokens], flat[tokens:]]
            for p, place in enumerate(places):
                d = _load(builder, place, 64 * i, simd.F32X16.ir)
                for t in range(tokens):
                    total = builder.load(totals[p][t])
                    if not above:
                        m = _load(builder, place, 64 * (parts + i), simd.F32X16.ir)
                        sum_of = _everywhere(builder, sum_rows[t], 4 * i, simd.F32X16)
                        total = _fma(builder, m, sum_of, total)
                    scale = _everywhere(builder, scale_rows[t], 0, simd.F32X16)
                    exact = builder.sitofp(sums[p][t], simd.F32X16.ir)
                    total = _fma(builder, builder.fmul(d, scale), exact, total)
                    builder.store(total, totals[p][t])
        for one in moving:
            one.go_on()
    _store_lines(builder, totals, to)


def _start(builder: Any, at: Any, part: int, parts: int, above: int) -> Any:
    """The start value of the sums of a block, or half a block, for codes with offset ``above``."""
    number = _load(builder, at, 4 * part, simd.I32)
    if parts == 1:
        number = builder.add(number, _load(builder, at, 4, simd.I32))
    number = builder.mul(number, simd.I32(above))
    return simd.broadcast(builder, number, simd.I32X16)


@instructions("void", "tag", "literal", *["intp"] * 7)
def wide_codes(
    builder: Any,
    qt: Any,
    tokens: Any,
    panel: Any,
    second: Any,
    blocks: Any,
    x: Any,
    last: Any,
    stride: Any,
    to: Any,
) -> Any:
    """Multiply blocks of 256 ternary codes of two panels by ``tokens`` tokens.

    The products are added to two lines of 16 int32 at ``to`` for each token, or replace them if
    blocks have scales. ``last`` replaces tokens after it. ``second``: bytes from the first panel to
    the second.
    """
    step = 16
    codes = _tokens(builder, x, last, stride, tokens)(simd.I64(0), 4 * step)
    first = _Tokens(builder, [panel], None, 64 * step)
    totals = _lines(builder, 0 if scale_at(qt) else to, tokens, simd.I32X16.ir)
    with cgutils.for_range(builder, builder.mul(blocks, simd.I64(64 // step))):
        panels = [first.places()[0], builder.add(first.places()[0], second)]
        sums = [[builder.load(one) for one in some] for some in totals]
        sums = _add_products(builder, sums, panels, codes.places(), 0, step)
        for some, those in zip(sums, totals, strict=True):
            for total, one in zip(some, those, strict=True):
                builder.store(total, one)
        first.go_on()
        codes.go_on()
    _store_lines(builder, totals, to)
