"""Packing of 16 rows of blocks into a panel of the q8 and q19 forms (panel_layout.py).

Meanwhile the bytes at ``ahead`` are prefetched, as many as are packed.

VNNI on x86 multiplies unsigned codes, so 128 is added to signed ones. Minima compensate the offset
of codes; for the q8 form panel_wide.py compensates it without minima.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd, types
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.columns import (
    store_bytes,
    store_code_columns,
    store_nibbles,
    store_scale_columns,
)
from trinity_kernels.ops.matmul.dot_affine4 import in_order
from trinity_kernels.ops.matmul.panel_layout import q8_scales_at
from trinity_kernels.ops.matmul.panel_pairs import transpose_codes
from trinity_kernels.ops.matmul.prefetch import prefetch_bytes
from trinity_kernels.ops.matmul.readers import (
    bytes_at,
    codes_of_pair,
    codes_of_part,
    elements,
    group,
    minima,
    minima_of,
    minima_of_rows,
    minimum_at,
    nbytes,
    nibbles_at,
    offset,
    reader_of,
    scales_of,
    scales_of_rows,
    signed,
)
from trinity_kernels.quants import emit
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.tags import chosen, constant


@constant
def is_flipped(isa: Any, qt: Any) -> bool:
    """Whether 128 is added to signed codes."""
    return bool(signed(qt)) and isa.value == "avx512vnni"


@constant
def codes_above(isa: Any, qt: Any) -> int:
    """The offset of a panel's codes from the values."""
    return 128 if is_flipped(isa, qt) else offset(qt)


@chosen
def _flip(isa: Any, qt: Any, codes: Any) -> Any:
    if is_flipped(isa, qt):
        return lambda isa, qt, codes: codes ^ simd.splat_i8x64(128)
    return lambda isa, qt, codes: codes


@instructions("i8x64", "tag", "intp", "intp")
def _codes_in_order(builder: Any, qt: Any, block: Any, second: Any) -> Any:
    """64 codes of Affine4: those at ``block``, or of 32 at ``block`` and 32 at ``second``."""
    reader = reader_of(qt.value, Affine4)
    start = reader.codes_at
    if reader.elements == 64:
        return in_order(builder, emit.load_bytes(builder, block, start, 32))
    low = emit.load_bytes(builder, block, start, 16)
    there = builder.icmp_signed("!=", second, simd.I64(0))
    # Without a second block the first is read again, and its codes are ignored.
    high = emit.load_bytes(builder, builder.select(there, second, block), start, 16)
    high = builder.select(there, high, ir.Constant(high.type, None))
    return in_order(builder, simd.shuffle(builder, low, high, list(range(32))))


