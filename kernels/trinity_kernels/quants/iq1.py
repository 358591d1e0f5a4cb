"""IQ1_S and IQ1_M: rows of 8 from a codebook of -1, 0 and 1, shifted by +1/8 or -1/8.

IQ1_S has a scale of 3 bits and a direction for 32 elements; IQ1_M has a scale for 16 elements and a
direction for each row. An index has 11 bits. Codes are 8 * (grid +- 1/8), so they are integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.quants import codebooks, emit, grid
from trinity_kernels.quants.quant_type import Blocks, Floats, Unused, super_block_type
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.scalars import power_of_two

# qh: for each 32 elements the upper 3 bits of 4 indices, 3 bits of scale, 1 of direction.
_IQ1_S = np.dtype([("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)])
# qh: for each 8 elements the upper 3 bits of the index and 1 of direction. scales: for each 64
# elements 4 scales of 3 bits, and 4 bits of the block's float16 scale, the lowest first.
_IQ1_M = np.dtype([("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)])


def _eighths(index: codebooks.Index, down: codebooks.Index) -> codebooks.Grid:
    """Codes (n, 256) of indices (n, 32) and directions (n, 32); 0 is up."""
    rows = np.int8(8) * codebooks.IQ1[index]
    codes: codebooks.Grid = rows + np.where(down, np.int8(-1), np.int8(1))[:, :, None]
    return codes.reshape(len(codes), -1)


def _decode_iq1_s(blocks: Blocks) -> Floats:
    d, qh = blocks["d"].astype(np.float32)[:, None], blocks["qh"][:, :, None]
    high = (qh >> np.arange(0, 12, 3, dtype=np.uint16) & 7).reshape(-1, 32)
    scales = d * (2 * (qh[:, :, 0] >> 12 & 7) + 1).astype(np.float32)
    down = np.repeat(qh[:, :, 0] >> 15, 4, axis=1)
    codes = _eighths(blocks["qs"] | high << 8, down)
    return codebooks.scaled(scales * np.float32(0.125), codes)


def _scale_of_iq1_m(blocks: Blocks) -> NDArray[np.float16]:
    """A block's float16 scale, of which each word has four bits."""
    quarters = blocks["scales"] >> 12 << np.arange(0, 16, 4, dtype=np.uint16)
    scales: NDArray[np.float16] = np.bitwise_or.reduce(quarters, axis=1).view(np.float16)
    return scales


