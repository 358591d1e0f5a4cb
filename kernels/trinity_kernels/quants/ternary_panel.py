"""16 rows of ternary codes side by side: what a vector multiplies by many tokens.

A panel holds, per 64 places of the ternary order, 16 lines of 16 rows x 4 codes, then per 256 codes
the 16 rows' scales where the type has them. A lane is a row: sums stay exact integers in their
lanes, and every result has the bits of a single token's dot product.

AVX2 adds products of codes up to 3 in 16 bits for 32 lines, before it widens them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_f32, get_i32
from trinity_kernels.quants.dot import FORMS, ternary_sums, ternary_tail
from trinity_kernels.quants.ternary_block import scale_of_256
from trinity_kernels.quants.unpack import tile_types, unpack_tile_row

# Tokens that are multiplied together: as many as the registers hold sums of.
TOKENS = {"avx512vnni": 8, "avx2": 4, "neon": 4}
_MOST = max(TOKENS.values())


def ternary_panel_types() -> frozenset[str]:
    """The types that come in these panels."""
    return frozenset(name for name in tile_types() if FORMS[name] == "ternary")


@inline
def _codes_bytes(k: int) -> int:
    return (k + 255) // 256 * 4096


def ternary_panel_bytes(k: int) -> int:
    """Bytes of a panel, room to turn 256 places in, and the accumulators of some tokens."""
    return -(-k // 256) * (4096 + 64) + 4096 + 4 * 64 * _MOST


if not jit_disabled():
    from llvmlite import ir
    from numba.core import cgutils, types

    from trinity_kernels import byte_dots, simd, tiles
    from trinity_kernels._jit import intrinsic
    from trinity_kernels.quants.ternary_block import load_scales
    from trinity_kernels.simd import I8X64, I16, I32, I32X16, I64

    @inline
    def make_ternary_panel(isa: Any, qt: Any, w: int, stride: int, k: int, to: int) -> None:
        """16 rows, ``stride`` bytes apart, to a panel at ``to``."""
        blocks = (k + 255) // 256
        scales = to + _codes_bytes(k)
        spare = scales + 64 * blocks
        nbytes, _ = scale_of_256(qt)
        if nbytes == 0:
            nbytes = 64
        else:
            load_scales(qt, w, stride, blocks, scales)
        for b in range(blocks):
            size = min(256, k - 256 * b)
            for row in range(16):
                unpack_tile_row(isa, qt, w + row * stride + b * nbytes, spare + 64 * row, size)
            for piece in range(4):
                tiles.transpose_16x16(spare + 1024 * piece, to + 4096 * b + 1024 * piece, 64)

    def _emit_bytes(level: str, builder: Any, line: Any, words: Any, sums: Any) -> None:
        """Add a line's products with each token's word."""
        emit = byte_dots.emit_dot_i8i8 if level == "neon" else byte_dots.emit_dot_u8i8
        for word, total in zip(words, sums, strict=True):
            builder.store(emit(level, builder, builder.load(total), line, word), total)

    def _emit_halves(level: str, builder: Any, line: Any, words: Any, sums: Any) -> None:
        """The same in 16 bits; ``sums`` has two for each token."""
        half = ir.VectorType(I16, 16)
        for part in range(2):
            a = simd.shuffle(builder, line, line, list(range(32 * part, 32 * part + 32)))
            for word, total in zip(words, sums[part::2], strict=True):
                b = simd.shuffle(builder, word, word, list(range(32)))
                pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.ub.sw", half, [a, b])
                builder.store(builder.add(builder.load(total), pairs), total)

    def _widen(builder: Any, halves: Any, sums: Any) -> None:
        """Add the sums of 16 bits to those of 32, and begin them anew."""
        half, eight = ir.VectorType(I16, 16), ir.VectorType(I32, 8)
        ones = ir.Constant(half, [1] * 16)
        for t, total in enumerate(sums):
            both = [
                simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", eight, [builder.load(one), ones])
                for one in halves[2 * t : 2 * t + 2]
            ]
            whole = simd.shuffle(builder, both[0], both[1], list(range(16)))
            builder.store(builder.add(builder.load(total), whole), total)
            for one in halves[2 * t : 2 * t + 2]:
                builder.store(ir.Constant(half, None), one)

    @intrinsic
    def panel_codes(
        typingctx: Any, isa: Any, panel: Any, blocks: Any, x: Any, last_token: Any, x_stride: Any,
        to: Any,
    ) -> Any:  # fmt: skip
        """Blocks of 256 codes times ``TOKENS`` tokens: as many lines of 16 int32 at ``to``.

        Of tokens behind ``last_token`` that one is taken.
        """
        level = isa.value
        tokens = TOKENS[level]
        # Lines whose products fit 16 bits: 32 x 2 x 3 x 128 is below 2**15.
        step = 32 if level == "avx2" else 16

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            _, panel, blocks, x, last, stride, to = args
            sums = [cgutils.alloca_once(builder, I32X16.ir) for _ in range(tokens)]
            kind = ir.VectorType(I16, 16)
            halves = [cgutils.alloca_once(builder, kind) for _ in range(2 * tokens)]
            rows = []
            for t in range(tokens):
                builder.store(ir.Constant(I32X16.ir, None), sums[t])
                over = builder.icmp_signed("<", last, I64(t))
                number = builder.select(over, last, I64(t))
                rows.append(builder.add(x, builder.mul(number, stride)))
            if level == "avx2":
                for one in halves:
                    builder.store(ir.Constant(kind, None), one)
            with cgutils.for_range(builder, builder.mul(blocks, I64(64 // step))) as loop:
                first = builder.mul(loop.index, I64(64 * step))
                place = builder.mul(loop.index, I64(4 * step))
                for g in range(step):
                    at = builder.add(panel, builder.add(first, I64(64 * g)))
                    line = builder.load(simd.pointer(builder, at, I8X64.ir), align=1)
                    words = []
                    for row in rows:
                        at = builder.add(row, builder.add(place, I64(4 * g)))
                        one = builder.load(simd.pointer(builder, at, I32), align=1)
                        both = simd.broadcast(builder, one, I32X16)
                        words.append(builder.bitcast(both, I8X64.ir))
                    if level == "avx2":
                        _emit_halves(level, builder, line, words, halves)
                    else:
                        _emit_bytes(level, builder, line, words, sums)
                if level == "avx2":
                    _widen(builder, halves, sums)
            for t in range(tokens):
                at = simd.pointer(builder, builder.add(to, I64(64 * t)), I32X16.ir)
                builder.store(builder.load(sums[t]), at, align=1)
            return context.get_dummy_value()

        return types.void(isa, *[types.intp] * 6), codegen

    @inline
    def _multiply_whole(
        isa: Any, qt: Any, panel: int, k: int, x: int, count: int, x_stride: int, to: int
    ) -> None:
        panel_codes(isa, panel, (k + 255) // 256, x, count - 1, x_stride, to)
        for t in range(count):
            tail = ternary_tail(x + t * x_stride, k)
            exact = simd.load_i32x16(to + 64 * t) - simd.splat_i32x16(int(get_i32(tail + 4)))
            y = simd.to_f32x16(exact) / simd.splat_f32x16(get_f32(tail))
            simd.store_f32x16(to + 64 * t, y)

    @inline
    def _multiply_blocks(
        isa: Any, qt: Any, panel: int, k: int, x: int, count: int, x_stride: int, to: int
    ) -> None:
        blocks = k // 256
        scales = panel + _codes_bytes(k)
        # Four accumulators for each token.
        room = scales + 64 * blocks + 4096
        for line in range(0, 256 * count, 64):
            simd.store_f32x16(room + line, simd.splat_f32x16(np.float32(0)))
        for b in range(blocks):
            panel_codes(isa, panel + 4096 * b, 1, x + 256 * b, count - 1, x_stride, to)
            d = simd.load_f32x16(scales + 64 * b)
            for t in range(count):
                below = int(get_i32(ternary_sums(x + t * x_stride, k) + 4 * b))
                exact = simd.load_i32x16(to + 64 * t) + simd.splat_i32x16(below)
                at = room + 256 * t + b % 4 * 64
                y = simd.fma_f32x16(d, simd.to_f32x16(exact), simd.load_f32x16(at))
                simd.store_f32x16(at, y)
        for t in range(count):
            at = room + 256 * t
            even = simd.load_f32x16(at) + simd.load_f32x16(at + 128)
            odd = simd.load_f32x16(at + 64) + simd.load_f32x16(at + 192)
            s = get_f32(ternary_tail(x + t * x_stride, k))
            simd.store_f32x16(to + 64 * t, (even + odd) / simd.splat_f32x16(s))

    @inline
    def multiply_ternary_panel(
        isa: Any, qt: Any, panel: int, k: int, x: int, count: int, x_stride: int, to: int
    ) -> None:
        """A panel times ``count`` tokens: as many lines of 16 float32 at ``to``."""
        if scale_of_256(qt)[0] == 0:
            _multiply_whole(isa, qt, panel, k, x, count, x_stride, to)
        else:
            _multiply_blocks(isa, qt, panel, k, x, count, x_stride, to)
