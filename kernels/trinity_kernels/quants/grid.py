"""LLVM code for the rows of codebooks and their signs; one by one, for the portable level.

Codes of IQ2 and IQ3 stand 64 above the values: a row's bytes are kept so, and the negative of
64 + v is 128 - (64 + v), one subtraction where a bit is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.isa import cpu_features, jit_disabled
from trinity_kernels.quants.codebooks import Grid

OFFSET = 64

if not jit_disabled():
    from numba.core import cgutils

    from trinity_kernels.quants import emit
    from trinity_kernels.quants.emit import I1, I8, I32, I64, ir


def _table(builder: Any, name: str, rows: Grid) -> Any:
    """A codebook as a constant of the module, a row to a word, and the words' type."""
    word = ir.IntType(8 * rows.shape[1])
    values = np.ascontiguousarray(rows).view(f"<u{rows.shape[1]}")[:, 0].tolist()
    kind = ir.ArrayType(word, len(values))
    found = builder.module.globals.get(f"trinity.{name}")
    if found is None:
        found = ir.GlobalVariable(builder.module, kind, f"trinity.{name}")
        found.linkage, found.global_constant, found.unnamed_addr = "internal", True, True
        found.align = 64
        found.initializer = ir.Constant(kind, values)
    return found, word


def low_bytes(builder: Any, block: Any, offsets: Sequence[int]) -> Any:
    """Bytes of a block as indices, <n x i32>."""
    packed = emit.load_bytes(builder, block, offsets[0], offsets[-1] + 1 - offsets[0])
    return spread(builder, packed, [at - offsets[0] for at in offsets], [0] * len(offsets))


def with_high_bits(builder: Any, index: Any, word: Any, shifts: Sequence[int], mask: int) -> Any:
    """Bits of an i32, one shift for each index, above the eight of an index."""
    # Rotated, so that one instruction shifts some lanes to the left and others to the right.
    words = emit.splat(builder, word, len(shifts))
    counts = emit.constant(words.type, [(8 - shift) % 32 for shift in shifts])
    name = f"llvm.fshl.v{len(shifts)}i32"
    turned = emit.call_named(builder, name, words.type, [words, words, counts])
    return builder.or_(index, emit.masked(builder, turned, mask << 8))


def rows(level: str, builder: Any, name: str, grid: Grid, index: Any) -> Any:
    """The rows of 8 that <8 x i32> names, or 16 of 4, as <64 x i8>."""
    table, word = _table(builder, name, grid)
    bytes_ = emit.vector(I8, 64)
    if level in ("amx", "avx512vnni") and "amx-tile" in cpu_features():
        kind = emit.vector(word, index.type.count)
        gather = f"llvm.x86.avx512.mask.gather.dp{'q' if word.width == 64 else 'i'}.512"
        args = [
            ir.Constant(kind, None), builder.bitcast(table, I8.as_pointer()), index,
            emit.constant(emit.vector(I1, kind.count), [1] * kind.count), I32(word.width // 8),
        ]  # fmt: skip
        return builder.bitcast(emit.call_named(builder, gather, kind, args), bytes_)
    # Through memory: lanes are slower to take out of a vector than to load.
    spilled = cgutils.alloca_once(builder, index.type)
    builder.store(index, spilled)
    lanes = builder.bitcast(spilled, I32.as_pointer())
    lanes = builder.asm(ir.FunctionType(lanes.type, [lanes.type]), "", "=r,0", [lanes], False)
    parts = []
    for start in range(0, index.type.count, 2):
        pair = ir.Constant(emit.vector(word, 2), ir.Undefined)
        for lane in range(2):
            at = builder.gep(lanes, [I32(start + lane)])
            row = builder.zext(builder.load(at), I64)
            value = builder.load(builder.gep(table, [I64(0), row]))
            pair = builder.insert_element(pair, value, I32(lane))
        parts.append(pair)
    while len(parts) > 1:
        lanes = list(range(2 * parts[0].type.count))
        parts = [emit.shuffle(builder, *parts[i : i + 2], lanes) for i in range(0, len(parts), 2)]
    return builder.bitcast(parts[0], bytes_)


def with_signs(builder: Any, codes: Any, signs: Any) -> Any:
    """Codes above OFFSET, those negated whose bit of an i64 is set."""
    negative = builder.bitcast(signs, emit.vector(I1, 64))
    turned = builder.sub(emit.constant(codes.type, [2 * OFFSET] * 64), codes)
    return builder.select(negative, turned, codes)


def even_signs_of(builder: Any, words: Any, lanes: Sequence[int], part: int) -> Any:
    """As even_signs, of 32 lanes of <n x i32>, each four of which have 7 bits each of a word."""
    bits = spread(builder, words, lanes, [0, 7, 14, 21] * 8)
    seven = emit.masked(builder, builder.trunc(bits, emit.vector(I8, 32)), 127)
    return even_signs(builder, seven, part)


def even_signs(builder: Any, seven: Any, part: int) -> Any:
    """A part's signs as an i64, of a block's 32 times 7, <32 x i8>: the eighth is the parity."""
    name = "llvm.ctpop.v32i8"
    ones = emit.call_named(builder, name, seven.type, [seven])
    eighth = builder.shl(ones, emit.constant(seven.type, [7] * 32))
    words = builder.bitcast(builder.or_(seven, eighth), emit.vector(I64, 4))
    return builder.extract_element(words, I32(part))


def spread(builder: Any, value: Any, lanes: Sequence[int], counts: Sequence[int]) -> Any:
    """Lanes of a vector, in any order, as <n x i32>, each shifted to the right by its count."""
    wide = emit.shuffle(builder, value, value, list(lanes))
    if wide.type.element != I32:
        wide = builder.zext(wide, emit.vector(I32, len(lanes)))
    return builder.lshr(wide, emit.constant(wide.type, counts))


def odd_scales(builder: Any, bits: Any, d: Any) -> Any:
    """(2 * bits + 1) * d of <n x i32>, 8 or 16, as <16 x float>; 8 lanes twice."""
    odd = builder.or_(
        builder.shl(bits, emit.constant(bits.type, [1] * bits.type.count)),
        emit.constant(bits.type, [1] * bits.type.count),
    )
    lanes = [i % bits.type.count for i in range(16)]
    each = builder.sitofp(odd, emit.vector(emit.F32, bits.type.count))
    return builder.fmul(emit.shuffle(builder, each, each, lanes), emit.splat(builder, d))


@inline
def signed(value: int, signs: int, j: int) -> int:
    """A value above OFFSET, negated where bit j of ``signs`` is set."""
    return OFFSET - value if signs >> j & 1 else OFFSET + value


@inline
def signed_evenly(value: int, seven: int, j: int) -> int:
    """As signed, of seven bits and their parity."""
    odd = seven ^ seven >> 4
    odd ^= odd >> 2
    odd ^= odd >> 1
    return signed(value, seven & 127 | (odd & 1) << 7, j)