def _decode_iq1_m(blocks: Blocks) -> Floats:
    nibbles = blocks["qh"][:, :, None] >> np.array([0, 4], np.uint8)
    nibbles = nibbles.reshape(-1, 32).astype(np.uint16)
    codes = _eighths(blocks["qs"] | (nibbles & 7) << 8, nibbles & 8)
    words = blocks["scales"]
    d = _scale_of_iq1_m(blocks)[:, None].astype(np.float32)
    bits = (words[:, :, None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7).reshape(-1, 16)
    scales = d * (2 * bits + 1).astype(np.float32)
    return codebooks.scaled(scales * np.float32(0.125), codes)


def _odd_scale(blocks: Blocks) -> NDArray[np.bool_]:
    """Whether a scale of IQ1_M is infinite, NaN, or larger than in any model."""
    odd: NDArray[np.bool_] = ~(np.abs(_scale_of_iq1_m(blocks)) <= 1024)
    return odd


_ODD = Unused("a scale that is not finite or above 1024", "a finite scale up to 1024", _odd_scale)
TYPES = (
    super_block_type("IQ1_S", _IQ1_S, _decode_iq1_s, 0.6),
    super_block_type("IQ1_M", _IQ1_M, _decode_iq1_m, 0.55, _ODD),
)

# -- how compiled code reads it --------------------------------------------------------------------

# Codes are 8 * value + 1 or - 1, plus the offset.
_OFFSET = 16


def _code_iq1_s(block: int, e: int) -> Any:
    word = int(memory.get_u16(block + 34 + e // 32 * 2))
    row = int(memory.get_u8(block + 2 + e // 8)) | (word >> (e % 32 // 8 * 3) & 7) * 256
    return _OFFSET + 8 * int(codebooks.IQ1[row, e % 8]) + 1 - 2 * (word >> 15)


def _scale_iq1_s(block: int, g: int) -> Any:
    odd = 2 * (int(memory.get_u16(block + 34 + 2 * g)) >> 12 & 7) + 1
    return np.float32(memory.get_f16(block) * np.float32(odd * 0.125))


def _code_iq1_m(block: int, e: int) -> Any:
    bits = int(memory.get_u8(block + 32 + e // 16)) >> (e // 8 % 2 * 4) & 15
    row = int(memory.get_u8(block + e // 8)) | (bits & 7) * 256
    return _OFFSET + 8 * int(codebooks.IQ1[row, e % 8]) + 1 - 2 * (bits >> 3)


def _scale_iq1_m(block: int, g: int) -> Any:
    odd = 2 * (int(memory.get_u16(block + 48 + g // 4 * 2)) >> (g % 4 * 3) & 7) + 1
    bits = 0
    for quarter in range(4):
        bits |= (int(memory.get_u16(block + 48 + 2 * quarter)) >> 12) << (4 * quarter)
    return np.float32(_float_of_half(bits) * np.float32(odd * 0.125))


@inline
def _float_of_half(bits: int) -> Any:
    exponent, fraction = bits >> 10 & 31, bits & 1023
    if exponent == 31:
        magnitude = np.inf if fraction == 0 else np.nan
    elif exponent == 0:
        magnitude = fraction * 2.0**-24
    else:
        magnitude = (1024 + fraction) * power_of_two(np.float32(exponent - 25))
    return np.float32(-magnitude if bits >> 15 else magnitude)


def _emit_rows(level: str, builder: Any, index: Any, word: Any, bits: Sequence[int]) -> Any:
    """The codes of 8 rows, shifted down if the row's bit of an i32 is set, else up."""
    up = np.int8(8) * codebooks.IQ1 + np.int8(_OFFSET + 1)
    found = grid.rows(level, builder, up, index)
    # Subtract 2 from all 8 bytes at once; none of them is smaller.
    wide = builder.bitcast(found, emit.vector(simd.I64, 8))
    own = builder.bitcast(emit.splat(builder, word, 16), wide.type)
    own = emit.masked(builder, own, [1 << bit for bit in bits])
    down = builder.icmp_unsigned("!=", own, ir.Constant(own.type, None))
    lower = builder.sub(wide, emit.constant(wide.type, [0x0202020202020202] * 8))
    return builder.bitcast(builder.select(down, lower, wide), found.type)


def _emit_iq1_s(level: str, builder: Any, block: Any, part: int) -> Any:
    index = grid.low_bytes(level, builder, block, range(2 + 8 * part, 10 + 8 * part))
    index = grid.with_high_bits(builder, index, block, 34 + 4 * part, [0, 3, 6, 9] * 2, 3)
    word = emit.load(builder, block, 34 + 4 * part, simd.I32)
    return _emit_rows(level, builder, index, word, [15] * 4 + [31] * 4)


def _emit_scales_iq1_s(builder: Any, block: Any) -> Any:
    words = emit.load(builder, block, 34, emit.vector(simd.I16, 8))
    bits = emit.masked(builder, grid.spread(builder, words, range(8), [12] * 8), 7)
    return grid.odd_scales(builder, bits, _eighth(builder, emit.half(builder, block, 0)))


def _emit_iq1_m(level: str, builder: Any, block: Any, part: int) -> Any:
    index = grid.low_bytes(level, builder, block, range(8 * part, 8 * part + 8))
    index = grid.with_high_bits(builder, index, block, 32 + 4 * part, [0, 4, 8, 12] * 2, 3)
    word = emit.load(builder, block, 32 + 4 * part, simd.I32)
    return _emit_rows(level, builder, index, word, range(3, 32, 4))


def _emit_scales_iq1_m(builder: Any, block: Any) -> Any:
    words = emit.load(builder, block, 48, emit.vector(simd.I16, 4))
    bits = grid.spread(builder, words, [i // 4 for i in range(16)], [0, 3, 6, 9] * 4)
    whole = emit.load(builder, block, 48, simd.I64)
    quarters = [
        builder.and_(builder.lshr(whole, simd.I64(12 * i + 12)), simd.I64(15 << 4 * i))
        for i in range(4)
    ]
    d = quarters[0]
    for quarter in quarters[1:]:
        d = builder.or_(d, quarter)
    d = builder.fpext(builder.bitcast(builder.trunc(d, simd.I16), ir.HalfType()), simd.F32)
    return grid.odd_scales(builder, emit.masked(builder, bits, 7), _eighth(builder, d))


def _eighth(builder: Any, d: Any) -> Any:
    return builder.fmul(d, simd.F32(0.125))


READERS = {
    name: SuperBlock(
        nbytes=nbytes, emit_codes=emit_codes, code=code, emit_scales=emit_scales, scale=scale,
        group=group, offset=_OFFSET,
    )
    for name, nbytes, group, emit_codes, code, emit_scales, scale in (
        ("IQ1_S", 50, 32, _emit_iq1_s, _code_iq1_s, _emit_scales_iq1_s, _scale_iq1_s),
        ("IQ1_M", 56, 16, _emit_iq1_m, _code_iq1_m, _emit_scales_iq1_m, _scale_iq1_m),
    )
}  # fmt: skip
