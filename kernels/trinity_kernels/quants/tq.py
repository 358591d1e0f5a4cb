"""TQ1_0 and TQ2_0: llama.cpp's ternary types, 256 elements and one float16 scale.

PTQ1_0 is PrismML's, with 128 elements. Its models are trained without rounded activations, so
activations have 19 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.quants import emit
from trinity_kernels.quants.quant_type import (
    Blocks,
    Bytes,
    Floats,
    QuantType,
    Unused,
    has_code_3,
    inverse,
    round_half_away,
)
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.quants.ternary import Ternary


def _powers(values: list[int]) -> Any:
    """A function of compiled code that returns these 64 bytes."""

    @instructions("i8x64")
    def powers(builder: Any) -> Any:
        return ir.Constant(simd.I8X64.ir, values)

    return powers


# Powers of 3 that move the wanted trit to the top of each byte: element 32 g + i of each half of a
# block is trit g of byte i; the narrower tails follow the same rule.
_powers_0 = _powers([1] * 32 + [81] * 32)
_powers_1 = _powers([3] * 32 + [1] * 16 + [3] * 16)
_powers_2 = _powers([9] * 32 + [9] * 16 + [27] * 16)
_powers_3 = _powers([27] * 32 + [81] * 16 + [1] * 4 + [3] * 4 + [9] * 4 + [27] * 4)

_TQ1_0 = np.dtype([("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")])
_TQ2_0 = np.dtype([("qs", "u1", 64), ("d", "<f2")])
_PTQ1_0 = np.dtype([("qs", "u1", 24), ("qh", "u1", 2), ("d", "<f2")])
_SHIFTS = np.array([0, 2, 4, 6], np.uint8)[:, None]
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def _ternary_codes(values: Floats) -> tuple[Floats, Bytes]:
    """Scales (n,) and codes 0 .. 2 of each block; the scale is its largest magnitude."""
    d = np.abs(values).max(axis=1)[:, None]
    rounded = round_half_away(values * inverse(d))
    return d[:, 0], (rounded.astype(np.int8) + np.int8(1)).view(np.uint8)


def _unpack_trits(packed: Bytes, count: int) -> Bytes:
    """The trits (n, count * w) of bytes (n, w); trit t of byte i becomes element t * w + i.

    A byte is a fraction of 243, rounded up to 256ths: multiplying by 3 carries out its first trit.
    """
    fractions = packed[:, None, :] * _POWERS[:count]
    trits = (fractions.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)
    return trits.astype(np.uint8).reshape(len(packed), -1)


def _pack_trits(trits: Bytes, count: int) -> Bytes:
    """The inverse of _unpack_trits; the missing trits of a short byte are 0."""
    digits = trits.reshape(len(trits), count, -1)
    weights = _POWERS[::-1][:count]
    value = (digits * weights).sum(axis=1, dtype=np.uint32)
    packed: Bytes = ((value * np.uint32(256) + np.uint32(242)) // np.uint32(243)).astype(np.uint8)
    return packed


def _decode_tq1_0(blocks: Blocks) -> Floats:
    qs = blocks["qs"]
    trits = np.concatenate(
        [
            _unpack_trits(qs[:, :32], 5),
            _unpack_trits(qs[:, 32:], 5),
            _unpack_trits(blocks["qh"], 4),
        ],
        axis=1,
    )
    d = blocks["d"].astype(np.float32)[:, None]
    return d * (trits.astype(np.float32) - np.float32(1))


def _encode_tq1_0(values: Floats) -> Blocks:
    d, codes = _ternary_codes(values)
    blocks = np.empty(len(values), _TQ1_0)
    blocks["d"] = d
    blocks["qs"][:, :32] = _pack_trits(codes[:, :160], 5)
    blocks["qs"][:, 32:] = _pack_trits(codes[:, 160:240], 5)
    blocks["qh"] = _pack_trits(codes[:, 240:], 4)
    return blocks


def _decode_ptq1_0(blocks: Blocks) -> Floats:
    qs = blocks["qs"]
    trits = [
        _unpack_trits(qs[:, :16], 5), _unpack_trits(qs[:, 16:], 5), _unpack_trits(blocks["qh"], 4)
    ]  # fmt: skip
    d = blocks["d"].astype(np.float32)[:, None]
    return d * (np.concatenate(trits, axis=1).astype(np.float32) - np.float32(1))


def _encode_ptq1_0(values: Floats) -> Blocks:
    d, codes = _ternary_codes(values)
    blocks = np.empty(len(values), _PTQ1_0)
    blocks["d"] = d
    blocks["qs"][:, :16] = _pack_trits(codes[:, :80], 5)
    blocks["qs"][:, 16:] = _pack_trits(codes[:, 80:120], 5)
    blocks["qh"] = _pack_trits(codes[:, 120:], 4)
    return blocks


def _decode_tq2_0(blocks: Blocks) -> Floats:
    halves = blocks["qs"].reshape(-1, 2, 1, 32)
    codes = ((halves >> _SHIFTS) & np.uint8(3)).reshape(len(blocks), 256)
    d = blocks["d"].astype(np.float32)[:, None]
    return d * (codes.astype(np.float32) - np.float32(1))


def _encode_tq2_0(values: Floats) -> Blocks:
    d, codes = _ternary_codes(values)
    blocks = np.empty(len(values), _TQ2_0)
    fields = codes.reshape(-1, 2, 4, 32) << _SHIFTS
    blocks["d"] = d
    blocks["qs"] = np.bitwise_or.reduce(fields, axis=2).reshape(-1, 64)
    return blocks


def _valid_bytes(count: int) -> NDArray[np.bool_]:
    """Which of 256 bytes consist of ``count`` trits, followed by zeros."""
    step = 3 ** (5 - count)
    valid = np.zeros(256, np.bool_)
    valid[(np.arange(0, 243, step) * 256 + 242) // 243] = True
    return valid


_FIVE_TRITS, _FOUR_TRITS = _valid_bytes(5), _valid_bytes(4)


def _no_trits(blocks: Blocks) -> NDArray[np.bool_]:
    good = _FIVE_TRITS[blocks["qs"]].all(axis=1) & _FOUR_TRITS[blocks["qh"]].all(axis=1)
    result: NDArray[np.bool_] = ~good
    return result


_ODD_TRITS = Unused(
    "bytes that are no five trits", "fractions of 243 in 256ths, rounded up", _no_trits
)
TYPES = (
    QuantType(
        name="TQ1_0",
        block_size=256,
        block=_TQ1_0,
        decode_blocks=_decode_tq1_0,
        encode_blocks=_encode_tq1_0,
        max_rmse=5e-4,
        source="ggml-common.h block_tq1_0; ggml-quants.c quantize_row_tq1_0_ref",
        ternary=True,
        unused=_ODD_TRITS,
    ),
    QuantType(
        name="PTQ1_0",
        block_size=128,
        block=_PTQ1_0,
        decode_blocks=_decode_ptq1_0,
        encode_blocks=_encode_ptq1_0,
        max_rmse=5e-4,
        source="PrismML's llama.cpp, block_ptq1_0 and dequantize_row_ptq1_0",
        ternary=True,
        unused=_ODD_TRITS,
    ),
    QuantType(
        name="TQ2_0",
        block_size=256,
        block=_TQ2_0,
        decode_blocks=_decode_tq2_0,
        encode_blocks=_encode_tq2_0,
        max_rmse=5e-4,
        source="ggml-common.h block_tq2_0; ggml-quants.c quantize_row_tq2_0_ref",
        ternary=True,
        unused=Unused("the fourth code, 3", "the codes 0, 1 and 2", has_code_3("qs")),
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _codes_tq2_0(block: int, left: int) -> Any:
    three = simd.splat_i8x64(3)
    v = simd.load_i8x64(block)
    second = simd.shift_right_i8x64(v, 2) & three
    third = simd.shift_right_i8x64(v, 4) & three
    return v & three, second, third, simd.shift_right_i8x64(v, 6)


def _codes_tq1_0(block: int, left: int) -> Any:
    wide = simd.load_i8x32(block)
    half = simd.load_i8x16(block + 32)
    last = simd.repeat_4_i8x16(memory.get_u32(block + 48))
    narrow = simd.concat_i8x32(wide, simd.concat_i8x16(half, half))
    mixed = simd.concat_i8x32(wide, simd.concat_i8x16(half, last))
    first = simd.trits_i8x64(simd.concat_i8x32(wide, wide) * _powers_0())
    second = simd.trits_i8x64(narrow * _powers_1())
    third = simd.trits_i8x64(narrow * _powers_2())
    return first, second, third, simd.trits_i8x64(mixed * _powers_3())


def _code_tq2_0(block: int, e: int) -> Any:
    return (int(memory.get_u8(block + e // 128 * 32 + e % 32)) >> (e % 128 // 32 * 2)) & 3


@inline
def _trit(fraction: int, power: int) -> int:
    """Trit ``power`` of a byte, a fraction of 256."""
    for _ in range(power):
        fraction = (fraction * 3) & 255
    return (fraction * 3) >> 8


def _code_tq1_0(block: int, e: int) -> Any:
    if e < 160:
        at, power = e % 32, e // 32
    elif e < 240:
        at, power = 32 + (e - 160) % 16, (e - 160) // 16
    else:
        at, power = 48 + (e - 240) % 4, (e - 240) // 4
    return _trit(int(memory.get_u8(block + at)), power)


def _code_ptq1_0(block: int, e: int) -> Any:
    if e < 80:
        at, power = e % 16, e // 16
    elif e < 120:
        at, power = 16 + (e - 80) % 8, (e - 80) // 8
    else:
        at, power = 24 + (e - 120) % 2, (e - 120) // 2
    return _trit(int(memory.get_u8(block + at)), power)


# By part: the byte of each element among bytes 0 to 15 and then 12 to 27 of a block, and its trit.
_PLACES = (
    [(i, power) for power in range(4) for i in range(16)],
    [
        *((i, 4) for i in range(16)),
        *((20 + i, power) for power in range(5) for i in range(8)),
        *((28 + i, power) for power in range(4) for i in range(2)),
    ],
)


def _emit_codes_ptq1_0(level: str, builder: Any, block: Any, part: int) -> Any:
    first, last = (emit.load_bytes(builder, block, at, 16) for at in (0, 12))
    places = _PLACES[part % 2]  # code for parts 2 and 3 is compiled, but never run
    packed = simd.shuffle(builder, first, last, [at for at, _ in places])
    powers = emit.constant(packed.type, [3**power for _, power in places])
    return emit.trits(builder, builder.mul(packed, powers))


def _emit_scale_ptq1_0(builder: Any, block: Any) -> Any:
    return emit.splat(builder, emit.half(builder, block, 26))


def _scale_ptq1_0(block: int, g: int) -> Any:
    return memory.get_f16(block + 26)


READERS = {
    "TQ1_0": Ternary(nbytes=54, scale_at=52, codes=_codes_tq1_0, code=_code_tq1_0),
    "TQ2_0": Ternary(nbytes=66, scale_at=64, codes=_codes_tq2_0, code=_code_tq2_0),
    "PTQ1_0": SuperBlock(
        nbytes=28, elements=128, emit_codes=_emit_codes_ptq1_0, code=_code_ptq1_0,
        emit_scales=_emit_scale_ptq1_0, scale=_scale_ptq1_0, group=128, offset=1, top=2, form="q19",
    ),
}  # fmt: skip
