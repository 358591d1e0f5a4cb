"""Several rows of Q8_0, Q4_0 or Q4_1 at a time, on levels with registers of 64 bytes.

The sums of a row are one chain of additions; the chains of several rows run in parallel. The rows
share the loads of activations, and their sums are folded together. High nibbles stay in the high
halves of their bytes, as in dot_nibbles.py.
Numerics: the bits of dot_block32.py.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import set_f32
from trinity_kernels.ops.matmul.activations import q8_groups, q8_scales, q8_sums
from trinity_kernels.ops.matmul.dot_block32 import dot_tail
from trinity_kernels.ops.matmul.readers import reader_of, signed
from trinity_kernels.quants import BlockReader, emit
from trinity_kernels.quants.block32 import Block32

ROWS = 4
_CHUNK = 512  # elements: 16 blocks
# Rows are read in turn, but prefetched one after the other, this far ahead or a whole turn, into
# the second-level cache. Prefetches into the first-level cache halved the read bandwidth.
_AHEAD = 8192


def block_rows(reader: BlockReader) -> int:
    """Rows that ``dot_block_rows`` takes of the reader's types; 0 if it takes none."""
    return ROWS if reader.nibbles_at or reader.bytes_at else 0


@inline
def dot_block_rows(isa: Any, qt: Any, w: int, stride: int, x: int, k: int, to: int) -> None:
    """Multiply ``ROWS`` rows, ``stride`` bytes apart, by the row at ``x``: float32 at ``to``."""
    beside = x + q8_groups(k) if signed(qt) else x + q8_sums(k)
    found = _whole_chunks(isa, qt, w, stride, x, k, x + q8_scales(k), beside)
    finish_rows(isa, qt, found, _CHUNK, w, stride, x, k, to)


@inline
def finish_rows(
    isa: Any, qt: Any, found: Any, width: int, w: int, stride: int, x: int, k: int, to: int
) -> None:
    """Write the sums of the rows to ``to``, from their lanes of products, then of minima.

    If ``width`` divides K, the lanes contain all blocks, else those of whole chunks.
    """
    if k % width == 0:
        _fold_rows(qt, found, to)
        return
    set_f32(to, dot_tail(isa, qt, w, x, k, found[0], found[4], 0))
    set_f32(to + 4, dot_tail(isa, qt, w + stride, x, k, found[1], found[5], 0))
    set_f32(to + 8, dot_tail(isa, qt, w + 2 * stride, x, k, found[2], found[6], 0))
    set_f32(to + 12, dot_tail(isa, qt, w + 3 * stride, x, k, found[3], found[7], 0))


@instructions(f"f32x16[{2 * ROWS}]", "tag", "tag", *["intp"] * 6)
def _whole_chunks(
    builder: Any, isa: Any, qt: Any, w: Any, stride: Any, x: Any, k: Any, scales: Any, beside: Any
) -> Any:
    """The lanes of products of each row, then those of minima, which signed codes lack.

    ``beside``: the address of the scaled sums of blocks, or of the negated sums of 4 codes.
    """
    reader, level = reader_of(qt.value, Block32), isa.value
    rows = [builder.add(w, builder.mul(stride, simd.I64(r))) for r in range(ROWS)]
    found = [cgutils.alloca_once(builder, simd.F32X16.ir) for _ in range(2 * ROWS)]
    for total in found:
        builder.store(ir.Constant(simd.F32X16.ir, None), total)
    chunks = builder.sdiv(k, simd.I64(_CHUNK))
    group = builder.mul(stride, simd.I64(ROWS))
    ahead = builder.select(
        builder.icmp_signed("<", group, simd.I64(_AHEAD)), simd.I64(_AHEAD), group
    )
    ahead = builder.add(w, ahead)
    size = 16 * reader.nbytes
    with cgutils.for_range(builder, chunks) as loop:
        chunk = _Chunk(builder, level, reader, loop.index, x, scales, beside)
        step = builder.mul(loop.index, simd.I64(size))
        for r, row in enumerate(rows):
            part = builder.mul(
                builder.add(builder.mul(loop.index, simd.I64(ROWS)), simd.I64(r)), simd.I64(size)
            )
            for line in range(0, size, 64):
                _prefetch(builder, builder.add(builder.add(ahead, part), simd.I64(line)))
            chunk.add(builder.add(row, step), found[r], found[ROWS + r])
    # Prefetch the rows' last blocks, too, which are multiplied elsewhere.
    done = builder.mul(chunks, simd.I64(ROWS * size))
    left = builder.add(builder.sub(group, done), simd.I64(63))
    with cgutils.for_range(builder, builder.lshr(left, simd.I64(6))) as loop:
        line = builder.add(done, builder.shl(loop.index, simd.I64(6)))
        _prefetch(builder, builder.add(ahead, line))
    return [builder.load(total) for total in found]


def _prefetch(builder: Any, address: Any) -> None:
    """Bring a line as near as the second-level cache."""
    hints = [simd.pointer(builder, address, simd.I8), simd.I32(0), simd.I32(2), simd.I32(1)]
    simd.call_named(builder, "llvm.prefetch.p0", ir.VoidType(), hints)


