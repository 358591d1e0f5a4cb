"""Some rows of 4-bit codes at a time, where 64 bytes are one register: what dot_nibbles.py does.

The sums of a row are one chain of additions, as long as the row; those of other rows go on
meanwhile. The activations that are loaded serve all rows, and their ends are folded together.
The same bits as dot_block32.py gives.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import UniTuple

from trinity_kernels import byte_dots, simd
from trinity_kernels._jit import inline, intrinsic
from trinity_kernels.memory import set_f32
from trinity_kernels.ops.matmul.activations import q8_scales, q8_sums
from trinity_kernels.ops.matmul.dot_block32 import dot_tail
from trinity_kernels.ops.matmul.readers import reader_of
from trinity_kernels.quants import emit
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.simd import F32X16, I8X64, I16X32, I64

ROWS = 4
_CHUNK = 512  # elements: 16 blocks
_WORDS_AT_ONCE = 4  # blocks whose first words 64 bytes hold
# Rows are read by turns, but prefetched one after the other, this far ahead or a whole turn, into
# the second-level cache: with prefetches into the first one memory gave half as many bytes.
_AHEAD, _LEVEL_2 = 8192, 2


@inline
def dot_nibble_rows(isa: Any, qt: Any, w: int, stride: int, x: int, k: int, to: int) -> None:
    """``ROWS`` rows, ``stride`` bytes apart, times the activations at ``x``: float32 at ``to``."""
    found = _whole_chunks(isa, qt, w, stride, x, k, x + q8_scales(k), x + q8_sums(k))
    if k % _CHUNK == 0:
        _fold_rows(found, to)
        return
    set_f32(to, dot_tail(isa, qt, w, x, k, found[0], found[1]))
    set_f32(to + 4, dot_tail(isa, qt, w + stride, x, k, found[2], found[3]))
    set_f32(to + 8, dot_tail(isa, qt, w + 2 * stride, x, k, found[4], found[5]))
    set_f32(to + 12, dot_tail(isa, qt, w + 3 * stride, x, k, found[6], found[7]))


@intrinsic
def _whole_chunks(
    typingctx: Any, isa: Any, qt: Any, w: Any, stride: Any, x: Any, k: Any, scales: Any, sums: Any
) -> Any:
    """Each row's lanes of products, then of minima."""
    kind = UniTuple(F32X16, 2 * ROWS)
    reader, level = reader_of(qt.value, Block32), isa.value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, _, w, stride, x, k, scales, sums = args
        rows = [builder.add(w, builder.mul(stride, I64(r))) for r in range(ROWS)]
        found = [cgutils.alloca_once(builder, F32X16.ir) for _ in range(2 * ROWS)]
        for total in found:
            builder.store(ir.Constant(F32X16.ir, None), total)
        group = builder.mul(stride, I64(ROWS))
        ahead = builder.select(builder.icmp_signed("<", group, I64(_AHEAD)), I64(_AHEAD), group)
        ahead = builder.add(w, ahead)
        size = I64(16 * reader.nbytes)
        with cgutils.for_range(builder, builder.sdiv(k, I64(_CHUNK))) as loop:
            chunk = _Chunk(builder, level, reader, loop.index, x, scales, sums)
            step = builder.mul(loop.index, size)
            for r, row in enumerate(rows):
                place = builder.add(row, step)
                number = builder.add(builder.mul(loop.index, I64(ROWS)), I64(r))
                chunk.prefetch(builder.add(ahead, builder.mul(number, size)))
                chunk.add(place, found[2 * r], found[2 * r + 1])
        vectors = [builder.load(total) for total in found]
        return context.make_tuple(builder, kind, vectors)

    return kind(isa, qt, *[types.intp] * 6), codegen


