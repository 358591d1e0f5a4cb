"""Unpacking of rows of weights, for tiles and for ternary panels.

``unpack_row(isa, qt, w, to, k)`` writes a row in pieces of 64 bytes, the row's lines of tiles, 1024
bytes apart. A piece has 64 ternary values as int8 in the order of the ternary form (values + 1 on
levels without tiles, for panel_ternary.py), or 32 bfloat16. Types of more than 8 significant bits
are split: each piece of bfloat16 is followed by the piece of its rests. A row may be unpacked in
parts of 256 weights.

``unpack_16_rows(isa, qt, w, stride, to, k, ahead, scratch)`` unpacks 16 rows, ``stride`` bytes
apart, with 128 bytes of scratch. At ``ahead`` it prefetches as many bytes as it reads, the weights
that are multiplied next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels.deferred import simd
from trinity_kernels.ops.matmul.prefetch import prefetch_bytes
from trinity_kernels.ops.matmul.readers import load, load_tail, nbytes, ternary_codes
from trinity_kernels.ops.matmul.unpack_block32 import unpack_block32, unpack_nibbles
from trinity_kernels.ops.matmul.unpack_superblock import unpack_superblock
from trinity_kernels.quants import READERS, BlockReader
from trinity_kernels.quants.floats import Plain
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.quants.ternary import Ternary
from trinity_kernels.tags import chosen, constant


@constant
def bytes_of_256(qt: Any) -> int:
    """Bytes of 256 weights of a row."""
    reader = READERS[qt.value]
    return 256 // reader.elements * reader.nbytes


@constant
def ternary_offset(isa: Any) -> int:
    """The difference between the codes 0, 1, 2 and the unpacked ternary values."""
    return 1 if isa.value == "amx" else 0


@chosen
def unpack_row(isa: Any, qt: Any, w: Any, to: Any, k: Any) -> Any:
    """See the module."""
    return _ROWS[type(READERS[qt.value])]


@chosen
def unpack_16_rows(
    isa: Any, qt: Any, w: Any, stride: Any, to: Any, k: Any, ahead: Any, scratch: Any
) -> Any:
    """See the module."""
    reader = READERS[qt.value]
    if reader.nibbles_at:
        return unpack_nibbles
    return _row_by_row if type(reader) in _ROWS else unpack_block32


def _row_by_row(
    isa: Any, qt: Any, w: int, stride: int, to: int, k: int, ahead: int, scratch: int
) -> None:
    size = bytes_of_256(qt) * k // 256
    for row in range(16):
        prefetch_bytes(ahead + row * size, size)
        unpack_row(isa, qt, w + row * stride, to + 64 * row, k)


def _ternary(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    below = simd.splat_i8x64(ternary_offset(isa))
    for b in range((k + 255) // 256):
        first, second, third, fourth = ternary_codes(qt, w + nbytes(qt) * b, k - 256 * b)
        line = to + 4096 * b
        simd.store_i8x64(line, first - below)
        simd.store_i8x64(line + 1024, second - below)
        simd.store_i8x64(line + 2048, third - below)
        simd.store_i8x64(line + 3072, fourth - below)


def _plain(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """Unpack BF16 as it is, and F16 (11 significant bits) as the sum of two bfloat16."""
    for i in range(k // 32):
        to = _plain_line(qt, load(qt, w, 2 * i), load(qt, w, 2 * i + 1), to)
    left = k % 32
    if left > 0:
        n = k // 32 * 2
        zeros = simd.splat_f32x16(np.float32(0))
        if left < 16:
            _plain_line(qt, load_tail(qt, w, n, left), zeros, to)
        else:
            _plain_line(qt, load(qt, w, n), load_tail(qt, w, n + 1, left - 16), to)


@chosen
def _plain_line(qt: Any, low: Any, high: Any, to: Any) -> Any:
    def short(qt: Any, low: Any, high: Any, to: int) -> int:
        tiles.store_bf16x32(to, low, high)
        return to + 1024

    def split(qt: Any, low: Any, high: Any, to: int) -> int:
        # Truncated, not rounded, because the rest of F16 then has three bits.
        first = tiles.cut_bf16(low)
        second = tiles.cut_bf16(high)
        tiles.store_bf16x32(to, first, second)
        tiles.store_bf16x32(to + 1024, low - first, high - second)
        return to + 2048

    return split if READERS[qt.value].bfloat16s == 2 else short


# The functions that unpack one row; Block32 unpacks 16 rows together.
_ROWS: dict[type[BlockReader], Any] = {
    Plain: _plain,
    SuperBlock: unpack_superblock,
    Ternary: _ternary,
}
