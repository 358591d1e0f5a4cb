"""IQ2_XXS, IQ2_XS and IQ2_S: rows of 8 from a codebook of 8, 25 and 43, with signs.

IQ2_XXS has indices of 8 bits and a scale for 32 elements; IQ2_XS has indices of 9 bits and IQ2_S of
10, both with a scale for 16 elements. Scales have 4 bits. IQ2_S stores all signs, the others seven
of eight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.quants import codebooks, emit, grid
from trinity_kernels.quants.quant_type import Blocks, Floats, super_block_type
from trinity_kernels.quants.superblock import SuperBlock

# qs: for each 32 elements 4 indices of a byte each, then 4 times 7 signs and the scale.
_IQ2_XXS = np.dtype([("d", "<f2"), ("qs", "<u4", (8, 2))])
# qs: for each 8 elements the index, and 7 signs in the upper bits.
_IQ2_XS = np.dtype([("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)])
# qh: for each 32 elements the upper 2 bits of 4 indices.
_IQ2_S = np.dtype(
    [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)]
)


def _scales(blocks: Blocks) -> Floats:
    """The scales (n, 16) of 16 elements each: d * (bits + 1/2) / 4."""
    bits = blocks["scales"][:, :, None] >> np.array([0, 4], np.uint8) & 15
    d = blocks["d"].astype(np.float32)[:, None]
    scales: Floats = d * (2 * bits.reshape(-1, 16) + 1).astype(np.float32) * np.float32(0.125)
    return scales


def _decode_iq2_xxs(blocks: Blocks) -> Floats:
    index, word = np.moveaxis(blocks["qs"], 2, 0)
    index = np.ascontiguousarray(index).view(np.uint8)
    d = blocks["d"].astype(np.float32)[:, None]
    scales = d * (2 * (word >> 28) + 1).astype(np.float32) * np.float32(0.125)
    signs = word[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32)
    codes = codebooks.IQ2_XXS[index]
    signs = codebooks.even_signs(signs.reshape(-1, 32))
    return codebooks.scaled(scales, codebooks.signed(codes, signs))


def _decode_iq2_xs(blocks: Blocks) -> Floats:
    codes = codebooks.IQ2_XS[blocks["qs"] & 511]
    signs = codebooks.even_signs(blocks["qs"] >> 9)
    return codebooks.scaled(_scales(blocks), codebooks.signed(codes, signs))


def _decode_iq2_s(blocks: Blocks) -> Floats:
    pairs = blocks["qh"][:, :, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    index = blocks["qs"] | pairs.reshape(-1, 32).astype(np.uint16) << 8
    codes = codebooks.signed(codebooks.IQ2_S[index], blocks["signs"])
    return codebooks.scaled(_scales(blocks), codes)


TYPES = (
    super_block_type("IQ2_XXS", _IQ2_XXS, _decode_iq2_xxs, 0.4),
    super_block_type("IQ2_XS", _IQ2_XS, _decode_iq2_xs, 0.35),
    super_block_type("IQ2_S", _IQ2_S, _decode_iq2_s, 0.3),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _code_iq2_xxs(block: int, e: int) -> Any:
    group = block + 2 + e // 32 * 8
    row = e % 32 // 8
    value = int(codebooks.IQ2_XXS[int(memory.get_u8(group + row)), e % 8])
    return grid.signed_evenly(value, int(memory.get_u32(group + 4)) >> (7 * row) & 127, e % 8)


def _scale_iq2_xxs(block: int, g: int) -> Any:
    odd = 2 * (int(memory.get_u32(block + 6 + 8 * g)) >> 28) + 1
    return np.float32(memory.get_f16(block) * np.float32(odd * 0.125))


def _code_iq2_xs(block: int, e: int) -> Any:
    word = int(memory.get_u16(block + 2 + e // 8 * 2))
    return grid.signed_evenly(int(codebooks.IQ2_XS[word & 511, e % 8]), word >> 9, e % 8)


def _code_iq2_s(block: int, e: int) -> Any:
    high = int(memory.get_u8(block + 66 + e // 32)) >> (e % 32 // 8 * 2) & 3
    row = int(memory.get_u8(block + 2 + e // 8)) | high * 256
    signs = int(memory.get_u8(block + 34 + e // 8))
    return grid.signed(int(codebooks.IQ2_S[row, e % 8]), signs, e % 8)


@inline
def _nibble_scale(block: int, at: int, g: int) -> Any:
    odd = 2 * (int(memory.get_u8(block + at + g // 2)) >> (g % 2 * 4) & 15) + 1
    return np.float32(memory.get_f16(block) * np.float32(odd * 0.125))


def _scale_iq2_xs(block: int, g: int) -> Any:
    return _nibble_scale(block, 66, g)


def _scale_iq2_s(block: int, g: int) -> Any:
    return _nibble_scale(block, 74, g)


def _emit_iq2_xxs(level: str, builder: Any, block: Any, part: int) -> Any:
    at = 2 + 16 * part
    offsets = [*range(at, at + 4), *range(at + 8, at + 12)]
    codes = grid.rows_of_bytes(level, builder, codebooks.IQ2_XXS + grid.OFFSET, block, offsets)
    words = emit.load(builder, block, 2, emit.vector(simd.I32, 16))
    lanes = [2 * i + 1 for i in range(8) for _ in range(4)]
    return grid.with_signs(builder, codes, grid.even_signs_of(builder, words, lanes, part))


def _emit_scales_iq2_xxs(builder: Any, block: Any) -> Any:
    words = emit.load(builder, block, 2, emit.vector(simd.I32, 16))
    bits = grid.spread(builder, words, range(1, 16, 2), [28] * 8)
    return grid.odd_scales(builder, bits, _eighth(builder, block))


def _emit_iq2_xs(level: str, builder: Any, block: Any, part: int) -> Any:
    words = emit.load(builder, block, 2, emit.vector(simd.I16, 32))
    index = simd.shuffle(builder, words, words, [*range(8 * part, 8 * part + 8)])
    index = emit.masked(builder, index, 511)
    if grid.gathers(level):
        index = builder.zext(index, emit.vector(simd.I32, 8))
    codes = grid.rows(level, builder, codebooks.IQ2_XS + grid.OFFSET, index)
    seven = builder.trunc(
        builder.lshr(words, emit.constant(words.type, [9] * 32)), emit.vector(simd.I8, 32)
    )
    return grid.with_signs(builder, codes, grid.even_signs(builder, seven, part))


def _emit_iq2_s(level: str, builder: Any, block: Any, part: int) -> Any:
    index = grid.low_bytes(level, builder, block, range(2 + 8 * part, 10 + 8 * part))
    index = grid.with_high_bits(builder, index, block, 66 + 2 * part, range(0, 16, 2), 2)
    codes = grid.rows(level, builder, codebooks.IQ2_S + grid.OFFSET, index)
    return grid.with_signs(builder, codes, emit.load(builder, block, 34 + 8 * part, simd.I64))


def _emit_nibble_scales(at: int) -> Any:
    def emit_scales(builder: Any, block: Any) -> Any:
        packed = emit.load_bytes(builder, block, at, 8)
        lanes = [i // 2 for i in range(16)]
        bits = emit.masked(builder, grid.spread(builder, packed, lanes, [0, 4] * 8), 15)
        return grid.odd_scales(builder, bits, _eighth(builder, block))

    return emit_scales


def _eighth(builder: Any, block: Any) -> Any:
    return builder.fmul(emit.half(builder, block, 0), simd.F32(0.125))


READERS = {
    name: SuperBlock(
        nbytes=nbytes, emit_codes=emit_codes, code=code, emit_scales=emit_scales, scale=scale,
        group=group, offset=grid.OFFSET,
    )
    for name, nbytes, group, emit_codes, code, emit_scales, scale in (
        ("IQ2_XXS", 66, 32, _emit_iq2_xxs, _code_iq2_xxs, _emit_scales_iq2_xxs, _scale_iq2_xxs),
        ("IQ2_XS", 74, 16, _emit_iq2_xs, _code_iq2_xs, _emit_nibble_scales(66), _scale_iq2_xs),
        ("IQ2_S", 82, 16, _emit_iq2_s, _code_iq2_s, _emit_nibble_scales(74), _scale_iq2_s),
    )
}  # fmt: skip
