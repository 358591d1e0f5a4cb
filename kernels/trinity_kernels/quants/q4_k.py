"""Q4_K and Q5_K: 256 elements in 8 groups of 32, each with a scale and a minimum of 6 bits.

Groups 2 t and 2 t + 1 are the low and high nibbles of bytes 32 t to 32 t + 31. The first four
scales and minima are 6 bits of a byte each. The upper two bits of these bytes belong to the last
four scales and minima, whose lower four bits follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import ir, simd
from trinity_kernels.quants import emit
from trinity_kernels.quants.quant_type import Blocks, Bytes, Floats, super_block_type
from trinity_kernels.quants.superblock import Columns, SuperBlock

_HEAD = [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12)]
_Q4_K = np.dtype([*_HEAD, ("qs", "u1", 128)])
_Q5_K = np.dtype([*_HEAD, ("qh", "u1", 32), ("qs", "u1", 128)])


def unpack_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The scales (n, 8) and minima (n, 8), 0 to 63, of bytes (n, 12)."""
    first, second, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    high = np.uint8(0xC0)
    scales = np.concatenate([first & 63, last & 15 | (first & high) >> 2], axis=1)
    minima = np.concatenate([second & 63, last >> 4 | (second & high) >> 2], axis=1)
    return scales, minima


def _decode(blocks: Blocks) -> Floats:
    scales, minima = unpack_scales(blocks["scales"])
    d = blocks["d"].astype(np.float32)[:, None] * scales.astype(np.float32)
    m = blocks["dmin"].astype(np.float32)[:, None] * minima.astype(np.float32)
    qs = blocks["qs"].reshape(-1, 4, 1, 32)
    codes = (qs >> np.array([0, 4], np.uint8)[:, None] & 15).reshape(-1, 8, 32)
    if "qh" in (blocks.dtype.names or ()):
        bits = blocks["qh"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
        codes = codes | bits << 4
    values: Floats = d[:, :, None] * codes.astype(np.float32) - m[:, :, None]
    return values.reshape(-1, 256)


TYPES = (
    super_block_type("Q4_K", _Q4_K, _decode, 0.08),
    super_block_type("Q5_K", _Q5_K, _decode, 0.04),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _scale(block: int, g: int) -> Any:
    s = block + 4
    if g < 4:
        bits = int(memory.get_u8(s + g)) & 63
    else:
        bits = int(memory.get_u8(s + g + 4)) & 15 | (int(memory.get_u8(s + g - 4)) >> 6) * 16
    return np.float32(memory.get_f16(block) * np.float32(bits))


def _minimum(block: int, g: int) -> Any:
    s = block + 4
    if g < 4:
        bits = int(memory.get_u8(s + g + 4)) & 63
    else:
        bits = int(memory.get_u8(s + g + 4)) >> 4 | (int(memory.get_u8(s + g)) >> 6) * 16
    return np.float32(memory.get_f16(block + 2) * np.float32(bits))


def _code_q4_k(block: int, e: int) -> Any:
    return int(memory.get_u8(block + 16 + e // 64 * 32 + e % 32)) >> (e // 32 % 2 * 4) & 15


def _code_q5_k(block: int, e: int) -> Any:
    low = int(memory.get_u8(block + 48 + e // 64 * 32 + e % 32)) >> (e // 32 % 2 * 4) & 15
    return low | (int(memory.get_u8(block + 16 + e % 32)) >> (e // 32) & 1) * 16


def _emit_scales(builder: Any, block: Any) -> Any:
    """Scales in lanes 0 to 7, minima in 8 to 15."""
    head = emit.load_bytes(builder, block, 0, 16)
    # For each lane the byte of the lower bits, and that of the upper bits (or any, masked).
    low = [4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15]
    high = [0, 0, 0, 0, 4, 5, 6, 7, 0, 0, 0, 0, 8, 9, 10, 11]
    lower = simd.shuffle(builder, head, head, low)
    lower = builder.lshr(lower, emit.constant(lower.type, [0] * 12 + [4] * 4))
    lower = emit.masked(builder, lower, [63] * 4 + [15] * 4 + [63] * 4 + [15] * 4)
    upper = simd.shuffle(builder, head, head, high)
    upper = emit.masked(builder, upper, ([0] * 4 + [0xC0] * 4) * 2)
    upper = builder.lshr(upper, emit.constant(upper.type, [2] * 16))
    both = emit.floats(builder, builder.or_(lower, upper))
    halves = builder.bitcast(head, emit.vector(ir.HalfType(), 8))
    order = [0] * 8 + [1] * 8
    d = builder.fpext(simd.shuffle(builder, halves, halves, order), simd.F32X16.ir)
    return builder.fmul(both, d)


def _emit_q4_k(level: str, builder: Any, block: Any, part: int) -> Any:
    packed = emit.load_bytes(builder, block, 16 + 32 * part, 32, repeat=2)
    return emit.masked(builder, emit.shifted_right(builder, packed, [0, 4]), 15)


def _emit_q5_k(level: str, builder: Any, block: Any, part: int) -> Any:
    packed = emit.load_bytes(builder, block, 48 + 32 * part, 32, repeat=2)
    low = emit.masked(builder, emit.shifted_right(builder, packed, [0, 4]), 15)
    bits = emit.load_bytes(builder, block, 16, 32, repeat=2)
    bits = emit.shifted_right(builder, bits, [2 * part - 4, 2 * part - 3])
    return builder.or_(low, emit.masked(builder, bits, 16))


def _code_columns(codes_at: int) -> Callable[[Any, Columns], Iterator[Any]]:
    """The columns of Q4_K, or of Q5_K, whose codes have a fifth bit before them."""

    def emit_columns(builder: Any, columns: Columns) -> Iterator[Any]:
        fifth = [*columns(16), *columns(32)] if codes_at == 48 else []
        for part in range(4):
            nibbles = [*columns(codes_at + 32 * part), *columns(codes_at + 32 * part + 16)]
            for half in range(2):
                for i, words in enumerate(nibbles):
                    code = emit.fields(builder, words, 4 * half, 0x0F0F0F0F)
                    if fifth:
                        shift = 2 * part + half - 4
                        high = emit.fields(builder, fifth[i], shift, 0x10101010)
                        code = builder.or_(code, high)
                    yield code

    return emit_columns


def _emit_scale_columns(builder: Any, columns: Columns) -> Iterator[Any]:
    head, first, second, last = columns(0)
    for above, packed in ((0, first), (16, second)):
        d = emit.halves(builder, head, above)
        if above:
            d = builder.fsub(emit.constant(d.type, [0.0] * 16), d)
        for g in range(8):
            if g < 4:
                bits = emit.fields(builder, packed, 8 * g, 63)
            else:
                low = emit.fields(builder, last, 8 * (g - 4) + above // 4, 15)
                high = emit.fields(builder, packed, 8 * (g - 4) + 2, 48)
                bits = builder.or_(low, high)
            yield builder.fmul(builder.sitofp(bits, simd.F32X16.ir), d)


READERS = {
    name: SuperBlock(
        nbytes=nbytes, emit_codes=emit_codes, code=code, emit_scales=_emit_scales, scale=_scale,
        minimum=_minimum, top=top, minima=32, emit_code_columns=_code_columns(nbytes - 128),
        emit_scale_columns=_emit_scale_columns,
    )
    for name, nbytes, emit_codes, code, top in (
        ("Q4_K", 144, _emit_q4_k, _code_q4_k, 15),
        ("Q5_K", 176, _emit_q5_k, _code_q5_k, 31),
    )
}  # fmt: skip
