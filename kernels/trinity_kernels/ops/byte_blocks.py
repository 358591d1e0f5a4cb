"""Blocks of dot products of bytes: 4 rows by 4 lines of 16, with the sums in registers.

Levels with few registers process the lines one after the other.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import byte_dots
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions

_ROWS = _LINES = 4
_STEPS = 16  # of a block of 64 positions, 4 at a time


def _together(level: str) -> list[range]:
    """The number of lines whose sums fit the registers."""
    count = 1 if level == "avx2" else _LINES
    return [range(first, first + count) for first in range(0, _LINES, count)]


class _Block:
    """The addresses of some lines and their two steps, of rows of x, and of the results."""

    def __init__(
        self, builder: Any, level: str, some: range, lines: Any, line_step: Any, k_step: Any,
        x: Any, x_stride: Any, to: Any, to_stride: Any,
    ) -> None:  # fmt: skip
        self.builder, self.level, self.k_step, self.some = builder, level, k_step, some
        self.lines = [_apart(builder, lines, line_step, _LINES)[i] for i in some]
        self.rows = _apart(builder, x, x_stride, _ROWS)
        self.to = _apart(builder, to, to_stride, _ROWS)

    def variables(self, kind: Any) -> list[list[Any]]:
        """A zero vector for each row and line."""
        return [[cgutils.alloca_once(self.builder, kind) for _ in self.lines] for _ in self.rows]

    def add_step(self, sums: list[list[Any]], step: Any, signed_lines: bool) -> None:
        """Add the products of 4 bytes of each row with those of each line."""
        builder = self.builder
        on = builder.mul(step, self.k_step)
        held = [
            builder.load(simd.pointer(builder, builder.add(a, on), simd.I8X64.ir), align=1)
            for a in self.lines
        ]
        four = builder.mul(step, simd.I64(4))
        for row, at in zip(sums, self.rows, strict=True):
            word = _word(builder, builder.add(at, four))
            for total, line in zip(row, held, strict=True):
                u, s = (word, line) if signed_lines else (line, word)
                old = builder.load(total)
                builder.store(byte_dots.emit_dot_bytes(self.level, builder, old, u, s), total)

    def place(self, row: int, line: int, kind: Any) -> Any:
        """The address for the results of a row and one of these lines."""
        at = self.builder.add(self.to[row], simd.I64(64 * self.some[line]))
        return simd.pointer(self.builder, at, kind)


def _apart(builder: Any, address: Any, stride: Any, count: int) -> list[Any]:
    return [builder.add(address, builder.mul(stride, simd.I64(i))) for i in range(count)]


def _word(builder: Any, address: Any) -> Any:
    """4 bytes, repeated 16 times."""
    word = builder.load(simd.pointer(builder, address, simd.I32), align=1)
    return builder.bitcast(simd.broadcast(builder, word, simd.I32X16), simd.I8X64.ir)


@instructions("void", "tag", *["intp"] * 9)
def score_block(
    builder: Any,
    isa: Any,
    lines: Any,
    line_step: Any,
    k_step: Any,
    steps: Any,
    x: Any,
    x_stride: Any,
    start: Any,
    to: Any,
    to_stride: Any,
) -> Any:
    """4 rows of signed bytes at x by 4 lines of 16 x 4 bytes + 128: int32 (4, 64) at ``to``.

    Lines are ``line_step`` bytes apart; the lines of the next 4 bytes of x are ``k_step`` bytes
    further. Sums begin with the row's int32 at ``start``, from ``negated_sums``.
    """
    level = isa.value
    for some in _together(level):
        block = _Block(builder, level, some, lines, line_step, k_step, x, x_stride, to, to_stride)
        sums = block.variables(simd.I32X16.ir)
        for row, at in zip(sums, _apart(builder, start, simd.I64(4), _ROWS), strict=True):
            first = builder.bitcast(_word(builder, at), simd.I32X16.ir)
            for total in row:
                builder.store(first, total)
        with cgutils.for_range(builder, steps) as loop:
            block.add_step(sums, loop.index, signed_lines=False)
        for r, row in enumerate(sums):
            for i, total in enumerate(row):
                builder.store(builder.load(total), block.place(r, i, simd.I32X16.ir), align=1)


@instructions("void", "tag", *["intp"] * 4)
def negated_sums(builder: Any, isa: Any, x: Any, x_stride: Any, steps: Any, to: Any) -> Any:
    """Write -128 times the sum of each of 4 rows of signed bytes to ``to``, int32.

    It compensates lines whose bytes are 128 too high.
    """
    level = isa.value
    ones = ir.Constant(simd.I8X64.ir, [1] * 64)
    rows = _apart(builder, x, x_stride, _ROWS)
    sums = [cgutils.alloca_once(builder, simd.I32X16.ir) for _ in rows]
    for total in sums:
        builder.store(ir.Constant(simd.I32X16.ir, None), total)
    with cgutils.for_range(builder, steps) as loop:
        for total, at in zip(sums, rows, strict=True):
            word = _word(builder, builder.add(at, builder.mul(loop.index, simd.I64(4))))
            old = builder.load(total)
            builder.store(byte_dots.emit_dot_u8i8(level, builder, old, ones, word), total)
    for i, total in enumerate(sums):
        one = builder.extract_element(builder.load(total), simd.I32(0))
        place = simd.pointer(builder, builder.add(to, simd.I64(4 * i)), simd.I32)
        builder.store(builder.mul(one, simd.I32(-128)), place, align=1)


@instructions("void", "tag", *["intp"] * 10)
def value_block(
    builder: Any,
    isa: Any,
    lines: Any,
    line_step: Any,
    k_step: Any,
    blocks: Any,
    x: Any,
    x_stride: Any,
    weights: Any,
    weights_stride: Any,
    to: Any,
    to_stride: Any,
) -> Any:
    """4 rows of unsigned bytes at x by 4 lines of 16 x 4 signed bytes: float32 (4, 64) at ``to``.

    Lines are as for ``score_block``. Each 64 bytes of x are multiplied by a float32 of ``weights``,
    which has rows of ``blocks`` of them, ``weights_stride`` bytes apart.
    """
    level = isa.value
    weights_at = _apart(builder, weights, weights_stride, _ROWS)
    for some in _together(level):
        block = _Block(builder, level, some, lines, line_step, k_step, x, x_stride, to, to_stride)
        _add_blocks(block, blocks, weights_at)


def _add_blocks(block: _Block, blocks: Any, weights_at: list[Any]) -> None:
    """Write the sums of some lines over all blocks, times the rows' weights."""
    builder = block.builder
    sums, whole = block.variables(simd.I32X16.ir), block.variables(simd.F32X16.ir)
    for row in whole:
        for total in row:
            builder.store(ir.Constant(simd.F32X16.ir, None), total)
    steps = simd.unknown(builder, _STEPS)
    with cgutils.for_range(builder, blocks) as outer:
        for row in sums:
            for total in row:
                builder.store(ir.Constant(simd.I32X16.ir, None), total)
        first = builder.mul(outer.index, simd.I64(_STEPS))
        with cgutils.for_range(builder, steps) as inner:
            block.add_step(sums, builder.add(first, inner.index), signed_lines=True)
        for r, row in enumerate(sums):
            place = builder.add(weights_at[r], builder.mul(outer.index, simd.I64(4)))
            weight = builder.load(simd.pointer(builder, place, simd.F32), align=1)
            weight = simd.broadcast(builder, weight, simd.F32X16)
            for total, exact in zip(whole[r], row, strict=True):
                found = builder.sitofp(builder.load(exact), simd.F32X16.ir)
                args_of = [found, weight, builder.load(total)]
                found = simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, args_of)
                builder.store(found, total)
    for r, row in enumerate(whole):
        for i, total in enumerate(row):
            builder.store(builder.load(total), block.place(r, i, simd.F32X16.ir), align=1)
