"""LLVM code for reading blocks: loads, shifts of packed bits, look-ups of 16 values.

Each function adds code to ``builder`` and returns the value. Blocks are addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trinity_kernels.deferred import ir, simd


def vector(lane: Any, lanes: int) -> Any:
    """The LLVM type of a vector."""
    return ir.VectorType(lane, lanes)


def load(builder: Any, block: Any, offset: int, kind: Any) -> Any:
    """The value at byte ``offset`` of a block, unaligned."""
    return builder.load(simd.pointer(builder, builder.add(block, simd.I64(offset)), kind), align=1)


def load_bytes(builder: Any, block: Any, offset: int, count: int, repeat: int = 1) -> Any:
    """``count`` bytes of a block, repeated."""
    loaded = load(builder, block, offset, vector(simd.I8, count))
    return (
        loaded if repeat == 1 else simd.shuffle(builder, loaded, loaded, [*range(count)] * repeat)
    )


def constant(kind: Any, values: Sequence[float]) -> Any:
    """A constant vector; bytes may be 0 to 255."""
    return ir.Constant(kind, list(values))


def masked(builder: Any, value: Any, mask: int | Sequence[int]) -> Any:
    """The bitwise AND of each lane with a mask, one for all lanes or one for each."""
    lanes = value.type.count
    values = [mask] * lanes if isinstance(mask, int) else mask
    return builder.and_(value, constant(value.type, values))


def shifted_right(builder: Any, value: Any, counts: Sequence[int]) -> Any:
    """Shift bytes as words of two, equal parts of the vector by one count each; left if negative.

    Bits of the other byte of a word are shifted in, so the result must be masked.
    """
    words = builder.bitcast(value, vector(simd.I16, value.type.count // 2))
    each = words.type.count // len(counts)
    lanes = [c for c in counts for _ in range(each)]
    if any(c > 0 for c in lanes):
        words = builder.lshr(words, constant(words.type, [max(c, 0) for c in lanes]))
    if any(c < 0 for c in lanes):
        words = builder.shl(words, constant(words.type, [max(-c, 0) for c in lanes]))
    return builder.bitcast(words, value.type)


def shifted_words(builder: Any, value: Any, counts: Sequence[int]) -> Any:
    """Shift bytes right as words of two, each word by its own count; the result must be masked."""
    words = builder.bitcast(value, vector(simd.I16, value.type.count // 2))
    return builder.bitcast(builder.lshr(words, constant(words.type, counts)), value.type)


def nibbles_of_16(builder: Any, packed: Any) -> Any:
    """The 32 codes of each block of 16 bytes: the low nibbles, then the high ones."""
    count = packed.type.count
    order = [i for start in range(0, count, 16) for i in [*range(start, start + 16)] * 2]
    doubled = simd.shuffle(builder, packed, packed, order)
    return masked(builder, shifted_right(builder, doubled, [0, 4] * (count // 16)), 15)


def look_up(level: str, builder: Any, codes: Any, table: Sequence[int]) -> Any:
    """The bytes of a table of 16 for 64 codes below 16."""
    if level in ("amx", "avx512vnni"):
        whole = constant(codes.type, [*table] * 4)
        return simd.call_named(builder, "llvm.x86.avx512.pshuf.b.512", codes.type, [whole, codes])
    width, name = (32, "llvm.x86.avx2.pshuf.b")
    if level in ("neon-i8mm", "neon"):
        width, name = (16, "llvm.aarch64.neon.tbl1.v16i8")
    part = vector(simd.I8, width)
    whole = constant(part, [*table] * (width // 16))
    found = []
    for start in range(0, 64, width):
        some = simd.shuffle(builder, codes, codes, list(range(start, start + width)))
        found.append(simd.call_named(builder, name, part, [whole, some]))
    while len(found) > 1:
        lanes = list(range(2 * found[0].type.count))
        found = [
            simd.shuffle(builder, found[i], found[i + 1], lanes) for i in range(0, len(found), 2)
        ]
    return found[0]


def trits(builder: Any, bytes_: Any) -> Any:
    """The top base-3 digit of each byte read as a fraction of 256: (byte * 3) >> 8."""
    kind = bytes_.type
    low, high = (
        builder.icmp_unsigned(">=", bytes_, constant(kind, [least] * kind.count))
        for least in (86, 171)
    )
    return builder.add(builder.zext(low, kind), builder.zext(high, kind))


def half(builder: Any, block: Any, offset: int) -> Any:
    """The float16 at byte ``offset`` of a block, as float32."""
    return builder.fpext(load(builder, block, offset, ir.HalfType()), simd.F32)


def splat(builder: Any, scalar: Any, lanes: int = 16) -> Any:
    """A scalar, copied to every lane."""
    kind = vector(scalar.type, lanes)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, simd.I32(0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(vector(simd.I32, lanes), [0] * lanes)
    )


def fields(builder: Any, words: Any, shift: int, mask: int) -> Any:
    """(word >> shift) & mask of words of 32 bits; a negative shift is to the left."""
    kind = words.type
    if shift:
        move = builder.lshr if shift > 0 else builder.shl
        words = move(words, constant(kind, [abs(shift)] * kind.count))
    return builder.and_(words, constant(kind, [mask] * kind.count))


def halves(builder: Any, words: Any, shift: int) -> Any:
    """The float16 at bit ``shift`` of 16 words of 32 bits, as float32."""
    short = builder.trunc(fields(builder, words, shift, 0xFFFF), simd.I16X16.ir)
    return builder.fpext(builder.bitcast(short, simd.F16X16.ir), simd.F32X16.ir)


def floats(builder: Any, bytes_: Any, signed: bool = False) -> Any:
    """Bytes as float32."""
    wide = vector(simd.I32, bytes_.type.count)
    extended = builder.sext(bytes_, wide) if signed else builder.zext(bytes_, wide)
    return builder.sitofp(extended, vector(simd.F32, bytes_.type.count))


def powers_of_2(builder: Any, exponents: Any) -> Any:
    """2**(e - 128) for <16 x i8> e, half of the E8M0 values; subnormal for 0 and 1."""
    wide = vector(simd.I32, 16)
    e = builder.zext(exponents, wide)
    normal = builder.shl(builder.sub(e, constant(wide, [1] * 16)), constant(wide, [23] * 16))
    small = builder.shl(
        constant(wide, [0x00200000] * 16), builder.and_(e, constant(wide, [1] * 16))
    )
    is_small = builder.icmp_unsigned("<", e, constant(wide, [2] * 16))
    return builder.bitcast(builder.select(is_small, small, normal), simd.F32X16.ir)
