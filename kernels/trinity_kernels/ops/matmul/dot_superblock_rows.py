"""Several rows of superblocks at a time, on levels with registers of 64 bytes.

The rows share the loads of activations, their chains of additions run in parallel, and their sums
are folded together.
Numerics: the bits of dot_superblock.py.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.activations import q8_groups, q8_halves, q8_scales, q8_sums
from trinity_kernels.ops.matmul.dot_block_rows import ROWS, emit_fold, prefetch, prefetch_ahead
from trinity_kernels.ops.matmul.dot_superblock import emit_factors, lanes_of_part
from trinity_kernels.ops.matmul.readers import reader_of
from trinity_kernels.quants import READERS, emit, grid
from trinity_kernels.quants.superblock import SuperBlock


def superblock_rows(quant: str) -> int:
    """Rows that ``dot_superblock_rows`` takes of a type; 0 if it takes none.

    Codebooks (quants/grid.py) gain nothing: most of the time goes into looking up their codes.
    """
    reader = READERS[quant]
    whole = isinstance(reader, SuperBlock) and reader.elements == 256
    return ROWS if whole and reader.form == "q8" and quant not in grid.TYPES else 0


@inline
def dot_superblock_rows(isa: Any, qt: Any, w: int, stride: int, x: int, k: int, to: int) -> None:
    """Multiply ``ROWS`` rows, ``stride`` bytes apart, by the row at ``x``: float32 at ``to``."""
    tables = x + q8_scales(k), x + q8_sums(k), x + q8_groups(k), x + q8_halves(k)
    scales, sums, groups, halves = tables
    _products(isa, qt, w, stride, x, k, scales, sums, groups, halves, to)


@instructions("void", "tag", "tag", *["intp"] * 9)
def _products(
    builder: Any, isa: Any, qt: Any, w: Any, stride: Any, x: Any, k: Any, scales: Any, sums: Any,
    groups: Any, halves: Any, to: Any,
) -> Any:  # fmt: skip
    reader = reader_of(qt.value, SuperBlock)
    zero = ir.Constant(simd.F32X16.ir, None)
    rows = [builder.add(w, builder.mul(stride, simd.I64(r))) for r in range(ROWS)]
    totals = [
        [cgutils.alloca_once_value(builder, zero) for _ in range(ROWS)] for _ in range(3)
    ]  # fmt: skip
    ahead = builder.add(w, prefetch_ahead(builder, stride))

    def plus(address: Any, index: Any, step: int) -> Any:
        return builder.add(address, builder.mul(index, simd.I64(step)))

    with cgutils.for_range(builder, builder.lshr(k, simd.I64(8))) as loop:
        b = loop.index
        codes, of_groups = plus(x, b, 256), plus(groups, b, 256)
        a = emit_factors(builder, reader, plus(scales, b, 32), plus(sums, b, 32))
        of_parts = [emit.load(builder, codes, 64 * p, simd.I8X64.ir) for p in range(4)]
        starts = [_start(builder, reader, of_groups, p) for p in range(4)]
        if reader.minima == 16:
            of_halves = emit.load(builder, plus(halves, b, 64), 0, simd.F32X16.ir)
        for r, row in enumerate(rows):
            part = builder.add(builder.mul(b, simd.I64(ROWS)), simd.I64(r))
            line = plus(ahead, part, reader.nbytes)
            for at in range(0, reader.nbytes, 64):
                prefetch(builder, builder.add(line, simd.I64(at)))
            block = plus(row, b, reader.nbytes)
            f = builder.fmul(reader.emit_scales(builder, block), a)
            least = totals[2][r]
            if reader.minima == 32:
                builder.store(builder.fsub(builder.load(least), f), least)
            for p in range(4):
                exact = _product(
                    isa.value, builder, reader, starts[p],
                    reader.emit_codes(isa.value, builder, block, p), of_parts[p],
                )  # fmt: skip
                factor = simd.shuffle(builder, f, f, lanes_of_part(reader, p))
                acc = totals[p % 2][r]
                operands = [factor, builder.sitofp(exact, simd.F32X16.ir), builder.load(acc)]
                fused = simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, operands)
                builder.store(fused, acc)
            if reader.minima == 16 and reader.emit_minima is not None:
                m = builder.fmul(reader.emit_minima(builder, block), of_halves)
                builder.store(builder.fsub(builder.load(least), m), least)
    even, odd, least = ([builder.load(one) for one in some] for some in totals)
    found = [builder.fadd(one, two) for one, two in zip(even, odd, strict=True)]
    if reader.minima == 32:
        upper = [*range(8, 16), *range(16, 24)]
        least = [simd.shuffle(builder, one, zero, upper) for one in least]
    emit_fold(builder, found + (least if reader.minima else []), to)


def _start(builder: Any, reader: SuperBlock, groups: Any, part: int) -> Any:
    """What the sums of a part start with: nothing, the negated sums of 4, or these times offset."""
    if not reader.signed and reader.offset == 0:
        return ir.Constant(simd.I32X16.ir, None)
    negated = emit.load(builder, groups, 64 * part, simd.I32X16.ir)
    if reader.signed:
        return negated
    bits = reader.offset.bit_length() - 1
    return builder.shl(negated, ir.Constant(simd.I32X16.ir, [bits] * 16))


def _product(
    level: str, builder: Any, reader: SuperBlock, start: Any, codes: Any, x: Any
) -> Any:  # fmt: skip
    """The exact lanes of a part's products."""
    if reader.signed:
        return byte_dots.emit_dot_i8i8_sums(level, builder, start, codes, x)
    return byte_dots.emit_dot_u8i8(level, builder, start, codes, x)