class _Chunk:
    """Emits the products of 16 blocks of rows with the activations of one chunk."""

    def __init__(
        self, builder: Any, level: str, reader: Block32, number: Any, x: Any, scales: Any,
        beside: Any,
    ) -> None:  # fmt: skip
        self._builder, self._level, self._reader = builder, level, reader
        first, line = (builder.mul(number, simd.I64(size)) for size in (_CHUNK, 64))
        codes = builder.add(x, first)
        self._codes = [emit.load(builder, codes, 64 * p, simd.I8X64.ir) for p in range(8)]
        self._scales = emit.load(builder, builder.add(scales, line), 0, simd.F32X16.ir)
        if reader.signed:
            place = builder.add(beside, first)
            self._sums = [emit.load(builder, place, 64 * p, simd.I32X16.ir) for p in range(8)]
        else:
            self._sums = [emit.load(builder, builder.add(beside, line), 0, simd.F32X16.ir)]

    def add(self, place: Any, products: Any, minima: Any) -> None:
        """Add the products of the blocks at ``place`` to the lanes of a row."""
        builder, reader = self._builder, self._reader
        d = self._halves(place, 0)
        scale = builder.fmul(d, self._scales)
        if reader.signed:
            factors = [scale, scale]
        else:
            m = builder.fmul(d, ir.Constant(simd.F32X16.ir, [-float(reader.offset)] * 16))
            if reader.minimum_at:
                m = self._halves(place, reader.minimum_at)
            builder.store(_fma(builder, m, self._sums[0], builder.load(minima)), minima)
            factors = [scale, builder.fmul(scale, ir.Constant(simd.F32X16.ir, [0.0625] * 16))]
        total = builder.load(products)
        for p in range(8):
            order = [
                lane for block in (2 * p, 2 * p + 1) for lane in [block] * 4 + [16 + block] * 4
            ]
            factor = simd.shuffle(builder, factors[0], factors[1], order)
            exact = builder.sitofp(self._exact(place, p), simd.F32X16.ir)
            total = _fma(builder, factor, exact, total)
        builder.store(total, products)

    def _exact(self, place: Any, pair: int) -> Any:
        """Sums of four products of two blocks; those of high nibbles are 16 times too large."""
        builder, size, x = self._builder, self._reader.nbytes, self._codes[pair]
        if not self._reader.signed:
            zero = ir.Constant(simd.I32X16.ir, None)
            codes = self._nibbles(place, pair)
            return byte_dots.emit_dot_u8i8(self._level, builder, zero, codes, x)
        first = 2 * size * pair + self._reader.bytes_at
        halves = [emit.load(builder, place, at, simd.I8X32.ir) for at in (first, first + size)]
        codes = simd.shuffle(builder, halves[0], halves[1], list(range(64)))
        return byte_dots.emit_dot_i8i8_sums(self._level, builder, self._sums[pair], codes, x)

    def _nibbles(self, place: Any, pair: int) -> Any:
        """Two blocks' codes as code (elements 0 to 15) and as 16 * code (16 to 31)."""
        builder, size = self._builder, self._reader.nbytes
        at = min(2 * size * pair, 16 * size - 64)  # reads nothing beyond
        held = emit.load(builder, place, at, simd.I8X64.ir)
        first = 2 * size * pair - at + self._reader.nibbles_at
        one = list(range(first, first + 16))
        two = [size + i for i in one]
        spread = simd.shuffle(builder, held, held, one + one + two + two)
        mask = ([15] * 16 + [240] * 16) * 2
        return builder.and_(spread, ir.Constant(simd.I8X64.ir, mask))

    def _halves(self, place: Any, behind: int) -> Any:
        """The float16 ``behind`` bytes from the start of each block, as float32."""
        builder, size = self._builder, self._reader.nbytes
        at_once = 4 if 3 * size + behind + 2 <= 64 else 2  # blocks per load of 64 bytes
        parts = [
            emit.load(builder, place, size * first, simd.I16X32.ir)
            for first in range(0, 16, at_once)
        ]
        lanes = [(size * b + behind) // 2 for b in range(at_once)]
        lanes += [32 + lane for lane in lanes]
        while len(parts) > 1:
            parts = [
                simd.shuffle(builder, parts[i], parts[i + 1], lanes)
                for i in range(0, len(parts), 2)
            ]
            lanes = list(range(2 * len(lanes)))
        return builder.fpext(builder.bitcast(parts[0], simd.F16X16.ir), simd.F32X16.ir)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, [a, b, c])


@instructions("void", "tag", f"f32x16[{2 * ROWS}]", "intp")
def _fold_rows(builder: Any, qt: Any, found: Any, to: Any) -> Any:
    """Write the rows' sums to ``to``: each vector by the one tree, then both of a row."""
    has_minima = not reader_of(qt.value, Block32).signed
    vectors = cgutils.unpack_tuple(builder, found, 2 * ROWS)
    vectors = vectors if has_minima else vectors[:ROWS]
    lanes, sums = 16, 1  # lanes of one sum; sums in a vector
    while lanes > 1:
        lanes //= 2
        if len(vectors) > 1:
            pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
            sums *= 2
        else:
            pairs = [(vectors[0], vectors[0])]
        low = [2 * lanes * one + lane for one in range(sums) for lane in range(lanes)]
        high = [lanes + lane for lane in low]
        vectors = [
            builder.fadd(simd.shuffle(builder, a, b, low), simd.shuffle(builder, a, b, high))
            for a, b in pairs
        ]
    found = vectors[0]
    if has_minima:
        parts = [range(first, first + ROWS) for first in (0, ROWS)]
        found = builder.fadd(*(simd.shuffle(builder, found, found, list(part)) for part in parts))
    place = simd.pointer(builder, to, found.type)
    builder.store(found, place, align=1)
