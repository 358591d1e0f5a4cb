"""IQ3_XXS and IQ3_S: rows of 4 from a codebook of 8 magnitudes, with signs.

Scales have 4 bits and belong to 32 elements. IQ3_XXS has indices of 8 bits and stores seven of
eight signs; IQ3_S has indices of 9 bits and stores all signs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import simd
from trinity_kernels.quants import codebooks, emit, grid
from trinity_kernels.quants.quant_type import Blocks, Floats, super_block_type
from trinity_kernels.quants.superblock import SuperBlock

# signs: for each 32 elements 4 times 7 signs and the scale.
_IQ3_XXS = np.dtype([("d", "<f2"), ("qs", "u1", 64), ("signs", "<u4", 8)])
# qh: for each 32 elements the ninth bits of 8 indices.
_IQ3_S = np.dtype(
    [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)]
)


def _decode_iq3_xxs(blocks: Blocks) -> Floats:
    word = blocks["signs"]
    d = blocks["d"].astype(np.float32)[:, None]
    scales = d * (2 * (word >> 28) + 1).astype(np.float32) * np.float32(0.25)
    signs = word[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32)
    signs = codebooks.even_signs(signs.reshape(-1, 32))
    codes = codebooks.signed(codebooks.IQ3_XXS[blocks["qs"]], signs)
    return codebooks.scaled(scales, codes)


def _decode_iq3_s(blocks: Blocks) -> Floats:
    ninth = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    index = blocks["qs"] | ninth.astype(np.uint16) << 8
    codes = codebooks.signed(codebooks.IQ3_S[index], blocks["signs"])
    bits = blocks["scales"][:, :, None] >> np.array([0, 4], np.uint8) & 15
    d = blocks["d"].astype(np.float32)[:, None]
    scales = d * (2 * bits.reshape(-1, 8) + 1).astype(np.float32)
    return codebooks.scaled(scales, codes)


TYPES = (
    super_block_type("IQ3_XXS", _IQ3_XXS, _decode_iq3_xxs, 0.22),
    super_block_type("IQ3_S", _IQ3_S, _decode_iq3_s, 0.17),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _code_iq3_xxs(block: int, e: int) -> Any:
    value = int(codebooks.IQ3_XXS[int(memory.get_u8(block + 2 + e // 4)), e % 4])
    word = int(memory.get_u32(block + 66 + e // 32 * 4))
    return grid.signed_evenly(value, word >> (e % 32 // 8 * 7) & 127, e % 8)


def _scale_iq3_xxs(block: int, g: int) -> Any:
    odd = 2 * (int(memory.get_u32(block + 66 + 4 * g)) >> 28) + 1
    return np.float32(memory.get_f16(block) * np.float32(odd * 0.25))


def _code_iq3_s(block: int, e: int) -> Any:
    ninth = int(memory.get_u8(block + 66 + e // 32)) >> (e % 32 // 4) & 1
    row = int(memory.get_u8(block + 2 + e // 4)) | ninth * 256
    signs = int(memory.get_u8(block + 74 + e // 8))
    return grid.signed(int(codebooks.IQ3_S[row, e % 4]), signs, e % 8)


def _scale_iq3_s(block: int, g: int) -> Any:
    odd = 2 * (int(memory.get_u8(block + 106 + g // 2)) >> (g % 2 * 4) & 15) + 1
    return np.float32(memory.get_f16(block) * np.float32(odd))


def _emit_iq3_xxs(level: str, builder: Any, block: Any, part: int) -> Any:
    offsets = range(2 + 16 * part, 18 + 16 * part)
    codes = grid.rows_of_bytes(level, builder, codebooks.IQ3_XXS + grid.OFFSET, block, offsets)
    words = emit.load(builder, block, 66, emit.vector(simd.I32, 8))
    lanes = [i // 4 for i in range(32)]
    return grid.with_signs(builder, codes, grid.even_signs_of(builder, words, lanes, part))


def _emit_scales_iq3_xxs(builder: Any, block: Any) -> Any:
    words = emit.load(builder, block, 66, emit.vector(simd.I32, 8))
    quarter = builder.fmul(emit.half(builder, block, 0), simd.F32(0.25))
    return grid.odd_scales(builder, grid.spread(builder, words, range(8), [28] * 8), quarter)


def _emit_iq3_s(level: str, builder: Any, block: Any, part: int) -> Any:
    index = grid.low_bytes(level, builder, block, range(2 + 16 * part, 18 + 16 * part))
    index = grid.with_high_bits(builder, index, block, 66 + 2 * part, range(16), 1)
    codes = grid.rows(level, builder, codebooks.IQ3_S + grid.OFFSET, index)
    return grid.with_signs(builder, codes, emit.load(builder, block, 74 + 8 * part, simd.I64))


def _emit_scales_iq3_s(builder: Any, block: Any) -> Any:
    packed = emit.load_bytes(builder, block, 106, 4)
    bits = grid.spread(builder, packed, [i // 2 for i in range(8)], [0, 4] * 4)
    bits = emit.masked(builder, bits, 15)
    return grid.odd_scales(builder, bits, emit.half(builder, block, 0))


READERS = {
    name: SuperBlock(
        nbytes=nbytes, emit_codes=emit_codes, code=code, emit_scales=emit_scales, scale=scale,
        offset=grid.OFFSET,
    )
    for name, nbytes, emit_codes, code, emit_scales, scale in (
        ("IQ3_XXS", 98, _emit_iq3_xxs, _code_iq3_xxs, _emit_scales_iq3_xxs, _scale_iq3_xxs),
        ("IQ3_S", 110, _emit_iq3_s, _code_iq3_s, _emit_scales_iq3_s, _scale_iq3_s),
    )
}  # fmt: skip
