"""16 rows of 32-element blocks side by side: what a vector multiplies by many tokens.

A panel holds, per block, the codes as 8 lines of 16 rows x 4 codes, then in arrays of their own the
16 scales and the 16 minima of each block. ``panel_blocks`` multiplies the lines by 4 activations
that all rows share, so a lane is a row: no sum across lanes, one scale per row, block and token.

Codes of x86's VNNI are unsigned: signed ones are moved up by 128, which the minimum takes back.
AVX2 adds products of codes up to 31 in 16 bits, others one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.block32 import block32_types, block_of

# Tokens that are multiplied together: as many as the registers hold sums of.
TOKENS = {"avx512vnni": 8, "avx2": 2, "neon": 4}


def panel_types() -> frozenset[str]:
    """The types that come in panels."""
    return block32_types()


def panel_bytes(k: int) -> int:
    """Bytes of a panel of rows of ``k`` elements, and 1024 to turn it in."""
    blocks = -(-k // 64) * 2
    return blocks * (512 + 128) + 1024


def _is_flipped(isa: Any, qt: Any) -> bool:
    return bool(block_of(qt.value).signed and isa.value == "avx512vnni")


def tokens_at_once(isa: Any) -> Any:
    """``TOKENS`` of the level."""


@choose(tokens_at_once)
def _tokens_of(isa: Any) -> Any:
    count = TOKENS.get(isa.value, 1)
    return lambda isa: count


if not jit_disabled():
    from llvmlite import ir
    from numba.core import cgutils, types

    from trinity_kernels import byte_dots, simd, tiles
    from trinity_kernels._jit import intrinsic
    from trinity_kernels.quants.block32 import codes_of_pair, strided_f16x16, strided_scales
    from trinity_kernels.simd import F32X16, I8X64, I32, I32X16, I64

    def _flip(isa: Any, qt: Any, codes: Any) -> Any: ...

    @choose(_flip)
    def _flip_of(isa: Any, qt: Any, codes: Any) -> Any:
        if _is_flipped(isa, qt):
            return lambda isa, qt, codes: codes ^ simd.splat_i8x64(128)
        return lambda isa, qt, codes: codes

    def _minima(isa: Any, qt: Any, column: int, stride: int, d: Any) -> Any: ...

    @choose(_minima)
    def _minima_of(isa: Any, qt: Any, column: Any, stride: Any, d: Any) -> Any:
        block = block_of(qt.value)
        if block.min_at:
            at = block.min_at
            return lambda isa, qt, column, stride, d: strided_f16x16(column + at, stride)
        offset = np.float32(-(1 << block.offset_bits) if block.offset_bits else 0)
        if _is_flipped(isa, qt):
            offset = np.float32(-128)
        return lambda isa, qt, column, stride, d: d * simd.splat_f32x16(offset)

    @inline
    def make_panel(isa: Any, qt: Any, w: int, stride: int, nbytes: int, k: int, to: int) -> None:
        """16 rows, ``stride`` bytes apart, to a panel at ``to``; ``nbytes`` to a block."""
        blocks = k // 32
        pairs = (blocks + 1) // 2
        scales = to + 1024 * pairs
        spare = scales + 256 * pairs
        for pair in range(pairs):
            first = w + 2 * pair * nbytes
            second = first + nbytes
            if 2 * pair + 1 == blocks:
                second = 0
            for row in range(16):
                other = second
                if second != 0:
                    other = second + row * stride
                codes = _flip(isa, qt, codes_of_pair(isa, qt, first + row * stride, other))
                simd.store_i8x64(spare + 64 * row, codes)
            tiles.transpose_16x16(spare, to + 1024 * pair, 64)
        for b in range(blocks):
            column = w + b * nbytes
            d = strided_scales(qt, column, stride)
            simd.store_f32x16(scales + 128 * b, d)
            simd.store_f32x16(scales + 128 * b + 64, _minima(isa, qt, column, stride, d))

    def _emit_small(builder: Any, lines: list[Any], words: list[Any]) -> Any:
        """AVX2, codes up to 31: eight pairs of products fit 16 bits."""
        half = ir.VectorType(simd.I16, 16)
        ones = ir.Constant(half, [1] * 16)
        found = []
        for part in range(2):
            total = ir.Constant(half, None)
            for line, word in zip(lines, words, strict=True):
                a = simd.shuffle(builder, line, line, list(range(32 * part, 32 * part + 32)))
                b = simd.shuffle(builder, word, word, list(range(32)))
                pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.ub.sw", half, [a, b])
                total = builder.add(total, pairs)
            eight = ir.VectorType(I32, 8)
            found.append(simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", eight, [total, ones]))
        return simd.shuffle(builder, found[0], found[1], list(range(16)))

    def _emit_signed(builder: Any, lines: list[Any], words: list[Any]) -> Any:
        """AVX2, signed codes: their signs are moved onto the activations."""
        bytes_, half = ir.VectorType(simd.I8, 32), ir.VectorType(simd.I16, 16)
        eight = ir.VectorType(I32, 8)
        ones = ir.Constant(half, [1] * 16)
        found = []
        for part in range(2):
            total = ir.Constant(eight, None)
            for line, word in zip(lines, words, strict=True):
                a = simd.shuffle(builder, line, line, list(range(32 * part, 32 * part + 32)))
                b = simd.shuffle(builder, word, word, list(range(32)))
                size = simd.call_named(builder, "llvm.x86.avx2.psign.b", bytes_, [a, a])
                sign = simd.call_named(builder, "llvm.x86.avx2.psign.b", bytes_, [b, a])
                pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.ub.sw", half, [size, sign])
                fours = simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", eight, [pairs, ones])
                total = builder.add(total, fours)
            found.append(total)
        return simd.shuffle(builder, found[0], found[1], list(range(16)))

    def _emit_block(level: str, signed: bool, builder: Any, lines: Any, words: Any) -> Any:
        """<16 x i32>: the sums of 16 rows' 32 products, one token."""
        if level == "avx2":
            return (_emit_signed if signed else _emit_small)(builder, lines, words)
        emit = byte_dots.emit_dot_i8i8 if level == "neon" else byte_dots.emit_dot_u8i8
        total = ir.Constant(I32X16.ir, None)
        for line, word in zip(lines, words, strict=True):
            total = emit(level, builder, total, line, word)
        return total

    @intrinsic
    def panel_blocks(
        typingctx: Any, isa: Any, qt: Any, panel: Any, scales: Any, blocks: Any, x: Any,
        last_token: Any, x_stride: Any, x_scales: Any, x_sums: Any, to: Any,
    ) -> Any:  # fmt: skip
        """A panel times ``TOKENS`` tokens at ``x``: as many lines of 16 float32 at ``to``.

        Of tokens behind ``last_token`` that one is taken. ``x_scales``, ``x_sums``: bytes from a
        token's codes to its scales and sums (quants/dot.py, form q8).
        """
        level, signed = isa.value, block_of(qt.value).signed
        tokens = TOKENS[level]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            _, _, panel, scales, blocks, x, last, stride, x_scales, x_sums, to = args
            sums = [cgutils.alloca_once(builder, F32X16.ir) for _ in range(tokens)]
            rows = []
            for t in range(tokens):
                builder.store(ir.Constant(F32X16.ir, None), sums[t])
                over = builder.icmp_signed("<", last, I64(t))
                number = builder.select(over, last, I64(t))
                rows.append(builder.add(x, builder.mul(number, stride)))
            with cgutils.for_range(builder, blocks) as loop:
                b = loop.index
                at = builder.add(panel, builder.mul(b, I64(512)))
                lines = [_load(builder, builder.add(at, I64(64 * g)), I8X64) for g in range(8)]
                at = builder.add(scales, builder.mul(b, I64(128)))
                d = _load(builder, at, F32X16)
                m = _load(builder, builder.add(at, I64(64)), F32X16)
                for t, row in enumerate(rows):
                    at = builder.add(row, builder.mul(b, I64(32)))
                    words = [
                        builder.bitcast(
                            _broadcast(builder, builder.add(at, I64(4 * g)), I32, I32X16), I8X64.ir
                        )
                        for g in range(8)
                    ]
                    whole = _emit_block(level, signed, builder, lines, words)
                    at = builder.add(row, builder.mul(b, I64(4)))
                    scale = _broadcast(builder, builder.add(at, x_scales), simd.F32, F32X16)
                    least = _broadcast(builder, builder.add(at, x_sums), simd.F32, F32X16)
                    factor = builder.fmul(d, scale)
                    total = builder.load(sums[t])
                    total = _fma(builder, m, least, total)
                    total = _fma(builder, factor, builder.sitofp(whole, F32X16.ir), total)
                    builder.store(total, sums[t])
            for t in range(tokens):
                at = simd.pointer(builder, builder.add(to, I64(64 * t)), F32X16.ir)
                builder.store(builder.load(sums[t]), at, align=1)
            return context.get_dummy_value()

        return types.void(isa, qt, *[types.intp] * 9), codegen

    def _load(builder: Any, address: Any, vec: Any) -> Any:
        return builder.load(simd.pointer(builder, address, vec.ir), align=1)

    def _broadcast(builder: Any, address: Any, element: Any, vec: Any) -> Any:
        one = builder.load(simd.pointer(builder, address, element), align=1)
        return simd.broadcast(builder, one, vec)

    def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return simd.call_named(builder, "llvm.fma.v16f32", F32X16.ir, [a, b, c])
