"""How blocks of 32 elements with one scale are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class Block32:
    """How one type's blocks are read.

    ``codes(isa, first, second)``: 64 codes as a byte vector from the addresses of two blocks, of
    which the second is 0 where the row ends. ``code(block, e)``: that of element e. The codes are
    unsigned and stand ``offset`` (0 or a power of 2) above the values, or are ``signed``.
    ``top``: the largest of unsigned codes.
    ``form``: of the activations (ops/matmul/activations.py), "q8" or, of unsigned codes, "q19".
    ``scales``: what a block begins with: its scale as "f16", "bf16" or "f32", or "e8m0", the
    exponent of the power of 2 above its scale, in 8 bits. ``minimum_at``: byte of a block's
    minimum, a number of the same kind that is added (0: none). ``bytes_at``: byte of a block from
    which its codes lie as signed bytes; ``nibbles_at``: from which 16 bytes hold the codes,
    elements 0 to 15 in the lower halves (0: they do not).
    """

    nbytes: int
    codes: Callable[..., Any]
    code: Callable[..., Any]
    form: str = "q8"
    offset: int = 0
    signed: bool = False
    top: int = 31
    scales: str = "f16"
    minimum_at: int = 0
    bytes_at: int = 0
    nibbles_at: int = 0


@instructions("i8x64", "i8x32")
def nibbles(builder: Any, packed: Any) -> Any:
    """Two blocks of 16 bytes to 64 codes: each block's low nibbles, then its high ones."""
    order = [*range(16), *range(16), *range(16, 32), *range(16, 32)]
    doubled = simd.shuffle(builder, packed, packed, order)
    words = builder.bitcast(doubled, simd.I16X32.ir)
    counts = ([0] * 8 + [4] * 8) * 2
    shifted = builder.lshr(words, ir.Constant(simd.I16X32.ir, counts))
    codes = builder.bitcast(shifted, simd.I8X64.ir)
    return builder.and_(codes, ir.Constant(simd.I8X64.ir, [15] * 64))


@instructions("i8x64", "uint32", "uint32")
def fifth_bits(builder: Any, low: Any, high: Any) -> Any:
    """64 bits, 32 of each block, to bytes of 0 or 16."""
    i64 = ir.IntType(64)
    bits = builder.or_(builder.zext(low, i64), builder.shl(builder.zext(high, i64), i64(32)))
    mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), 64))
    vec = simd.I8X64.ir
    return builder.select(mask, ir.Constant(vec, [16] * 64), ir.Constant(vec, [0] * 64))


@inline
def load_nibbles(first: int, second: int) -> Any:
    """64 nibbles from two blocks' 16 bytes; ``second`` 0 stands for zeros."""
    low = simd.load_i8x16(first)
    if second == 0:
        return nibbles(simd.concat_i8x16(low, simd.splat_i8x16(0)))
    return nibbles(simd.concat_i8x16(low, simd.load_i8x16(second)))
