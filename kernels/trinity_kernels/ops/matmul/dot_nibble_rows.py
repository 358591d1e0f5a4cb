"""Several rows of Q4_0 or Q4_1 on avx2, one after the other, in the order of memory.

The gain is at the ends of rows: their sums are folded together, and no row waits for the end of the
previous one.
Numerics: the bits of dot_block32.py.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import set_f32
from trinity_kernels.ops.matmul.activations import q8_scales, q8_sums
from trinity_kernels.ops.matmul.dot_block32 import dot_tail
from trinity_kernels.ops.matmul.dot_block_rows import ROWS, fold_rows
from trinity_kernels.ops.matmul.dot_nibbles_avx2 import add_blocks, fma, scales_and_minima
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import reader_of
from trinity_kernels.quants import emit
from trinity_kernels.quants.block32 import Block32

LEVEL = "avx2"
_CHUNK = 16  # blocks
_LEAST = 128  # elements: 4 blocks, the fewest that are multiplied together


@inline
def dot_nibble_rows(isa: Any, qt: Any, w: int, stride: int, x: int, k: int, to: int) -> None:
    """Multiply ``ROWS`` rows, ``stride`` bytes apart, by the row at ``x``: float32 at ``to``."""
    found = _blocks(isa, qt, w, stride, x, k, x + q8_scales(k), x + q8_sums(k))
    if k % _LEAST == 0:
        fold_rows(qt, found, to)
        return
    set_f32(to, dot_tail(isa, qt, w, x, k, found[0], found[4], 0))
    set_f32(to + 4, dot_tail(isa, qt, w + stride, x, k, found[1], found[5], 0))
    set_f32(to + 8, dot_tail(isa, qt, w + 2 * stride, x, k, found[2], found[6], 0))
    set_f32(to + 12, dot_tail(isa, qt, w + 3 * stride, x, k, found[3], found[7], 0))


@instructions(f"f32x16[{2 * ROWS}]", "tag", "tag", *["intp"] * 6)
def _blocks(
    builder: Any, isa: Any, qt: Any, w: Any, stride: Any, x: Any, k: Any, scales: Any, sums: Any
) -> Any:
    """The lanes of products of each row, then those of minima.

    They contain all blocks, or those of whole chunks if ``_LEAST`` does not divide K.
    """
    reader = reader_of(qt.value, Block32)
    blocks = builder.lshr(k, simd.I64(5))
    chunks = builder.lshr(blocks, simd.I64(4))
    rest = builder.and_(k, simd.I64(_LEAST - 1))
    left = builder.select(builder.icmp_signed("==", rest, simd.I64(0)), blocks, simd.I64(0))
    has_8, has_4 = (
        builder.icmp_signed("!=", builder.and_(left, simd.I64(n)), simd.I64(0)) for n in (8, 4)
    )
    found = []
    for r in range(ROWS):
        row = _Row(
            builder, reader, builder.add(w, builder.mul(stride, simd.I64(r))), x, scales, sums
        )
        with cgutils.for_range(builder, chunks) as loop:
            row.add(loop.index, 0, _CHUNK)
        with builder.if_then(has_8):
            row.add(chunks, 0, 8)
        with builder.if_then(has_4), builder.if_else(has_8) as (then, otherwise):
            with then:
                row.add(chunks, 8, 4)
            with otherwise:
                row.add(chunks, 0, 4)
        found.append(row)
    return [row.products() for row in found] + [row.minima() for row in found]


class _Row:
    """Emits the products of a row at ``w``.

    The other addresses are those of the activations' codes, scales and sums.
    """

    def __init__(
        self, builder: Any, reader: Block32, w: Any, x: Any, scales: Any, sums: Any
    ) -> None:
        self._builder, self._reader = builder, reader
        self._w, self._x, self._scales, self._sums = w, x, scales, sums
        zero = ir.Constant(simd.F32X16.ir, None)
        self._products = cgutils.alloca_once_value(builder, zero)
        self._minima = cgutils.alloca_once_value(builder, zero)

    def add(self, chunk: Any, first: int, count: int) -> None:
        """Add ``count`` blocks of a chunk, from ``first`` on."""
        builder, reader = self._builder, self._reader
        size = _CHUNK * reader.nbytes
        at = builder.add(self._w, builder.mul(chunk, simd.I64(size)))
        at = builder.add(at, simd.I64(first * reader.nbytes))
        for line in range(0, count * reader.nbytes, 64):
            _prefetch(builder, builder.add(at, simd.I64(AHEAD + line)))
        line = builder.add(builder.mul(chunk, simd.I64(4 * _CHUNK)), simd.I64(4 * first))
        d, m = scales_and_minima(builder, reader, at, count)
        some = d.type
        scales = emit.load(builder, builder.add(self._scales, line), 0, some)
        sums = emit.load(builder, builder.add(self._sums, line), 0, some)
        lanes = self._lanes(self._minima, first, some)
        builder.store(fma(builder, m, sums, builder.load(lanes, align=4)), lanes, align=4)
        x = builder.add(self._x, builder.mul(chunk, simd.I64(32 * _CHUNK)))
        x = builder.add(x, simd.I64(32 * first))
        total = builder.load(self._products)
        halves = [simd.shuffle(builder, total, total, list(range(i, i + 8))) for i in (0, 8)]
        halves = add_blocks(builder, reader, at, x, builder.fmul(d, scales), halves)
        total = simd.shuffle(builder, halves[0], halves[1], list(range(16)))
        builder.store(total, self._products)

    def products(self) -> Any:
        """The lanes of products."""
        return self._builder.load(self._products)

    def minima(self) -> Any:
        """The lanes of minima times sums of activations."""
        return self._builder.load(self._minima)

    def _lanes(self, vector: Any, first: int, kind: Any) -> Any:
        """The address of some lanes of a vector."""
        builder = self._builder
        start = builder.bitcast(vector, ir.FloatType().as_pointer())
        return builder.bitcast(builder.gep(start, [simd.I32(first)]), kind.as_pointer())


def _prefetch(builder: Any, address: Any) -> None:
    """Prefetch a cache line into the first-level cache."""
    hints = [simd.pointer(builder, address, simd.I8), simd.I32(0), simd.I32(3), simd.I32(1)]
    simd.call_named(builder, "llvm.prefetch.p0", ir.VoidType(), hints)
