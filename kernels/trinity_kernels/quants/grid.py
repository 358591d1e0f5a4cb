"""Rows of codebooks and their signs: LLVM code for vectors, and functions for the portable level.

Codes of IQ2 and IQ3 have the offset 64, and so have the rows of the tables: the negative of 64 + v
is 128 - (64 + v), one subtraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.quants import emit
from trinity_kernels.quants.codebooks import Grid

OFFSET = 64
# The types whose codes are rows of codebooks.
TYPES = ("IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS")


def _table(builder: Any, grid: Grid) -> tuple[Any, Any]:
    """A codebook as a constant of the LLVM module, a word for each row, and the word's type."""
    word = ir.IntType(8 * grid.shape[1])
    values = np.ascontiguousarray(grid).view(f"<u{grid.shape[1]}")[:, 0].tolist()
    kind = ir.ArrayType(word, len(values))
    name = f"trinity.codebook.{len(values)}.{grid.shape[1]}"
    found = builder.module.globals.get(name)
    if found is None:
        found = ir.GlobalVariable(builder.module, kind, name)
        found.linkage, found.global_constant, found.unnamed_addr = "internal", True, True
        found.align = 64
        found.initializer = ir.Constant(kind, values)
    return found, word


def rows_of_bytes(level: str, builder: Any, grid: Grid, block: Any, offsets: Sequence[int]) -> Any:
    """The rows of a codebook selected by bytes of a block, 8 of 8 or 16 of 4, as <64 x i8>."""
    if gathers(level):
        return _gathered(builder, grid, low_bytes(level, builder, block, offsets))
    index = [builder.zext(emit.load(builder, block, at, simd.I8), simd.I64) for at in offsets]
    return _loaded(builder, grid, index)


