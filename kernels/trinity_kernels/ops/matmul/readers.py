"""The readers of quantization types (quants/reader.py), for compiled code, by a type's tag.

A reader's numbers are constants of the code, its functions are inlined, and its ``emit_`` functions
become intrinsics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul import strided
from trinity_kernels.quants import READERS
from trinity_kernels.quants.one_scale import OneScale
from trinity_kernels.tags import chosen, constant

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
    @constant
    def number(qt: Any) -> int:
        return int(getattr(_reader(qt), name))

    return number


# The fields of BlockReader as constants of compiled code.
nbytes, elements, group = _number("nbytes"), _number("elements"), _number("group")
offset, signed, top = _number("offset"), _number("signed"), _number("top")
minimum_at, minima, scale_at = _number("minimum_at"), _number("minima"), _number("scale_at")
bytes_at, nibbles_at = _number("bytes_at"), _number("nibbles_at")


@constant
def is_fine(qt: Any) -> bool:
    """Whether activations have 19 bits, the q19 form."""
    return bool(_reader(qt).form == "q19")


@constant
def is_ternary(qt: Any) -> bool:
    """Whether codes are -1, 0 and 1, and activations have the ternary form."""
    return bool(_reader(qt).form == "ternary")


# -- one by one, for the portable level ------------------------------------------------------------


@chosen
def code(qt: Any, block: Any, e: Any) -> Any:
    """The code of element ``e`` of a block."""
    read = inline(_reader(qt).code)
    return lambda qt, block, e: read(block, e)


@chosen
def scale(qt: Any, block: Any, g: Any) -> Any:
    """The scale of group ``g`` of a block."""
    read = inline(_reader(qt).scale)
    return lambda qt, block, g: read(block, g)


@chosen
def minimum(qt: Any, block: Any, g: Any) -> Any:
    """The minimum of group ``g`` of a block; 0 if the type has no minima."""
    minimum = _reader(qt).minimum
    if minimum is None:
        return lambda qt, block, g: np.float32(0)
    read = inline(minimum)
    return lambda qt, block, g: read(block, g)


@chosen
def get(qt: Any, row: Any, i: Any) -> Any:
    """Plain number ``i`` of a row as float32."""
    read = inline(_reader(qt).get)
    return lambda qt, row, i: read(row, i)


# -- as vectors ------------------------------------------------------------------------------------


@chosen
def codes_of_pair(isa: Any, qt: Any, first: Any, second: Any) -> Any:
    """Block32's ``codes``."""
    read = inline(_reader(qt).codes)
    return lambda isa, qt, first, second: read(isa, first, second)


@chosen
def scales_of_16(qt: Any, block: Any, stride: Any) -> Any:
    """The scales of 16 blocks, ``stride`` bytes apart."""
    load = _scale_loads(_reader(qt))[0]
    return lambda qt, block, stride: load(block, stride)


@chosen
def scales_of_few(qt: Any, block: Any, stride: Any, count: Any) -> Any:
    """As scales_of_16, for fewer; the other lanes have no meaning."""
    load = _scale_loads(_reader(qt))[1]
    return lambda qt, block, stride, count: load(block, stride, count)


@chosen
def minima_of_16(qt: Any, block: Any, stride: Any) -> Any:
    """The minima of 16 blocks, ``stride`` bytes apart; zeros if the type has no minima."""
    if _reader(qt).minimum_at == 0:
        return lambda qt, block, stride: simd.splat_f32x16(np.float32(0))
    (load, _), at = _minimum_loads(_reader(qt))
    return lambda qt, block, stride: load(block + at, stride)


@chosen
def minima_of_few(qt: Any, block: Any, stride: Any, count: Any) -> Any:
    """As minima_of_16, for fewer; the other lanes have no meaning."""
    if _reader(qt).minimum_at == 0:
        return lambda qt, block, stride, count: simd.splat_f32x16(np.float32(0))
    (_, load), at = _minimum_loads(_reader(qt))
    return lambda qt, block, stride, count: load(block + at, stride, count)


@chosen
def scales_of_rows(qt: Any, block: Any, stride: Any) -> Any:
    """As scales_of_16, for blocks of 16 rows."""
    load = strided.ROW_LOADS[_reader(qt).scales]
    return lambda qt, block, stride: load(block, stride)


@chosen
def minima_of_rows(qt: Any, block: Any, stride: Any) -> Any:
    """As minima_of_16, for blocks of 16 rows."""
    reader = _reader(qt)
    if reader.minimum_at == 0:
        return lambda qt, block, stride: simd.splat_f32x16(np.float32(0))
    load, at = strided.ROW_LOADS[reader.scales], reader.minimum_at
    if at == 2:
        load, at = strided.SECOND_ROW_LOADS[reader.scales], 0
    return lambda qt, block, stride: load(block + at, stride)


def _scale_loads(reader: OneScale) -> Any:
    """The functions that load 16 scales, and fewer."""
    if reader.minimum_at == 2:
        return strided.LOADS_OF_TWO[reader.scales][0]
    return strided.LOADS[reader.scales]


def _minimum_loads(reader: OneScale) -> Any:
    """The functions that load 16 minima, and fewer, and the byte of a block to load from."""
    if reader.minimum_at == 2:
        return strided.LOADS_OF_TWO[reader.scales][1], 0
    return strided.LOADS[reader.scales], reader.minimum_at


@instructions("i8x64", "tag", "tag", "intp", "literal")
def codes_of_part(builder: Any, isa: Any, qt: Any, block: Any, part: Any) -> Any:
    """The 64 codes of a superblock's part; ``part`` is a literal."""
    emit, p = _reader(qt).emit_codes, part
    return emit(isa.value, builder, block, p)


@instructions("f32x16", "tag", "intp")
def scales_of(builder: Any, qt: Any, block: Any) -> Any:
    """A superblock's 16 lanes of scales."""
    emit = _reader(qt).emit_scales
    return emit(builder, block)


@instructions("f32x16", "tag", "intp")
def minima_of(builder: Any, qt: Any, block: Any) -> Any:
    """A superblock's minima of 16 elements each; zeros if it has none."""
    emit = _reader(qt).emit_minima
    return emit(builder, block) if emit else ir.Constant(simd.F32X16.ir, None)


@chosen
def ternary_codes(qt: Any, block: Any, left: Any) -> Any:
    """Ternary's ``codes``."""
    read = inline(_reader(qt).codes)
    return lambda qt, block, left: read(block, left)


@chosen
def ternary_packed(qt: Any, block: Any, left: Any) -> Any:
    """Ternary's ``packed``."""
    read = inline(_reader(qt).packed)
    return lambda qt, block, left: read(block, left)


@instructions("f32x16", "tag", "intp", "intp")
def load(builder: Any, qt: Any, row: Any, n: Any) -> Any:
    """Plain numbers 16 ``n`` to 16 ``n`` + 15 of a row."""
    emit = _reader(qt).emit_load
    return emit(builder, row, n)


@chosen
def load_tail(qt: Any, row: Any, n: Any, count: Any) -> Any:
    """As ``load``, for ``count`` < 16 numbers, followed by zeros; reads nothing beyond them.

    For types with blocks, whose rows end with whole blocks, it returns zeros.
    """
    reader = _reader(qt)
    if not reader.tail:
        return lambda qt, row, n, count: simd.splat_f32x16(np.float32(0))
    read, size = getattr(simd, f"load_tail_{reader.tail}"), 16 * reader.nbytes
    return lambda qt, row, n, count: read(row + size * n, count)
