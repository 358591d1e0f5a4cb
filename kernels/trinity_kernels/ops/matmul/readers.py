"""What a type's reader (trinity_kernels.quants) says, by the type's tag, for compiled code.

Numbers are constants of the code; what a reader gives as functions is inlined, what it gives as
emitters becomes an intrinsic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import choose, inline, intrinsic
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants import READERS
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.tags import constant

R = TypeVar("R")


def types_of(*kinds: type) -> frozenset[str]:
    """The types whose readers are of some kinds."""
    return frozenset(name for name, reader in READERS.items() if isinstance(reader, kinds))


def reader_of(quant: str, kind: type[R]) -> R:
    """A type's reader, which is of a kind."""
    reader = READERS[quant]
    assert isinstance(reader, kind), quant
    return reader


def _reader(qt: Any) -> Any:
    return READERS[qt.value]


def _number(name: str) -> Callable[[Any], int]:
    # 0 where a type has no such number: code for it is compiled and thrown away.
    @constant
    def number(qt: Any) -> int:
        return int(getattr(_reader(qt), name, 0))

    return number


# Bytes of a block; of Ternary those of 256 codes.
nbytes = _number("nbytes")
# Block32 and SuperBlock.
offset, signed = _number("offset"), _number("signed")
# Block32; of Affine4 ``minimum_at`` and ``top``, too.
minimum_at, bytes_at, nibbles_at = _number("minimum_at"), _number("bytes_at"), _number("nibbles_at")
top = _number("top")


@constant
def is_fine(qt: Any) -> bool:
    """Whether activations have 19 bits, the q19 form."""
    return bool(_reader(qt).form == "q19")


# SuperBlock; of Plain and Affine4 ``elements``, too.
elements, group, minima = _number("elements"), _number("group"), _number("minima")
# Ternary; 0 where 256 codes have no scale, and of other types.
scale_at = _number("scale_at")


# -- one by one, for the portable level ------------------------------------------------------------


def code(qt: Any, block: int, e: int) -> Any:
    """The code of element ``e`` of a block."""
    return _reader(qt).code(block, e)


@choose(code)
def _code_of(qt: Any, block: Any, e: Any) -> Any:
    read = inline(_reader(qt).code)
    return lambda qt, block, e: read(block, e)


_SCALES = {
    "f16": memory.get_f16, "bf16": memory.get_bf16, "f32": memory.get_f32, "e8m0": memory.get_e8m0,
}  # fmt: skip


def scale(qt: Any, block: int, g: int) -> Any:
    """The scale of group ``g`` of a block; those of Block32 and Affine4 have one."""
    reader = _reader(qt)
    if isinstance(reader, Block32 | Affine4):
        return _SCALES[reader.scales](block)
    return reader.scale(block, g)


@choose(scale)
def _scale_of(qt: Any, block: Any, g: Any) -> Any:
    reader = _reader(qt)
    if isinstance(reader, Block32 | Affine4):
        get = _SCALES[reader.scales]
        return lambda qt, block, g: get(block)
    read = inline(reader.scale)
    return lambda qt, block, g: read(block, g)


def minimum(qt: Any, block: int, g: int) -> Any:
    """The minimum of group ``g`` of a block, as for ``scale``; 0 where it has none."""
    reader = _reader(qt)
    if isinstance(reader, Block32 | Affine4):
        at = reader.minimum_at
        return _SCALES[reader.scales](block + at) if at else np.float32(0)
    return reader.minimum(block, g) if reader.minimum else np.float32(0)


@choose(minimum)
def _minimum_of(qt: Any, block: Any, g: Any) -> Any:
    reader = _reader(qt)
    if isinstance(reader, Block32 | Affine4) and reader.minimum_at:
        get, at = _SCALES[reader.scales], reader.minimum_at
        return lambda qt, block, g: get(block + at)
    if getattr(reader, "minimum", None) is None:
        return lambda qt, block, g: np.float32(0)
    read = inline(reader.minimum)
    return lambda qt, block, g: read(block, g)


def get(qt: Any, row: int, i: int) -> Any:
    """Plain number ``i`` of a row as float32."""
    return _reader(qt).get(row, i)


@choose(get)
def _get_of(qt: Any, row: Any, i: Any) -> Any:
    read = inline(_reader(qt).get)
    return lambda qt, row, i: read(row, i)


# -- as vectors ------------------------------------------------------------------------------------