def rows(level: str, builder: Any, grid: Grid, index: Any) -> Any:
    """The rows selected by 8 or 16 indices from low_bytes, as <64 x i8>."""
    if gathers(level):
        return _gathered(builder, grid, index)
    # Four at a time to a register, from which they are faster to take than from a vector.
    fours = builder.bitcast(index, emit.vector(simd.I64, index.type.count // 4))
    each = []
    for i in range(fours.type.count):
        four = builder.extract_element(fours, simd.I32(i))
        # An empty piece of assembly: LLVM would take them from the vector after all.
        four = builder.asm(ir.FunctionType(simd.I64, [simd.I64]), "", "=r,0", [four], False)
        for shift in range(0, 64, 16):
            each.append(builder.and_(builder.lshr(four, simd.I64(shift)), simd.I64(0xFFFF)))
    return _loaded(builder, grid, each)


def gathers(level: str) -> bool:
    """Whether to use the gather instruction, which is faster than loads on processors with AMX.

    Older Intel processors slow it down (a mitigation of "gather data sampling"), and AMD processors
    split it into loads.
    """
    return level == "amx"


def _gathered(builder: Any, grid: Grid, index: Any) -> Any:
    table, word = _table(builder, grid)
    count = index.type.count
    kind = emit.vector(word, count)
    args = [
        ir.Constant(kind, None), builder.bitcast(table, simd.I8.as_pointer()), index,
        emit.constant(emit.vector(simd.I1, count), [1] * count), simd.I32(word.width // 8),
    ]  # fmt: skip
    name = f"llvm.x86.avx512.mask.gather.dp{'q' if word.width == 64 else 'i'}.512"
    return builder.bitcast(simd.call_named(builder, name, kind, args), emit.vector(simd.I8, 64))


def _loaded(builder: Any, grid: Grid, index: Sequence[Any]) -> Any:
    table, word = _table(builder, grid)
    values = [builder.load(builder.gep(table, [simd.I64(0), row])) for row in index]
    parts = []
    for first, second in zip(values[::2], values[1::2], strict=True):
        pair = ir.Constant(emit.vector(word, 2), ir.Undefined)
        pair = builder.insert_element(pair, first, simd.I32(0))
        parts.append(builder.insert_element(pair, second, simd.I32(1)))
    while len(parts) > 1:
        lanes = [*range(2 * parts[0].type.count)]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [simd.shuffle(builder, low, high, lanes) for low, high in pairs]
    return builder.bitcast(parts[0], emit.vector(simd.I8, 64))


def low_bytes(level: str, builder: Any, block: Any, offsets: Sequence[int]) -> Any:
    """Bytes of a block as indices: <n x i32> for a gather, else <n x i16>."""
    packed = emit.load_bytes(builder, block, offsets[0], offsets[-1] + 1 - offsets[0])
    packed = simd.shuffle(builder, packed, packed, [at - offsets[0] for at in offsets])
    return builder.zext(packed, emit.vector(simd.I32 if gathers(level) else simd.I16, len(offsets)))


def with_high_bits(
    builder: Any, index: Any, block: Any, at: int, shifts: Sequence[int], bits: int
) -> Any:
    """Indices with their upper bits, from one or several i16 of a block.

    ``shifts``: the position of each index's bits in its word. All words have equally many indices.
    """
    n = len(shifts)
    count = -(-n * bits // 16)
    words = emit.load(builder, block, at, emit.vector(simd.I16, count))
    mask = ((1 << bits) - 1) << 8
    if index.type.element == simd.I16:
        own = simd.shuffle(builder, words, words, [i * count // n for i in range(n)])
        own = builder.shl(own, emit.constant(index.type, [16 - bits - shift for shift in shifts]))
        own = builder.lshr(own, emit.constant(index.type, [8 - bits] * n))
        return builder.or_(index, emit.masked(builder, own, mask))
    # All words (or one twice) in each lane, rotated: some to the left and some to the right.
    whole = simd.shuffle(builder, words, words, [i % count for i in range(2 * n)])
    whole = builder.bitcast(whole, index.type)
    turns = [(8 - shift - 16 * (i * count // n)) % 32 for i, shift in enumerate(shifts)]
    args = [whole, whole, emit.constant(index.type, turns)]
    own = simd.call_named(builder, f"llvm.fshl.v{n}i32", index.type, args)
    return builder.or_(index, emit.masked(builder, own, mask))


def with_signs(builder: Any, codes: Any, signs: Any) -> Any:
    """Codes with OFFSET, negated where a bit of an i64 is set."""
    negative = builder.bitcast(signs, emit.vector(simd.I1, 64))
    turned = builder.sub(emit.constant(codes.type, [2 * OFFSET] * 64), codes)
    return builder.select(negative, turned, codes)


def even_signs_of(builder: Any, words: Any, lanes: Sequence[int], part: int) -> Any:
    """As even_signs, from 32 lanes of <n x i32>, four of which share a word of 4 times 7 bits."""
    bits = spread(builder, words, lanes, [0, 7, 14, 21] * 8)
    seven = emit.masked(builder, builder.trunc(bits, emit.vector(simd.I8, 32)), 127)
    return even_signs(builder, seven, part)


def even_signs(builder: Any, seven: Any, part: int) -> Any:
    """A part's signs as an i64, from a block's 32 times 7 (<32 x i8>); the eighth is the parity."""
    name = "llvm.ctpop.v32i8"
    ones = simd.call_named(builder, name, seven.type, [seven])
    eighth = builder.shl(ones, emit.constant(seven.type, [7] * 32))
    words = builder.bitcast(builder.or_(seven, eighth), emit.vector(simd.I64, 4))
    return builder.extract_element(words, simd.I32(part))


def spread(builder: Any, value: Any, lanes: Sequence[int], counts: Sequence[int]) -> Any:
    """Lanes of a vector, in any order, as <n x i32>, each shifted to the right by its count."""
    wide = simd.shuffle(builder, value, value, list(lanes))
    if wide.type.element != simd.I32:
        wide = builder.zext(wide, emit.vector(simd.I32, len(lanes)))
    return builder.lshr(wide, emit.constant(wide.type, counts))


def odd_scales(builder: Any, bits: Any, d: Any) -> Any:
    """(2 * bits + 1) * d for <n x i32> bits as <16 x float>; 8 lanes are repeated."""
    odd = builder.or_(
        builder.shl(bits, emit.constant(bits.type, [1] * bits.type.count)),
        emit.constant(bits.type, [1] * bits.type.count),
    )
    lanes = [i % bits.type.count for i in range(16)]
    each = builder.sitofp(odd, emit.vector(simd.F32, bits.type.count))
    return builder.fmul(simd.shuffle(builder, each, each, lanes), emit.splat(builder, d))


@inline
def signed(value: int, signs: int, j: int) -> Any:
    """A value with OFFSET, negated if bit j of ``signs`` is set."""
    return OFFSET - value if signs >> j & 1 else OFFSET + value


@inline
def signed_evenly(value: int, seven: int, j: int) -> Any:
    """As signed, for seven bits and their parity."""
    odd = seven ^ seven >> 4
    odd ^= odd >> 2
    odd ^= odd >> 1
    return signed(value, seven | (odd & 1) << 7, j)
