"""Dot products of 4-bit codes in element order (quants/affine4.py) with activations of 19 bits.

A chunk of 128 codes is multiplied together: lane l of 16 has the exact sum of elements 8 l to
8 l + 7. With AVX-512 one load and one shift give the even codes and the odd codes, and the
activations are put into that order; several rows of weights share them, which also hides the cost
of the end of a row. Other levels put codes in order and add neighbouring lanes.

Numerics: with f = weight's scale * activations' scale, f * sum is added to each lane by a fused
multiply-add; then minimum * scaled sum of each 32 activations to every fourth lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots, memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.lanes import tree_sum, zero_lanes
from trinity_kernels.ops.matmul.activations import q19_middle, q19_number, q19_scales, q19_sums
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import code, elements, minimum, nbytes, reader_of, scale
from trinity_kernels.quants import emit
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.tags import per_level

CHUNK = 128
ROWS = 8
# The levels on which even and odd codes stay separate.
_SPLIT = ("avx512vnni", "amx")


@instructions("float32", "tag", "tag", *["intp"] * 6)
def one_row(
    builder: Any, isa: Any, qt: Any, w: Any, x: Any, k: Any, middle: Any, scales: Any, sums: Any
) -> Any:
    """The sum of ``k`` products; ``middle``, ``scales``, ``sums``: bytes from ``x`` to them."""
    reader = reader_of(qt.value, Affine4)
    products = _Products(isa.value, reader, builder, x, k, middle, scales, sums)
    return products.sums([w], simd.I64(AHEAD))[0]


@instructions("void", "tag", "tag", *["intp"] * 8)
def some_rows(
    builder: Any,
    isa: Any,
    qt: Any,
    w: Any,
    stride: Any,
    x: Any,
    k: Any,
    middle: Any,
    scales: Any,
    sums: Any,
    to: Any,
) -> Any:
    """As one_row, for ``ROWS`` rows; prefetches as many rows after them."""
    products = _Products(
        isa.value, reader_of(qt.value, Affine4), builder, x, k, middle, scales, sums
    )
    rows = [builder.add(w, builder.mul(stride, simd.I64(r))) for r in range(ROWS)]
    for r, found in enumerate(products.sums(rows, builder.mul(stride, simd.I64(ROWS)))):
        at = simd.pointer(builder, builder.add(to, simd.I64(4 * r)), simd.F32)
        builder.store(found, at, align=1)


class _Products:
    """Emits the products of rows of weights with one row of activations."""

    def __init__(
        self, level: str, reader: Affine4, builder: Any, x: Any, k: Any, middle: Any,
        scales: Any, sums: Any,
    ) -> None:  # fmt: skip
        self._level, self._reader, self._builder = level, reader, builder
        self._x, self._k, self._middle = x, k, middle
        self._scales, self._sums = scales, sums
        self._blocks = CHUNK // reader.elements
        self._chunk_bytes = self._blocks * reader.nbytes

    def sums(self, rows: list[Any], ahead: Any) -> list[Any]:
        """The sums of the rows, float32; ``ahead``: bytes from a read to its prefetch."""
        builder = self._builder
        found = [cgutils.alloca_once(builder, simd.F32X16.ir) for _ in rows]
        for total in found:
            builder.store(ir.Constant(simd.F32X16.ir, None), total)
        chunks = builder.sdiv(self._k, simd.I64(CHUNK))
        with cgutils.for_range(builder, chunks) as loop:
            step = builder.mul(loop.index, simd.I64(self._chunk_bytes))
            places = [builder.add(row, step) for row in rows]
            for place in places:
                self._prefetch(builder.add(place, ahead))
            self._add_chunk(loop.index, places, found)
        left = builder.srem(self._k, simd.I64(CHUNK))
        with builder.if_then(builder.icmp_signed("!=", left, simd.I64(0))):
            step = builder.mul(chunks, simd.I64(self._chunk_bytes))
            places = [self._filled_up(builder.add(row, step), left) for row in rows]
            self._add_chunk(chunks, places, found)
        return [simd.fold(builder, builder.load(total), 16, "fadd") for total in found]

    def _prefetch(self, at: Any) -> None:
        for line in range(0, self._chunk_bytes, 64):
            place = simd.pointer(self._builder, self._builder.add(at, simd.I64(line)), simd.I8)
            hints = [place, simd.I32(0), simd.I32(2), simd.I32(1)]
            simd.call_named(self._builder, "llvm.prefetch.p0", ir.VoidType(), hints)

    def _filled_up(self, row: Any, left: Any) -> Any:
        """The address of a copy of the last ``left`` elements' blocks, followed by zeros."""
        builder, nbytes = self._builder, self._reader.nbytes
        whole, block = (simd.Vec("i8", n).ir for n in (self._chunk_bytes, nbytes))
        copy = cgutils.alloca_once(builder, whole)
        builder.store(ir.Constant(whole, None), copy, align=1)
        to = builder.ptrtoint(copy, simd.I64)
        count = builder.sdiv(left, simd.I64(self._reader.elements))
        with cgutils.for_range(builder, count) as loop:
            step = builder.mul(loop.index, simd.I64(nbytes))
            read = simd.pointer(builder, builder.add(row, step), block)
            written = simd.pointer(builder, builder.add(to, step), block)
            builder.store(builder.load(read, align=1), written, align=1)
        return to

    def _add_chunk(self, chunk: Any, places: list[Any], found: list[Any]) -> None:
        builder = self._builder
        part = builder.add(self._x, builder.mul(chunk, simd.I64(CHUNK)))
        activations = []
        for _ in range(3):
            activations.append([emit.load(builder, part, at, simd.I8X64.ir) for at in (0, 64)])
            part = builder.add(part, self._middle)
        if self._level in _SPLIT:
            activations = [_split(builder, both) for both in activations]
        four = simd.Vec("f32", 4).ir
        at = builder.add(self._x, builder.mul(chunk, simd.I64(16)))
        scales = emit.load(builder, builder.add(at, self._scales), 0, four)
        scales = simd.shuffle(builder, scales, scales, [lane // 4 for lane in range(16)])
        sums = emit.load(builder, builder.add(at, self._sums), 0, four)
        lanes = [4 if lane % 4 else lane // 4 for lane in range(16)]
        sums = simd.shuffle(builder, sums, ir.Constant(four, None), lanes)
        for place, acc in zip(places, found, strict=True):
            total = builder.sitofp(self._integers(place, activations), simd.F32X16.ir)
            d, m = self._numbers(place)
            added = self._fma(builder.fmul(d, scales), total, builder.load(acc))
            builder.store(self._fma(m, sums, added), acc)

    def _fma(self, *operands: Any) -> Any:
        return simd.call_named(self._builder, "llvm.fma.v16f32", simd.F32X16.ir, list(operands))

    def _integers(self, place: Any, activations: list[list[Any]]) -> Any:
        """The exact sums of products of each lane."""
        builder, reader = self._builder, self._reader
        starts = [b * reader.nbytes + reader.codes_at for b in range(self._blocks)]
        packed = self._joined(
            [emit.load_bytes(builder, place, at, reader.elements // 2) for at in starts]
        )
        if self._level in _SPLIT:
            upper = emit.shifted_right(builder, packed, [4])
            codes = [emit.masked(builder, some, 15) for some in (packed, upper)]
            return self._products(codes, activations)
        found = []
        for half in range(2):
            some = simd.shuffle(builder, packed, packed, list(range(32 * half, 32 * half + 32)))
            of_half = [[both[half]] for both in activations]
            found.append(self._products([in_order(builder, some)], of_half))
        return builder.add(*_split(builder, found))

    def _products(self, codes: list[Any], activations: list[list[Any]]) -> Any:
        """Sums of four products of codes and numbers in three parts (high, middle, ones)."""
        builder = self._builder
        total = ir.Constant(simd.I32X16.ir, None)
        for part in activations:
            total = builder.shl(total, ir.Constant(simd.I32X16.ir, [8] * 16))
            for some, of_part in zip(codes, part, strict=True):
                total = byte_dots.emit_dot_u8i8(self._level, builder, total, some, of_part)
        return total

    def _numbers(self, place: Any) -> tuple[Any, Any]:
        """The scales and minima of each lane, from two overlapping loads."""
        builder, reader = self._builder, self._reader
        second = self._chunk_bytes // 4 - 16
        words = [emit.load(builder, place, 4 * at, simd.I32X16.ir) for at in (0, second)]

        def spread(behind: int) -> Any:
            lanes = []
            for lane in range(16):
                word = (lane * self._blocks // 16 * reader.nbytes + behind) // 4
                lanes.append(word if word < 16 else 16 + word - second)
            return simd.shuffle(builder, words[0], words[1], lanes)

        first = spread(0)
        if reader.scales == "f32":
            last = spread(reader.minimum_at)
            return builder.bitcast(first, simd.F32X16.ir), builder.bitcast(last, simd.F32X16.ir)
        sixteen = ir.Constant(simd.I32X16.ir, [16] * 16)
        if reader.scales == "bf16":
            d = builder.shl(first, sixteen)
            m = builder.and_(first, ir.Constant(simd.I32X16.ir, [-65536] * 16))
            return builder.bitcast(d, simd.F32X16.ir), builder.bitcast(m, simd.F32X16.ir)
        d, m = (
            builder.bitcast(builder.trunc(some, simd.I16X16.ir), simd.F16X16.ir)
            for some in (first, builder.lshr(first, sixteen))
        )
        return builder.fpext(d, simd.F32X16.ir), builder.fpext(m, simd.F32X16.ir)

    def _joined(self, parts: list[Any]) -> Any:
        while len(parts) > 1:
            lanes = list(range(2 * parts[0].type.count))
            parts = [
                simd.shuffle(self._builder, parts[i], parts[i + 1], lanes)
                for i in range(0, len(parts), 2)
            ]
        return parts[0]


def _split(builder: Any, both: list[Any]) -> list[Any]:
    """The even and the odd elements of two vectors."""
    count = 2 * both[0].type.count
    return [
        simd.shuffle(builder, both[0], both[1], list(range(first, count, 2))) for first in (0, 1)
    ]


def in_order(builder: Any, packed: Any) -> Any:
    """The 64 codes of 32 bytes, in order."""
    words = builder.zext(packed, simd.I16X32.ir)
    four = ir.Constant(words.type, [4] * 32)
    words = builder.or_(words, builder.shl(words, four))
    words = builder.and_(words, ir.Constant(words.type, [0x0F0F] * 32))
    return builder.bitcast(words, simd.I8X64.ir)


@inline
def dot_affine4_rows(isa: Any, qt: Any, w: int, stride: int, x: int, k: int, to: int) -> None:
    """Multiply ``ROWS`` rows, ``stride`` bytes apart, by the row at ``x``: float32 at ``to``."""
    middle, scales, sums = q19_middle(k), q19_scales(k), q19_sums(k)
    some_rows(isa, qt, w, stride, x, k, middle, scales, sums, to)


def _vector(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    return one_row(isa, qt, w, x, k, q19_middle(k), q19_scales(k), q19_sums(k))


@per_level(_vector)
def dot_affine4(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    lanes = zero_lanes()
    scales, sums = x + q19_scales(k), x + q19_sums(k)
    width = elements(qt)
    for first in range(0, k, 8):
        block, lane = w + first // width * nbytes(qt), first % 128 // 8
        total = 0
        for e in range(first, first + 8):
            total += int(code(qt, block, e % width)) * q19_number(x, k, e)
        f = np.float32(scale(qt, block, 0) * memory.get_f32(scales + first // 32 * 4))
        lanes[lane] = memory.fma_f32(f, np.float32(total), lanes[lane])
        s = np.float32(0)
        if lane % 4 == 0:
            s = memory.get_f32(sums + first // 32 * 4)
        lanes[lane] = memory.fma_f32(minimum(qt, block, 0), s, lanes[lane])
    return tree_sum(lanes)
