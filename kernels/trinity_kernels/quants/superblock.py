"""What the types with several scales per block share: one dot product, 64 codes at a time.

A block has 64, 128 or 256 elements, in parts of 64, and a scale for 16 or 32 elements or for all.
A type states how a part's codes and a block's scales are read; the rest is here.

Numerics: a part's integer sums are exact. With f = weight's scale * activations' scale, each lane
of four elements is f * sum, by a fused multiply-add onto one of two accumulators (even and odd
parts), which are added at the end. Minima of 32 or 16 elements are multiplied by the activations'
scaled sums, eight or sixteen lanes to a block, apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import choose, inline, intrinsic
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.dot import AHEAD, register_dot, tree_sum
from trinity_kernels.quants.unpack import register_unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperBlock:
    """How one type's blocks are read: twice, as vectors and, one by one, for the portable level.

    ``emit_codes(level, builder, block, part)``: LLVM code that gives the 64 codes of a part as
    <64 x i8>, ``block`` being the address. They stand ``offset`` (0 or a power of 2) above the
    values and stay below 128, or are ``signed``. ``code(block, e)``: that of element e.
    ``emit_scales(builder, block)``: <16 x float>, one per ``group`` of 16 elements; those of 32
    fill the lower eight lanes, under their minima where there are such (``minima`` 32); that of a
    whole block (``group`` = ``elements``) fills all. ``scale(block, g)``: one of them.
    ``emit_mins(builder, block)``: what is subtracted from 16 elements each (``minima`` 16).
    ``minimum(block, g)``: one of either kind of minima. ``top``: no code is larger.
    """

    nbytes: int
    emit_codes: Callable[[str, Any, Any, int], Any]
    code: Callable[..., Any]
    emit_scales: Callable[[Any, Any], Any]
    scale: Callable[..., Any]
    emit_mins: Callable[[Any, Any], Any] | None = None
    minimum: Callable[..., Any] | None = None
    elements: int = 256
    group: int = 32
    offset: int = 0
    signed: bool = False
    minima: int = 0
    top: int = 127


_BLOCKS: dict[str, SuperBlock] = {}


def register_superblock(quant: str, block: SuperBlock, **levels: Callable[..., Any]) -> None:
    """Give a type its compiled dot product and its way onto tiles; ``levels`` as register_dot's."""
    _BLOCKS[quant] = block
    register_dot(quant, "q8", vector=_dot, portable=_portable_dot, **levels)
    register_unpack(quant, _unpack, step=256 // block.elements * block.nbytes)


def superblock_of(quant: str) -> SuperBlock:
    """How a type's blocks are read."""
    return _BLOCKS[quant]


def superblock_types() -> frozenset[str]:
    """The types that are registered here."""
    return frozenset(_BLOCKS)


def _number(name: str) -> Callable[..., Any]:
    """A function of ``qt`` that gives one of its block's numbers, a constant where compiled."""

    def stub(qt: Any) -> Any:
        return int(getattr(_BLOCKS[qt.value], name))

    return stub


_nbytes, _elements, _group = _number("nbytes"), _number("elements"), _number("group")
_minima, _offset = _number("minima"), _number("offset")


def _code(qt: Any, block: int, e: int) -> Any:
    return _BLOCKS[qt.value].code(block, e)


def _scale(qt: Any, block: int, g: int) -> Any:
    return _BLOCKS[qt.value].scale(block, g)


def _minimum(qt: Any, block: int, g: int) -> Any:
    minimum = _BLOCKS[qt.value].minimum
    return minimum(block, g) if minimum else np.float32(0)


def _product(isa: Any, qt: Any, sums: int, codes: Any, x: int) -> Any: ...


def _portable_dot(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    even = np.zeros(16, np.float32)
    odd = np.zeros(16, np.float32)
    least = np.zeros(16, np.float32)
    scales = x + (k + 63) // 64 * 64
    sums = scales + (k + 511) // 512 * 64
    halves = sums + (k + 511) // 512 * 64 + (k + 63) // 64 * 64
    elements = _elements(qt)
    group = _group(qt)
    for b in range(k // elements):
        block = w + b * _nbytes(qt)
        first = b * elements // 32
        for i in range(elements // 4):
            e = 4 * i
            lane = i % 16
            total = 0
            for t in range(4):
                a = int(memory.get_i8(x + b * elements + e + t))
                total += (int(_code(qt, block, e + t)) - _offset(qt)) * a
            d = memory.get_f32(scales + 4 * (first + e // 32))
            f = np.float32(_scale(qt, block, e // group) * d)
            if i // 16 % 2 == 0:
                even[lane] = memory.fma_f32(f, np.float32(total), even[lane])
            else:
                odd[lane] = memory.fma_f32(f, np.float32(total), odd[lane])
        if _minima(qt) == 32:
            for g in range(elements // 32):
                m = np.float32(_minimum(qt, block, g) * memory.get_f32(sums + 4 * (first + g)))
                least[g] = np.float32(least[g] - m)
        if _minima(qt) == 16:
            for g in range(16):
                half = halves + 4 * (2 * first + g)
                m = np.float32(_minimum(qt, block, g) * memory.get_f32(half))
                least[g] = np.float32(least[g] - m)
    for i in range(16):
        even[i] = np.float32(even[i] + odd[i])
    if _minima(qt) == 0:
        return tree_sum(even)
    return np.float32(tree_sum(even) + tree_sum(least))


def _dot(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    even = simd.splat_f32x16(np.float32(0))
    odd = simd.splat_f32x16(np.float32(0))
    least = simd.splat_f32x16(np.float32(0))
    scales = x + (k + 63) // 64 * 64
    sums = scales + (k + 511) // 512 * 64
    groups = sums + (k + 511) // 512 * 64
    halves = groups + (k + 63) // 64 * 64
    nbytes = _nbytes(qt)
    elements = _elements(qt)
    for b in range(k // elements):
        block = w + b * nbytes
        for line in range((nbytes + 63) // 64):
            simd.prefetch(block + AHEAD + 64 * line)
        c = x + b * elements
        g = groups + b * elements
        at = b * (elements // 8)
        a = factors(qt, scales + at, sums + at)
        f = scales_of(qt, block) * a
        if _minima(qt) == 32:
            least = least - f
        even = _add_part(isa, qt, even, f, block, c, g, 0)
        if elements > 64:
            odd = _add_part(isa, qt, odd, f, block, c, g, 1)
        if elements > 128:
            even = _add_part(isa, qt, even, f, block, c, g, 2)
            odd = _add_part(isa, qt, odd, f, block, c, g, 3)
        if _minima(qt) == 16:
            least = least - minima_of(qt, block) * simd.load_f32x16(halves + 2 * at)
    total = simd.sum_f32x16(even + odd)
    if _minima(qt) == 0:
        return total
    if _minima(qt) == 32:
        least = upper(least)
    return np.float32(total + simd.sum_f32x16(least))


def _unpack(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """scale * value - minimum as bfloat16, 32 elements to a tile line."""
    nbytes = _nbytes(qt)
    elements = _elements(qt)
    for b in range(k // elements):
        block = w + b * nbytes
        s = scales_of(qt, block)
        m = s
        if _minima(qt) == 16:
            m = minima_of(qt, block)
        lines = to + 32 * elements * b
        _unpack_part(isa, qt, s, m, block, lines, 0)
        if elements > 64:
            _unpack_part(isa, qt, s, m, block, lines, 1)
        if elements > 128:
            _unpack_part(isa, qt, s, m, block, lines, 2)
            _unpack_part(isa, qt, s, m, block, lines, 3)


def lane_of(block: SuperBlock, part: int, quarter: int) -> int:
    """The lane of ``scales`` that belongs to 16 codes of a part."""
    return (64 * part + 16 * quarter) // block.group


if not jit_disabled():
    from llvmlite import ir
    from numba.core import types

    from trinity_kernels import byte_dots, simd, tiles

    def _choose_number(stub: Any, name: str) -> None:
        @choose(stub)
        def chooser(qt: Any) -> Any:
            value = int(getattr(_BLOCKS[qt.value], name))
            return lambda qt: value

    _choose_number(_nbytes, "nbytes")
    _choose_number(_elements, "elements")
    _choose_number(_group, "group")
    _choose_number(_minima, "minima")
    _choose_number(_offset, "offset")

    @choose(_code)
    def _code_of(qt: Any, block: Any, e: Any) -> Any:
        code = inline(_BLOCKS[qt.value].code)
        return lambda qt, block, e: code(block, e)

    @choose(_scale)
    def _scale_of(qt: Any, block: Any, g: Any) -> Any:
        scale = inline(_BLOCKS[qt.value].scale)
        return lambda qt, block, g: scale(block, g)

    @choose(_minimum)
    def _minimum_of(qt: Any, block: Any, g: Any) -> Any:
        minimum = _BLOCKS[qt.value].minimum
        if minimum is None:
            return lambda qt, block, g: np.float32(0)
        compiled = inline(minimum)
        return lambda qt, block, g: compiled(block, g)

    @intrinsic
    def codes_of_part(typingctx: Any, isa: Any, qt: Any, block: Any, part: Any) -> Any:
        """The 64 codes of a part, a literal."""
        if not isinstance(part, types.IntegerLiteral):
            return None
        emit, p = _BLOCKS[qt.value].emit_codes, part.literal_value

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(sig.args[0].value, builder, args[2], p)

        return simd.I8X64(isa, qt, types.intp, part), codegen

    @intrinsic
    def scales_of(typingctx: Any, qt: Any, block: Any) -> Any:
        """The block's scales."""
        emit = _BLOCKS[qt.value].emit_scales

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(builder, args[1])

        return simd.F32X16(qt, types.intp), codegen

    @intrinsic
    def minima_of(typingctx: Any, qt: Any, block: Any) -> Any:
        """The block's minima of 16 elements; zeros where it has none."""
        emit = _BLOCKS[qt.value].emit_mins

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(builder, args[1]) if emit else ir.Constant(simd.F32X16.ir, None)

        return simd.F32X16(qt, types.intp), codegen

    @choose(_product)
    def _product_of(isa: Any, qt: Any, sums: Any, codes: Any, x: Any) -> Any:
        block = _BLOCKS[qt.value]
        if block.signed:

            def signed(isa: Any, qt: Any, sums: int, codes: Any, x: int) -> Any:
                a = simd.load_i32x16(sums)
                return byte_dots.dot_i8i8_sums(isa, a, codes, simd.load_i8x64(x))

            return signed
        if block.offset == 0:

            def unsigned(isa: Any, qt: Any, sums: int, codes: Any, x: int) -> Any:
                return byte_dots.dot_u8i8(isa, simd.splat_i32x16(0), codes, simd.load_i8x64(x))

            return unsigned
        bits = block.offset.bit_length() - 1

        def above(isa: Any, qt: Any, sums: int, codes: Any, x: int) -> Any:
            start = simd.load_i32x16(sums) << simd.splat_i32x16(bits)
            return byte_dots.dot_u8i8(isa, start, codes, simd.load_i8x64(x))

        return above

    def _add_part(
        isa: Any, qt: Any, acc: Any, f: Any, block: int, x: int, groups: int, part: int
    ) -> Any: ...

    @choose(_add_part)
    def _add_part_of(
        isa: Any, qt: Any, acc: Any, f: Any, block: Any, x: Any, groups: Any, part: Any
    ) -> Any:
        if not isinstance(part, types.IntegerLiteral):
            return None
        p = part.literal_value

        def add_part(
            isa: Any, qt: Any, acc: Any, f: Any, block: int, x: int, groups: int, part: int
        ) -> Any:
            codes = codes_of_part(isa, qt, block, p)
            sums = _product(isa, qt, groups + 64 * p, codes, x + 64 * p)
            return simd.fma_f32x16(spread(qt, f, p), simd.to_f32x16(sums), acc)

        return add_part

    def _unpack_part(isa: Any, qt: Any, s: Any, m: Any, block: int, to: int, part: int) -> None: ...

    @choose(_unpack_part)
    def _unpack_part_of(isa: Any, qt: Any, s: Any, m: Any, block: Any, to: Any, part: Any) -> Any:
        if not isinstance(part, types.IntegerLiteral):
            return None
        p = part.literal_value
        layout = _BLOCKS[qt.value]
        offset = layout.offset

        def plain(isa: Any, qt: Any, s: Any, m: Any, block: int, to: int, part: int) -> None:
            codes = codes_of_part(isa, qt, block, p) - simd.splat_i8x64(offset)
            a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 0)) * splat_scale(qt, s, p, 0)
            b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 1)) * splat_scale(qt, s, p, 1)
            tiles.store_bf16x32(to + 2048 * p, a, b)
            a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 2)) * splat_scale(qt, s, p, 2)
            b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 3)) * splat_scale(qt, s, p, 3)
            tiles.store_bf16x32(to + 2048 * p + 1024, a, b)

        def least(isa: Any, qt: Any, s: Any, m: Any, block: int, to: int, part: int) -> None:
            codes = codes_of_part(isa, qt, block, p)
            a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 0)) * splat_scale(qt, s, p, 0)
            b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 1)) * splat_scale(qt, s, p, 1)
            a = a - splat_minimum(qt, m, p, 0)
            b = b - splat_minimum(qt, m, p, 1)
            tiles.store_bf16x32(to + 2048 * p, a, b)
            a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 2)) * splat_scale(qt, s, p, 2)
            b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 3)) * splat_scale(qt, s, p, 3)
            a = a - splat_minimum(qt, m, p, 2)
            b = b - splat_minimum(qt, m, p, 3)
            tiles.store_bf16x32(to + 2048 * p + 1024, a, b)

        return least if layout.minima else plain

    @intrinsic
    def factors(typingctx: Any, qt: Any, scales: Any, sums: Any) -> Any:
        """What a block's 16 lanes of scales are multiplied by: the activations' scales.

        Under minima of 32: the scaled sums.
        """
        block = _BLOCKS[qt.value]
        count = block.elements // 32

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            vec = simd.Vec("f32", count).ir
            d, s = (builder.load(simd.pointer(builder, a, vec), align=1) for a in args[1:])
            if block.group <= 16:
                lanes = [i // 2 % count for i in range(16)]
            elif block.minima == 32:
                lanes = [*range(8), *range(8, 16)]
            else:
                lanes = [i % 8 % count for i in range(16)]
            return simd.shuffle(builder, d, s, lanes)

        return simd.F32X16(qt, types.intp, types.intp), codegen

    @intrinsic
    def spread(typingctx: Any, qt: Any, vector: Any, part: Any) -> Any:
        """The lane of each group of a part, a literal, in the lanes of that group's sums."""
        if not isinstance(part, types.IntegerLiteral):
            return None
        group = min(_BLOCKS[qt.value].group, 32)
        first = 64 * part.literal_value // group

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            lanes = [first + 4 * i // group for i in range(16)]
            return simd.shuffle(builder, args[1], args[1], lanes)

        return simd.F32X16(qt, simd.F32X16, part), codegen

    def _splat(above: int) -> Callable[..., Any]:
        @intrinsic
        def splat(typingctx: Any, qt: Any, vector: Any, part: Any, quarter: Any) -> Any:
            """The lane of a quarter of a part, both literals, in every lane."""
            literals = types.IntegerLiteral
            if not (isinstance(part, literals) and isinstance(quarter, literals)):
                return None
            block = _BLOCKS[qt.value]
            lane = lane_of(block, part.literal_value, quarter.literal_value)
            lane += above if block.minima == 32 else 0

            def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                return simd.shuffle(builder, args[1], args[1], [lane] * 16)

            return simd.F32X16(qt, simd.F32X16, part, quarter), codegen

        return splat

    splat_scale, splat_minimum = _splat(0), _splat(8)

    @intrinsic
    def upper(typingctx: Any, vector: Any) -> Any:
        """The upper eight lanes and eight zeros."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            zeros = ir.Constant(simd.F32X16.ir, None)
            return simd.shuffle(builder, args[0], zeros, [*range(8, 16), *range(16, 24)])

        return simd.F32X16(simd.F32X16), codegen
