"""Readers of blocks of 32 elements with one scale, and the functions that unpack their codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.quants.one_scale import OneScale


@dataclass(frozen=True, slots=True, kw_only=True)
class Block32(OneScale):
    """How a type's blocks are read. The form of the activations is "q8" or, of unsigned codes,
    "q19".
    """

    top: int = 31
    # codes(isa, first, second): 64 codes as a vector of bytes, from the addresses of two blocks;
    # ``second`` is 0 at the end of a row.
    codes: Callable[..., Any]
    # code(block, e): the code of element e.
    code: Callable[..., Any]

    @property
    def has_exact_groups(self) -> bool:
        """Four blocks are four groups."""
        return True


@instructions("i8x64", "i8x32")
def nibbles(builder: Any, packed: Any) -> Any:
    """The 64 codes of two blocks of 16 bytes: each block's low nibbles, then its high ones."""
    order = [*range(16), *range(16), *range(16, 32), *range(16, 32)]
    doubled = simd.shuffle(builder, packed, packed, order)
    words = builder.bitcast(doubled, simd.I16X32.ir)
    counts = ([0] * 8 + [4] * 8) * 2
    shifted = builder.lshr(words, ir.Constant(simd.I16X32.ir, counts))
    codes = builder.bitcast(shifted, simd.I8X64.ir)
    return builder.and_(codes, ir.Constant(simd.I8X64.ir, [15] * 64))


@instructions("i8x64", "uint32", "uint32")
def fifth_bits(builder: Any, low: Any, high: Any) -> Any:
    """64 bits, 32 of each block, as bytes of 0 or 16."""
    i64 = ir.IntType(64)
    bits = builder.or_(builder.zext(low, i64), builder.shl(builder.zext(high, i64), i64(32)))
    mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), 64))
    vec = simd.I8X64.ir
    return builder.select(mask, ir.Constant(vec, [16] * 64), ir.Constant(vec, [0] * 64))


@inline
def load_nibbles(first: int, second: int) -> Any:
    """64 nibbles of two blocks of 16 bytes; zeros if ``second`` is 0."""
    low = simd.load_i8x16(first)
    if second == 0:
        return nibbles(simd.concat_i8x16(low, simd.splat_i8x16(0)))
    return nibbles(simd.concat_i8x16(low, simd.load_i8x16(second)))
