"""Blocks of dot products of bytes: 4 rows by 4 lines of 16 at a time, sums in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from trinity_kernels import byte_dots, simd
from trinity_kernels._jit import intrinsic
from trinity_kernels.simd import I8X64, I32, I32X16, I64

_ROWS = _LINES = 4


def _block(signed_lines: bool, doc: str) -> Any:
    def block(
        typingctx: Any, isa: Any, lines: Any, line_step: Any, k_step: Any, steps: Any, x: Any,
        x_stride: Any, to: Any, to_stride: Any,
    ) -> Any:  # fmt: skip
        level = isa.value

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            _, lines, line_step, k_step, steps, x, x_stride, to, to_stride = args
            sums = [[cgutils.alloca_once(builder, I32X16.ir) for _ in range(4)] for _ in range(4)]
            for row in sums:
                for total in row:
                    builder.store(ir.Constant(I32X16.ir, None), total)
            at = [builder.add(lines, builder.mul(line_step, I64(i))) for i in range(_LINES)]
            rows = [builder.add(x, builder.mul(x_stride, I64(i))) for i in range(_ROWS)]
            with cgutils.for_range(builder, steps) as loop:
                on = builder.mul(loop.index, k_step)
                held = [
                    builder.load(simd.pointer(builder, builder.add(a, on), I8X64.ir), align=1)
                    for a in at
                ]
                four = builder.mul(loop.index, I64(4))
                for r, row_at in enumerate(rows):
                    place = simd.pointer(builder, builder.add(row_at, four), I32)
                    word = simd.broadcast(builder, builder.load(place, align=1), I32X16)
                    word = builder.bitcast(word, I8X64.ir)
                    for total, line in zip(sums[r], held, strict=True):
                        u, s = (word, line) if signed_lines else (line, word)
                        old = builder.load(total)
                        builder.store(byte_dots.emit_dot_bytes(level, builder, old, u, s), total)
            if not signed_lines:
                _take_back(builder, level, sums, rows, steps)
            for r, row in enumerate(sums):
                for i, total in enumerate(row):
                    place = builder.add(to, builder.mul(to_stride, I64(r)))
                    place = simd.pointer(builder, builder.add(place, I64(64 * i)), I32X16.ir)
                    builder.store(builder.load(total), place, align=1)
            return context.get_dummy_value()

        return types.void(isa, *[types.intp] * 8), codegen

    block.__doc__ = doc
    return intrinsic(block)


def _take_back(builder: Any, level: str, sums: Any, rows: Any, steps: Any) -> None:
    """128 times the sum of each row of x, which lines that stand 128 too high have added."""
    total = cgutils.alloca_once(builder, I32X16.ir)
    ones = ir.Constant(I8X64.ir, [1] * 64)
    for row, at in zip(sums, rows, strict=True):
        builder.store(ir.Constant(I32X16.ir, None), total)
        with cgutils.for_range(builder, steps) as loop:
            place = builder.add(at, builder.mul(loop.index, I64(4)))
            word = builder.load(simd.pointer(builder, place, I32), align=1)
            word = builder.bitcast(simd.broadcast(builder, word, I32X16), I8X64.ir)
            old = builder.load(total)
            builder.store(byte_dots.emit_dot_u8i8(level, builder, old, ones, word), total)
        back = builder.shl(builder.load(total), ir.Constant(I32X16.ir, [7] * 16))
        for one in row:
            builder.store(builder.sub(builder.load(one), back), one)


score_block = _block(
    False,
    """4 rows of signed bytes at x by 4 lines of 16 x 4 bytes + 128: int32 (4, 64) at ``to``.

    Lines are ``line_step`` bytes apart, those of the next 4 bytes of x ``k_step`` further.
    """,
)
value_block = _block(True, "As score_block, of unsigned bytes at x and lines of signed ones.")
