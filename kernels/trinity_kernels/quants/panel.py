"""16 rows of 32-element blocks side by side: what a vector multiplies by many tokens.

A panel holds, per block of 32 elements, the codes as 8 lines of 16 rows x 4 codes, then in arrays
of their own the 16 scales and the 16 minima of each block, or of both halves where 16 elements have
a scale. ``panel_blocks`` multiplies the lines by 4 activations that all rows share, so a lane is a
row: no sum across lanes, one scale per row, block and token.

Codes of x86's VNNI are unsigned: signed ones are moved up by 128, which the minimum takes back.
AVX2 adds products of codes up to 31 in 16 bits, others one by one, of signed codes with their signs
moved onto the activations.

Numerics: an output is off by what rounding its terms to float32 gives, where the terms are scale *
scale * code as it stands in the panel, and the minima: up to 130 times what the values give for
signed codes moved up by 128.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.block32 import block32_types, block_of
from trinity_kernels.quants.superblock import superblock_of, superblock_types
from trinity_kernels.quants.unpack import step_bytes

# Tokens that are multiplied together: as many as the registers hold sums of.
TOKENS = {"avx512vnni": 8, "avx2": 2, "neon": 4}


def block_panel_types() -> frozenset[str]:
    """The types that come in these panels."""
    return block32_types() | superblock_types()


def is_signed(quant: str) -> bool:
    """Whether a type's codes are signed bytes."""
    found = block_of(quant) if quant in block32_types() else superblock_of(quant)
    return found.signed


def _largest_code(quant: str) -> int:
    return 31 if quant in block32_types() else superblock_of(quant).top


def _has_halves(quant: str) -> bool:
    """Whether 16 elements have a scale of their own."""
    return quant in superblock_types() and superblock_of(quant).group == 16


def has_halves(qt: Any) -> Any:
    """_has_halves, by the type's tag."""


@choose(has_halves)
def _has_halves_of(qt: Any) -> Any:
    return (lambda qt: True) if _has_halves(qt.value) else (lambda qt: False)