if not jit_disabled():
    from llvmlite import ir
    from numba.core import types

    from trinity_kernels import simd
    from trinity_kernels.ops.matmul import strided

    def codes_of_pair(isa: Any, qt: Any, first: int, second: int) -> Any:
        """Block32's ``codes``."""

    @choose(codes_of_pair)
    def _codes_of_pair(isa: Any, qt: Any, first: Any, second: Any) -> Any:
        read = inline(_reader(qt).codes)
        return lambda isa, qt, first, second: read(isa, first, second)

    def scales_of_16(qt: Any, block: int, stride: int) -> Any:
        """The scales of 16 blocks, ``stride`` bytes apart."""

    @choose(scales_of_16)
    def _scales_of_16(qt: Any, block: Any, stride: Any) -> Any:
        load = _scale_loads(_reader(qt))[0]
        return lambda qt, block, stride: load(block, stride)

    def scales_of_few(qt: Any, block: int, stride: int, count: int) -> Any:
        """As scales_of_16, of fewer; the other lanes are of no use."""

    @choose(scales_of_few)
    def _scales_of_few(qt: Any, block: Any, stride: Any, count: Any) -> Any:
        load = _scale_loads(_reader(qt))[1]
        return lambda qt, block, stride, count: load(block, stride, count)

    def minima_of_16(qt: Any, block: int, stride: int) -> Any:
        """The minima of 16 blocks, ``stride`` bytes apart; zeros of a type without."""

    @choose(minima_of_16)
    def _minima_of_16(qt: Any, block: Any, stride: Any) -> Any:
        if _reader(qt).minimum_at == 0:
            return lambda qt, block, stride: simd.splat_f32x16(np.float32(0))
        (load, _), at = _minimum_loads(_reader(qt))
        return lambda qt, block, stride: load(block + at, stride)

    def minima_of_few(qt: Any, block: int, stride: int, count: int) -> Any:
        """As minima_of_16, of fewer; the other lanes are of no use."""

    @choose(minima_of_few)
    def _minima_of_few(qt: Any, block: Any, stride: Any, count: Any) -> Any:
        if _reader(qt).minimum_at == 0:
            return lambda qt, block, stride, count: simd.splat_f32x16(np.float32(0))
        (_, load), at = _minimum_loads(_reader(qt))
        return lambda qt, block, stride, count: load(block + at, stride, count)

    def _scale_loads(reader: Block32 | Affine4) -> Any:
        """The loads of 16 scales and of few."""
        if reader.minimum_at == 2:
            return strided.LOADS_OF_TWO[reader.scales][0]
        return strided.LOADS[reader.scales]

    def _minimum_loads(reader: Block32 | Affine4) -> Any:
        """The loads of 16 minima and of few, and from which byte of a block on."""
        if reader.minimum_at == 2:
            return strided.LOADS_OF_TWO[reader.scales][1], 0
        return strided.LOADS[reader.scales], reader.minimum_at

    @intrinsic
    def codes_of_part(typingctx: Any, isa: Any, qt: Any, block: Any, part: Any) -> Any:
        """The 64 codes of a superblock's part, a literal."""
        if not isinstance(part, types.IntegerLiteral):
            return None
        emit, p = _reader(qt).emit_codes, part.literal_value

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(sig.args[0].value, builder, args[2], p)

        return simd.I8X64(isa, qt, types.intp, part), codegen

    @intrinsic
    def scales_of(typingctx: Any, qt: Any, block: Any) -> Any:
        """A superblock's 16 lanes of scales."""
        emit = _reader(qt).emit_scales

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(builder, args[1])

        return simd.F32X16(qt, types.intp), codegen

    @intrinsic
    def minima_of(typingctx: Any, qt: Any, block: Any) -> Any:
        """A superblock's minima of 16 elements each; zeros where it has none."""
        emit = _reader(qt).emit_minima

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(builder, args[1]) if emit else ir.Constant(simd.F32X16.ir, None)

        return simd.F32X16(qt, types.intp), codegen

    def ternary_codes(qt: Any, block: int, left: int) -> Any:
        """Ternary's ``codes``."""

    @choose(ternary_codes)
    def _ternary_codes(qt: Any, block: Any, left: Any) -> Any:
        read = inline(_reader(qt).codes)
        return lambda qt, block, left: read(block, left)

    def ternary_packed(qt: Any, block: int, left: int) -> Any:
        """Ternary's ``packed``."""

    @choose(ternary_packed)
    def _ternary_packed(qt: Any, block: Any, left: Any) -> Any:
        read = inline(_reader(qt).packed)
        return lambda qt, block, left: read(block, left)

    @intrinsic
    def load(typingctx: Any, qt: Any, row: Any, n: Any) -> Any:
        """Plain numbers 16 ``n`` to 16 ``n`` + 15 of a row."""
        emit = _reader(qt).emit_load

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(builder, args[1], args[2])

        return simd.F32X16(qt, types.intp, types.intp), codegen

    def load_tail(qt: Any, row: int, n: int, count: int) -> Any:
        """As ``load``, of ``count`` numbers, fewer than 16, and zeros behind; reads nothing beyond.

        Of types with blocks, whose rows end with whole ones, zeros alone.
        """

    @choose(load_tail)
    def _load_tail(qt: Any, row: Any, n: Any, count: Any) -> Any:
        reader = _reader(qt)
        if not reader.tail:
            return lambda qt, row, n, count: simd.splat_f32x16(np.float32(0))
        read, size = getattr(simd, f"load_tail_{reader.tail}"), 16 * reader.nbytes
        return lambda qt, row, n, count: read(row + size * n, count)