class _Chunk:
    """Emits the products of 16 blocks of rows with the activations of one chunk."""

    def __init__(
        self, builder: Any, level: str, reader: Block32, number: Any, x: Any, scales: Any, sums: Any
    ) -> None:
        self._builder, self._level, self._reader = builder, level, reader
        codes = builder.add(x, builder.mul(number, I64(_CHUNK)))
        line = builder.mul(number, I64(64))
        self._codes = [emit.load(builder, codes, 64 * p, I8X64.ir) for p in range(8)]
        self._scales = emit.load(builder, builder.add(scales, line), 0, F32X16.ir)
        self._sums = emit.load(builder, builder.add(sums, line), 0, F32X16.ir)

    def prefetch(self, place: Any) -> None:
        for line in range(0, 16 * self._reader.nbytes, 64):
            at = simd.pointer(self._builder, self._builder.add(place, I64(line)), simd.I8)
            hints = [at, simd.I32(0), simd.I32(_LEVEL_2), simd.I32(1)]
            simd.call_named(self._builder, "llvm.prefetch.p0", ir.VoidType(), hints)

    def add(self, place: Any, products: Any, minima: Any) -> None:
        """Add what the blocks at ``place`` give to the lanes of a row."""
        builder, reader = self._builder, self._reader
        d = self._halves(place, 0)
        if reader.minimum_at:
            m = self._halves(place, reader.minimum_at)
        else:
            m = builder.fmul(d, ir.Constant(F32X16.ir, [-float(reader.offset)] * 16))
        builder.store(_fma(builder, m, self._sums, builder.load(minima)), minima)
        scale = builder.fmul(d, self._scales)
        high = builder.fmul(scale, ir.Constant(F32X16.ir, [0.0625] * 16))
        total = builder.load(products)
        for p, x in enumerate(self._codes):
            zero = ir.Constant(simd.I32X16.ir, None)
            codes = self._nibbles(place, p)
            exact = byte_dots.emit_dot_u8i8(self._level, builder, zero, codes, x)
            first, second = 2 * p, 2 * p + 1
            order = [first] * 4 + [16 + first] * 4 + [second] * 4 + [16 + second] * 4
            factor = simd.shuffle(builder, scale, high, order)
            total = _fma(builder, factor, builder.sitofp(exact, F32X16.ir), total)
        builder.store(total, products)

    def _nibbles(self, place: Any, pair: int) -> Any:
        """Two blocks' codes as code (elements 0 to 15) and as 16 * code (16 to 31)."""
        builder, size = self._builder, self._reader.nbytes
        at = min(2 * size * pair, 16 * size - 64)  # reads nothing beyond
        held = emit.load(builder, place, at, I8X64.ir)
        first = 2 * size * pair - at + self._reader.nibbles_at
        one = list(range(first, first + 16))
        two = [size + i for i in one]
        spread = simd.shuffle(builder, held, held, one + one + two + two)
        mask = ([15] * 16 + [240] * 16) * 2
        return builder.and_(spread, ir.Constant(I8X64.ir, mask))

    def _halves(self, place: Any, behind: int) -> Any:
        """Of each block the number of 16 bits ``behind`` bytes from its start."""
        builder, size = self._builder, self._reader.nbytes
        some = range(_WORDS_AT_ONCE)
        parts = [
            emit.load(builder, place, size * first, I16X32.ir)
            for first in range(0, 16, _WORDS_AT_ONCE)
        ]
        lanes = [(size * b + behind) // 2 for b in some]
        lanes += [32 + lane for lane in lanes]
        pairs = [simd.shuffle(builder, parts[i], parts[i + 1], lanes) for i in (0, 2)]
        words = simd.shuffle(builder, pairs[0], pairs[1], list(range(16)))
        return builder.fpext(builder.bitcast(words, simd.F16X16.ir), F32X16.ir)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v16f32", F32X16.ir, [a, b, c])


@intrinsic
def _fold_rows(typingctx: Any, found: Any, to: Any) -> Any:
    """The rows' sums to float32 at ``to``: each vector by the one tree, then both of a row."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vectors = cgutils.unpack_tuple(builder, args[0], 2 * ROWS)
        lanes = 16  # that a vector's sum is still spread over
        while len(vectors) > 1:
            lanes //= 2
            each = 16 // lanes // 2  # sums that a vector holds
            halves = []
            for upper in (0, lanes):
                picked = [
                    base + 2 * lanes * one + upper + lane
                    for base in (0, 16) for one in range(each) for lane in range(lanes)
                ]  # fmt: skip
                halves.append(picked)
            vectors = [
                builder.fadd(
                    simd.shuffle(builder, vectors[i], vectors[i + 1], halves[0]),
                    simd.shuffle(builder, vectors[i], vectors[i + 1], halves[1]),
                )
                for i in range(0, len(vectors), 2)
            ]
        low, high = (
            simd.shuffle(builder, vectors[0], vectors[0], list(range(first, 16, 2)))
            for first in (0, 1)
        )
        sums = builder.fadd(low, high)
        products, minima = (
            simd.shuffle(builder, sums, sums, list(range(first, 8, 2))) for first in (0, 1)
        )
        place = simd.pointer(builder, args[1], ir.VectorType(simd.F32, ROWS))
        builder.store(builder.fadd(products, minima), place, align=1)
        return context.get_dummy_value()

    return types.void(UniTuple(F32X16, 2 * ROWS), types.intp), codegen