def block_panel_bytes(k: int) -> int:
    """Bytes of a panel of rows of ``k`` elements, and 3072 to turn it in."""
    blocks = -(-k // 64) * 2
    return blocks * (512 + 256) + 3072


def _is_flipped(isa: Any, qt: Any) -> bool:
    return is_signed(qt.value) and isa.value == "avx512vnni"


if not jit_disabled():
    from llvmlite import ir
    from numba.core import cgutils, types

    from trinity_kernels import byte_dots, simd, tiles
    from trinity_kernels._jit import intrinsic
    from trinity_kernels.quants.block32 import codes_of_pair, strided_f16x16, strided_scales
    from trinity_kernels.quants.superblock import codes_of_part, minima_of, scales_of
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

    def _make_panel(isa: Any, qt: Any, w: int, stride: int, k: int, to: int) -> None: ...

    @choose(_make_panel)
    def _make_panel_of(isa: Any, qt: Any, w: Any, stride: Any, k: Any, to: Any) -> Any:
        nbytes = step_bytes(qt.value) // 8
        if qt.value in superblock_types():
            return _panel_of_superblocks
        return lambda isa, qt, w, stride, k, to: _panel_of_blocks(isa, qt, w, stride, nbytes, k, to)

    @inline
    def _panel_of_blocks(
        isa: Any, qt: Any, w: int, stride: int, nbytes: int, k: int, to: int
    ) -> None:
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

    def _turn_part(
        isa: Any, qt: Any, w: int, stride: int, part: int, spare: int, to: int
    ) -> None: ...

    @choose(_turn_part)
    def _turn_part_of(
        isa: Any, qt: Any, w: Any, stride: Any, part: Any, spare: Any, to: Any
    ) -> Any:
        if not isinstance(part, types.IntegerLiteral):
            return None
        p = part.literal_value

        def turn(isa: Any, qt: Any, w: int, stride: int, part: int, spare: int, to: int) -> None:
            for row in range(16):
                codes = _flip(isa, qt, codes_of_part(isa, qt, w + row * stride, p))
                simd.store_i8x64(spare + 64 * row, codes)
            tiles.transpose_16x16(spare, to + 1024 * p, 64)

        return turn

    def _layout(isa: Any, qt: Any) -> Any: ...

    @choose(_layout)
    def _layout_of(isa: Any, qt: Any) -> Any:
        # Bytes, elements, elements to a scale, to a minimum (0: none), what codes stand above.
        block = superblock_of(qt.value)
        above = 128 if _is_flipped(isa, qt) else block.offset
        found = block.nbytes, block.elements, block.group, block.minima, above
        return lambda isa, qt: found

    def _panel_of_superblocks(isa: Any, qt: Any, w: int, stride: int, k: int, to: int) -> None:
        size, elements, group, minima, above = _layout(isa, qt)
        scales = to + 1024 * ((k + 63) // 64)
        lines = 4 if group == 16 else 2
        spare = scales + 64 * lines * (k // 32)
        least = simd.splat_f32x16(np.float32(-above))
        zero = simd.splat_f32x16(np.float32(0))
        for b in range(k // elements):
            block = w + b * size
            codes = to + 16 * elements * b
            _turn_part(isa, qt, block, stride, 0, spare, codes)
            if elements > 64:
                _turn_part(isa, qt, block, stride, 1, spare, codes)
            if elements > 128:
                _turn_part(isa, qt, block, stride, 2, spare, codes)
                _turn_part(isa, qt, block, stride, 3, spare, codes)
            # The rows' lanes of scales, turned: one line for each lane.
            for row in range(16):
                simd.store_f32x16(spare + 64 * row, scales_of(qt, block + row * stride))
            tiles.transpose_16x16(spare, spare + 1024, 64)
            if minima == 16:
                for row in range(16):
                    simd.store_f32x16(spare + 64 * row, minima_of(qt, block + row * stride))
                tiles.transpose_16x16(spare, spare + 2048, 64)
            for j in range(elements // 32):
                line = scales + 64 * lines * (b * (elements // 32) + j)
                for half in range(lines // 2):
                    lane = j if group == 32 else (2 * j + half if group == 16 else 0)
                    d = simd.load_f32x16(spare + 1024 + 64 * lane)
                    m = d * least
                    if minima == 32:
                        m = zero - simd.load_f32x16(spare + 1024 + 64 * (8 + lane))
                    elif minima == 16:
                        m = zero - simd.load_f32x16(spare + 2048 + 64 * lane)
                    simd.store_f32x16(line + 64 * half, d)
                    simd.store_f32x16(line + 64 * (lines // 2 + half), m)

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

    def _emit_unsigned(builder: Any, lines: list[Any], words: list[Any]) -> Any:
        """AVX2, codes up to 127: pairs of products fit 16 bits, fours do not."""
        half, eight = ir.VectorType(simd.I16, 16), ir.VectorType(I32, 8)
        ones = ir.Constant(half, [1] * 16)
        found = []
        for part in range(2):
            total = ir.Constant(eight, None)
            for line, word in zip(lines, words, strict=True):
                a = simd.shuffle(builder, line, line, list(range(32 * part, 32 * part + 32)))
                b = simd.shuffle(builder, word, word, list(range(32)))
                pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.ub.sw", half, [a, b])
                fours = simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", eight, [pairs, ones])
                total = builder.add(total, fours)
            found.append(total)
        return simd.shuffle(builder, found[0], found[1], list(range(16)))

    def _emit_block(level: str, quant: str, builder: Any, lines: Any, words: Any) -> Any:
        """<16 x i32>: the sums of 16 rows' products with the words of one token."""
        if level == "avx2":
            if is_signed(quant):
                return _emit_signed(builder, lines, words)
            small = _largest_code(quant) <= 31
            return (_emit_small if small else _emit_unsigned)(builder, lines, words)
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
        token's codes to its scales, and to its sums of blocks or of halves (quants/dot.py, q8).
        """
        level, quant = isa.value, qt.value
        parts = 2 if _has_halves(quant) else 1
        tokens, step = TOKENS[level], 8 // parts

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
                at = builder.add(scales, builder.mul(b, I64(128 * parts)))
                factors = [
                    _load(builder, builder.add(at, I64(64 * i)), F32X16) for i in range(2 * parts)
                ]
                for t, row in enumerate(rows):
                    at = builder.add(row, builder.mul(b, I64(32)))
                    words = [
                        builder.bitcast(
                            _broadcast(builder, builder.add(at, I64(4 * g)), I32, I32X16), I8X64.ir
                        )
                        for g in range(8)
                    ]
                    at = builder.add(row, builder.mul(b, I64(4)))
                    scale = _broadcast(builder, builder.add(at, x_scales), simd.F32, F32X16)
                    at = builder.add(row, builder.mul(b, I64(4 * parts)))
                    at = builder.add(at, x_sums)
                    total = builder.load(sums[t])
                    for i in range(parts):
                        some = slice(step * i, step * i + step)
                        whole = _emit_block(level, quant, builder, lines[some], words[some])
                        whole = builder.sitofp(whole, F32X16.ir)
                        least = builder.add(at, I64(4 * i))
                        least = _broadcast(builder, least, simd.F32, F32X16)
                        total = _fma(builder, factors[parts + i], least, total)
                        total = _fma(builder, builder.fmul(factors[i], scale), whole, total)
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

    @inline
    def make_block_panel(isa: Any, qt: Any, w: int, stride: int, k: int, to: int) -> None:
        """16 rows, ``stride`` bytes apart, to a panel at ``to``."""
        _make_panel(isa, qt, w, stride, k, to)

    @inline
    def multiply_block_panel(
        isa: Any, qt: Any, panel: int, k: int, x: int, count: int, x_stride: int, to: int
    ) -> None:
        """A panel times ``count`` tokens: as many lines of 16 float32 at ``to``."""
        pairs = (k + 63) // 64
        x_scales = 64 * pairs
        x_sums = x_scales + (k + 511) // 512 * 64
        if has_halves(qt):
            x_sums += (k + 511) // 512 * 64 + 64 * pairs
        panel_blocks(
            isa, qt, panel, panel + 1024 * pairs, k // 32, x, count - 1, x_stride, x_scales,
            x_sums, to,
        )  # fmt: skip