@inline
def pack_affine4(isa: Any, qt: Any, w: int, stride: int, k: int, to: int, ahead: int) -> None:
    """Pack 16 rows of Affine4, ``stride`` bytes apart, into a panel at ``to``."""
    size, width = nbytes(qt), elements(qt)
    scales = to + q8_scales_at(k)
    scratch = scales + 256 * ((k + 63) // 64)
    for part in range((k + 63) // 64):
        block = w + part * (64 // width) * size
        prefetch_bytes(ahead + 16 * part * (64 // width) * size, 16 * size * (64 // width))
        second = 0
        if 64 * part + width < k:
            second = block + size
        for row in range(16):
            other = second
            if second != 0:
                other = second + row * stride
            simd.store_i8x64(scratch + 64 * row, _codes_in_order(qt, block + row * stride, other))
        transpose_codes(isa, scratch, to + 1024 * part)
    for b in range(k // 32):
        column = w + 32 * b // width * size
        simd.store_f32x16(scales + 128 * b, scales_of_rows(qt, column, stride))
        simd.store_f32x16(scales + 128 * b + 64, minima_of_rows(qt, column, stride))


@inline
def _pack_pairs(isa: Any, qt: Any, w: int, stride: int, k: int, to: int, ahead: int) -> None:
    """Pack the codes of 16 rows of Block32, two blocks at a time."""
    size = nbytes(qt)
    blocks = k // 32
    pairs = (blocks + 1) // 2
    scratch = to + q8_scales_at(k) + 256 * pairs
    for pair in range(pairs):
        prefetch_bytes(ahead + 32 * size * pair, 32 * size)
        first = w + 2 * pair * size
        second = first + size
        if 2 * pair + 1 == blocks:
            second = 0
        for row in range(16):
            other = second
            if second != 0:
                other = second + row * stride
            codes = _flip(isa, qt, codes_of_pair(isa, qt, first + row * stride, other))
            simd.store_i8x64(scratch + 64 * row, codes)
        transpose_codes(isa, scratch, to + 1024 * pair)


@inline
def _pack_nibbles(isa: Any, qt: Any, w: int, stride: int, k: int, to: int, ahead: int) -> None:
    """As _pack_pairs, for codes that are nibbles (``nibbles_at``)."""
    size = nbytes(qt)
    for b in range(k // 32):
        prefetch_bytes(ahead + 16 * size * b, 16 * size)
        line = to + 512 * b
        store_nibbles(w + b * size + nibbles_at(qt), stride, line, line + 256)


@chosen
def _pack_bytes(isa: Any, qt: Any, w: Any, stride: Any, k: Any, to: Any, ahead: Any) -> Any:
    """As _pack_pairs, for codes that are bytes (``bytes_at``)."""
    flip = 128 if is_flipped(isa, qt) else 0

    def pack(isa: Any, qt: Any, w: int, stride: int, k: int, to: int, ahead: int) -> None:
        size = nbytes(qt)
        for b in range(k // 32):
            prefetch_bytes(ahead + 16 * size * b, 16 * size)
            store_bytes(w + b * size + bytes_at(qt), stride, to + 512 * b, flip)

    return pack


@chosen
def _pack_codes(isa: Any, qt: Any, w: Any, stride: Any, k: Any, to: Any, ahead: Any) -> Any:
    """Pack the codes of 16 rows of Block32, ``stride`` bytes apart."""
    pack = _pack_pairs
    if isa.value != "neon-i8mm" and nibbles_at(qt):
        pack = _pack_nibbles
    elif isa.value != "neon-i8mm" and bytes_at(qt):
        pack = _pack_bytes
    return lambda isa, qt, w, stride, k, to, ahead: pack(isa, qt, w, stride, k, to, ahead)


@inline
def pack_block32(isa: Any, qt: Any, w: int, stride: int, k: int, to: int, ahead: int) -> None:
    """Pack 16 rows of Block32, ``stride`` bytes apart, into a panel at ``to``."""
    size = nbytes(qt)
    scales = to + q8_scales_at(k)
    above = simd.splat_f32x16(np.float32(-codes_above(isa, qt)))
    _pack_codes(isa, qt, w, stride, k, to, ahead)
    for b in range(k // 32):
        column = w + b * size
        d = scales_of_rows(qt, column, stride)
        m = d * above
        if minimum_at(qt) != 0:
            m = minima_of_rows(qt, column, stride)
        simd.store_f32x16(scales + 128 * b, d)
        simd.store_f32x16(scales + 128 * b + 64, m)


@chosen
def _transpose_part(
    isa: Any, qt: Any, w: Any, stride: Any, part: Any, scratch: Any, to: Any
) -> Any:
    if not isinstance(part, types.IntegerLiteral):
        return None
    p = part.literal_value

    def transpose(isa: Any, qt: Any, w: int, stride: int, part: int, scratch: int, to: int) -> None:
        for row in range(16):
            codes = _flip(isa, qt, codes_of_part(isa, qt, w + row * stride, p))
            simd.store_i8x64(scratch + 64 * row, codes)
        transpose_codes(isa, scratch, to + 1024 * p)

    return transpose


@chosen
def _store_codes(isa: Any, qt: Any, w: Any, stride: Any, scratch: Any, to: Any) -> Any:
    """Write the codes of a superblock of 16 rows as lines."""
    reader = reader_of(qt.value, SuperBlock)
    if isa.value != "neon-i8mm" and reader.emit_code_columns:
        return lambda isa, qt, w, stride, scratch, to: store_code_columns(qt, w, stride, to)

    def store(isa: Any, qt: Any, w: int, stride: int, scratch: int, to: int) -> None:
        width = elements(qt)
        _transpose_part(isa, qt, w, stride, 0, scratch, to)
        if width > 64:
            _transpose_part(isa, qt, w, stride, 1, scratch, to)
        if width > 128:
            _transpose_part(isa, qt, w, stride, 2, scratch, to)
            _transpose_part(isa, qt, w, stride, 3, scratch, to)

    return store


@chosen
def _store_scales(qt: Any, w: Any, stride: Any, scratch: Any, to: Any) -> Any:
    """Write the scales of a superblock of 16 rows as 16 lines; 1024 bytes of scratch."""
    if reader_of(qt.value, SuperBlock).emit_scale_columns:
        return lambda qt, w, stride, scratch, to: store_scale_columns(qt, w, stride, to)

    def store(qt: Any, w: int, stride: int, scratch: int, to: int) -> None:
        for row in range(16):
            simd.store_f32x16(scratch + 64 * row, scales_of(qt, w + row * stride))
        tiles.transpose_16x16(scratch, to, 64)

    return store


@inline
def pack_superblock(isa: Any, qt: Any, w: int, stride: int, k: int, to: int, ahead: int) -> None:
    """Pack 16 rows of superblocks, ``stride`` bytes apart, into a panel at ``to``."""
    size, width = nbytes(qt), elements(qt)
    scales = to + q8_scales_at(k)
    lines = 4 if group(qt) == 16 else 2
    scratch = scales + 64 * lines * (k // 32)
    above = simd.splat_f32x16(np.float32(-codes_above(isa, qt)))
    zero = simd.splat_f32x16(np.float32(0))
    for b in range(k // width):
        prefetch_bytes(ahead + 16 * size * b, 16 * size)
        block = w + b * size
        _store_codes(isa, qt, block, stride, scratch, to + 16 * width * b)
        _store_scales(qt, block, stride, scratch, scratch + 1024)
        if minima(qt) == 16:
            for row in range(16):
                simd.store_f32x16(scratch + 64 * row, minima_of(qt, block + row * stride))
            tiles.transpose_16x16(scratch, scratch + 2048, 64)
        for j in range(width // 32):
            line = scales + 64 * lines * (b * (width // 32) + j)
            for half in range(lines // 2):
                lane = j if group(qt) == 32 else (2 * j + half if group(qt) == 16 else 0)
                d = simd.load_f32x16(scratch + 1024 + 64 * lane)
                m = d * above
                if minima(qt) == 32:
                    m = simd.load_f32x16(scratch + 1024 + 64 * (8 + lane))
                elif minima(qt) == 16:
                    m = zero - simd.load_f32x16(scratch + 2048 + 64 * lane)
                simd.store_f32x16(line + 64 * half, d)
                simd.store_f32x16(line + 64 * (lines // 2 + half), m)
