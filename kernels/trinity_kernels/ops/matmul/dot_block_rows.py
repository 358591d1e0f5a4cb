"""Several rows of Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1 at a time, on levels with registers of 64 bytes.

The sums of a row are one chain of additions; the chains of several rows run in parallel. The rows
share the loads of activations, and their sums are folded together. High nibbles stay in the high
halves of their bytes, unless codes have 5 bits: their sums become 16 times too large, which is
corrected at the end, exactly.

16 blocks are a chunk. The blocks after the last whole chunk are loaded under masks: nothing beyond
the row is read, and missing blocks have the scale 0.
Numerics: the bits of dot_block32.py.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.activations import q8_groups, q8_scales, q8_sums
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
    return ROWS if reader.nibbles_at or reader.bytes_at or reader.fifth_bits_at else 0


@inline
def dot_block_rows(isa: Any, qt: Any, w: int, stride: int, x: int, k: int, to: int) -> None:
    """Multiply ``ROWS`` rows, ``stride`` bytes apart, by the row at ``x``: float32 at ``to``."""
    beside = x + q8_groups(k) if signed(qt) else x + q8_sums(k)
    fold_rows(qt, _products(isa, qt, w, stride, x, k, x + q8_scales(k), beside), to)


@instructions(f"f32x16[{2 * ROWS}]", "tag", "tag", *["intp"] * 6)
def _products(
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
    blocks = builder.lshr(k, simd.I64(5))
    chunks, left = builder.lshr(blocks, simd.I64(4)), builder.and_(blocks, simd.I64(15))
    group = builder.mul(stride, simd.I64(ROWS))
    ahead = builder.add(w, prefetch_ahead(builder, stride))
    size = 16 * reader.nbytes
    with cgutils.for_range(builder, chunks) as loop:
        chunk = _Chunk(builder, level, reader, loop.index, x, scales, beside)
        step = builder.mul(loop.index, simd.I64(size))
        for r, row in enumerate(rows):
            part = builder.mul(
                builder.add(builder.mul(loop.index, simd.I64(ROWS)), simd.I64(r)), simd.I64(size)
            )
            for line in range(0, size, 64):
                prefetch(builder, builder.add(builder.add(ahead, part), simd.I64(line)))
            place = builder.add(row, step)
            factors = chunk.factors(place, found[ROWS + r])
            for p in range(8):
                chunk.add(p, place, factors, found[r])
    with builder.if_then(builder.icmp_signed("!=", left, simd.I64(0))):
        done = builder.mul(chunks, simd.I64(ROWS * size))
        lines = builder.add(builder.sub(group, done), simd.I64(63))
        with cgutils.for_range(builder, builder.lshr(lines, simd.I64(6))) as loop:
            line = builder.add(done, builder.shl(loop.index, simd.I64(6)))
            prefetch(builder, builder.add(ahead, line))
        chunk = _Chunk(builder, level, reader, chunks, x, scales, beside, left)
        step = builder.mul(chunks, simd.I64(size))
        places = [builder.add(row, step) for row in rows]
        of_rows = [chunk.factors(places[r], found[ROWS + r]) for r in range(ROWS)]

        def add_from(p: int) -> None:
            for r in range(ROWS):
                chunk.add(p, places[r], of_rows[r], found[r])
            if p < 7:
                with builder.if_then(builder.icmp_signed(">", left, simd.I64(2 * p + 2))):
                    add_from(p + 1)

        add_from(0)
    totals = [builder.load(total) for total in found]
    if reader.nibbles_at:
        parts = ir.Constant(simd.F32X16.ir, ([1.0] * 4 + [0.0625] * 4) * 2)
        totals[:ROWS] = [builder.fmul(total, parts) for total in totals[:ROWS]]
    return totals


def prefetch_ahead(builder: Any, stride: Any) -> Any:
    """Bytes from a group of rows to what is prefetched meanwhile."""
    group = builder.mul(stride, simd.I64(ROWS))
    return builder.select(
        builder.icmp_signed("<", group, simd.I64(_AHEAD)), simd.I64(_AHEAD), group
    )


def prefetch(builder: Any, address: Any) -> None:
    """Bring a line as near as the second-level cache."""
    hints = [simd.pointer(builder, address, simd.I8), simd.I32(0), simd.I32(2), simd.I32(1)]
    simd.call_named(builder, "llvm.prefetch.p0", ir.VoidType(), hints)


class _Chunk:
    """Emits the products of 16 blocks of rows, or of ``left`` blocks, with activations."""

    def __init__(
        self, builder: Any, level: str, reader: Block32, number: Any, x: Any, scales: Any,
        beside: Any, left: Any = None,
    ) -> None:  # fmt: skip
        self._builder, self._level, self._reader, self._left = builder, level, reader, left
        first, line = (builder.mul(number, simd.I64(size)) for size in (_CHUNK, 64))
        self._codes, self._sums = builder.add(x, first), builder.add(beside, first)
        self._scales = emit.load(builder, builder.add(scales, line), 0, simd.F32X16.ir)
        self._of_blocks = builder.add(beside, line)
        self._shared: dict[tuple[str, int], Any] = {}

    def factors(self, place: Any, minima: Any) -> Any:
        """The factor of each block at ``place``; adds the blocks' minima."""
        builder, reader = self._builder, self._reader
        d, m = self._numbers(place)
        if not reader.signed:
            sums = self._load("blocks", self._of_blocks, 0, simd.F32X16.ir)
            builder.store(_fma(builder, m, sums, builder.load(minima)), minima)
        return builder.fmul(d, self._scales)

    def add(self, pair: int, place: Any, factors: Any, products: Any) -> None:
        """Add the products of two blocks to the lanes of a row."""
        builder = self._builder
        order = [2 * pair] * 8 + [2 * pair + 1] * 8
        factor = simd.shuffle(builder, factors, factors, order)
        exact = builder.sitofp(self._exact(place, pair), simd.F32X16.ir)
        builder.store(_fma(builder, factor, exact, builder.load(products)), products)

    def _exact(self, place: Any, pair: int) -> Any:
        """Sums of four products of two blocks; those of high nibbles are 16 times too large."""
        builder, reader = self._builder, self._reader
        x = self._load("codes", self._codes, 64 * pair, simd.I8X64.ir)
        both = self._both(place, pair)
        if not reader.signed:
            codes = self._fives(both) if reader.fifth_bits_at else self._nibbles(both)
            zero = ir.Constant(simd.I32X16.ir, None)
            return byte_dots.emit_dot_u8i8(self._level, builder, zero, codes, x)
        sums = self._load("sums", self._sums, 64 * pair, simd.I32X16.ir)
        halves = [emit.load(builder, block, reader.bytes_at, simd.I8X32.ir) for block in both]
        codes = simd.shuffle(builder, halves[0], halves[1], list(range(64)))
        return byte_dots.emit_dot_i8i8_sums(self._level, builder, sums, codes, x)

    def _load(self, name: str, address: Any, offset: int, kind: Any) -> Any:
        """A vector of the activations, loaded where the first row needs it."""
        key = name, offset
        if key not in self._shared:
            self._shared[key] = emit.load(self._builder, address, offset, kind)
        return self._shared[key]

    def _both(self, place: Any, pair: int) -> list[Any]:
        """The addresses of two blocks; the first one's twice if it is the last."""
        builder, size = self._builder, self._reader.nbytes
        both = [builder.add(place, simd.I64(size * (2 * pair + i))) for i in range(2)]
        if self._left is not None:
            more = builder.icmp_signed(">", self._left, simd.I64(2 * pair + 1))
            both[1] = builder.select(more, both[1], both[0])
        return both

    def _twice(self, both: list[Any], at: int) -> Any:
        """16 bytes of each of two blocks, twice."""
        builder = self._builder
        halves = [emit.load_bytes(builder, block, at, 16) for block in both]
        one = list(range(16))
        two = list(range(16, 32))
        return simd.shuffle(builder, halves[0], halves[1], one + one + two + two)

    def _nibbles(self, both: list[Any]) -> Any:
        """Two blocks' codes as code (elements 0 to 15) and as 16 * code (16 to 31)."""
        mask = ([15] * 16 + [240] * 16) * 2
        return emit.masked(self._builder, self._twice(both, self._reader.nibbles_at), mask)

    def _fives(self, both: list[Any]) -> Any:
        """Two blocks' codes of 5 bits."""
        builder, at = self._builder, self._reader.fifth_bits_at
        twice = self._twice(both, at + 4)
        low = emit.masked(builder, emit.shifted_right(builder, twice, [0, 4, 0, 4]), 15)
        first, second = (
            builder.zext(emit.load(builder, block, at, simd.I32), simd.I64) for block in both
        )
        bits = builder.or_(first, builder.shl(second, simd.I64(32)))
        mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), 64))
        high = builder.or_(low, ir.Constant(simd.I8X64.ir, [16] * 64))
        return builder.select(mask, high, low)

    def _numbers(self, place: Any) -> tuple[Any, Any]:
        """The scales and minima of the blocks; those of missing blocks are 0."""
        builder, reader = self._builder, self._reader
        halves = simd.F16X16.ir
        if not reader.minimum_at:
            d = builder.fpext(builder.bitcast(self._scales_of(place), halves), simd.F32X16.ir)
            return d, builder.fmul(d, ir.Constant(simd.F32X16.ir, [-float(reader.offset)] * 16))
        words = self._words_of(place)
        upper = builder.lshr(words, ir.Constant(simd.I32X16.ir, [16] * 16))
        d, m = (
            builder.fpext(builder.bitcast(builder.trunc(some, simd.I16X16.ir), halves),
                          simd.F32X16.ir)
            for some in (words, upper)
        )  # fmt: skip
        return d, m

    def _scales_of(self, place: Any) -> Any:
        """The scales, <16 x i16>.

        A load of 64 bytes has those of several blocks. Each load begins 2 bytes lower than its
        first block for each load before it, so no two scales are in the same lane.
        """
        builder, size = self._builder, self._reader.nbytes
        step = size // 2
        at_once = 4 if 3 * step + 3 < 32 else 2  # blocks
        found, count = ir.Constant(simd.I16X32.ir, None), 16 // at_once
        for number in range(count):
            at = builder.add(place, simd.I64(size * at_once * number - 2 * number))
            lanes = [step * b + number for b in range(at_once)]
            mask = self._mask(32, at_once * number, lanes)
            found = _load_masked(builder, at, mask, found)
        order = [step * (b % at_once) + b // at_once for b in range(16)]
        return simd.shuffle(builder, found, found, order)

    def _words_of(self, place: Any) -> Any:
        """The first words, <16 x i32>: a scale and a minimum."""
        builder, size = self._builder, self._reader.nbytes
        step = size // 4
        at_once = 4 if 3 * step < 16 else 2  # blocks
        parts = []
        for first in range(0, 16, at_once):
            at = builder.add(place, simd.I64(size * first))
            mask = self._mask(16, first, [step * b for b in range(at_once)])
            parts.append(_load_masked(builder, at, mask, ir.Constant(simd.I32X16.ir, None)))
        lanes = [step * b for b in range(at_once)]
        while len(parts) > 1:
            lanes += [16 + lane for lane in lanes]
            order = lanes + [0] * (16 - len(lanes))
            parts = [
                simd.shuffle(builder, parts[i], parts[i + 1], order)
                for i in range(0, len(parts), 2)
            ]
            lanes = list(range(len(lanes)))
        return parts[0]

    def _mask(self, width: int, first: int, lanes: list[int]) -> Any:
        """A mask of the lanes of blocks from ``first`` on that exist."""
        if self._left is None:
            bits = [int(lane in lanes) for lane in range(width)]
            return ir.Constant(ir.VectorType(ir.IntType(1), width), bits)
        key = "mask", 64 * first + width
        if key not in self._shared:
            builder, kind = self._builder, ir.IntType(width)
            mask = kind(0)
            for block, lane in enumerate(lanes):
                there = builder.icmp_signed(">", self._left, simd.I64(first + block))
                bit = builder.shl(builder.zext(there, kind), kind(lane))
                mask = builder.or_(mask, bit)
            self._shared[key] = builder.bitcast(mask, ir.VectorType(ir.IntType(1), width))
        return self._shared[key]


def _load_masked(builder: Any, address: Any, mask: Any, others: Any) -> Any:
    """The lanes of ``mask`` from memory, and those of ``others``."""
    kind = others.type
    operands = [simd.pointer(builder, address, kind), simd.I32(1), mask, others]
    name = f"llvm.masked.load.v{kind.count}i{kind.element.width}.p0"
    return simd.call_named(builder, name, kind, operands)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, [a, b, c])


@instructions("void", "tag", f"f32x16[{2 * ROWS}]", "intp")
def fold_rows(builder: Any, qt: Any, found: Any, to: Any) -> Any:
    """Write the rows' sums to ``to``."""
    vectors = cgutils.unpack_tuple(builder, found, 2 * ROWS)
    emit_fold(builder, vectors[:ROWS] if reader_of(qt.value, Block32).signed else vectors, to)


def emit_fold(builder: Any, vectors: list[Any], to: Any) -> None:
    """Write the rows' sums to ``to``: each vector by the one tree, then both of a row."""
    both = len(vectors) > ROWS
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
    if both:
        parts = [range(first, first + ROWS) for first in (0, ROWS)]
        found = builder.fadd(*(simd.shuffle(builder, found, found, list(part)) for part in parts))
    builder.store(found, simd.pointer(builder, to, found.type), align=1)
