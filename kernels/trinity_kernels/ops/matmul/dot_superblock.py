"""Dot products of superblocks, which have one scale or several: 64 codes at a time.

Each of the three codes of activations of 19 bits is multiplied by the weights' codes.

Numerics: the integer sums of a part are exact. With f = weight's scale * activations' scale, f *
sum of each lane of four elements is added by a fused multiply-add to one of two accumulators (even
and odd parts), which are added at the end. Minima of 32 or 16 elements are multiplied by the
activations' scaled sums separately, eight or sixteen lanes for a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots, memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd, types
from trinity_kernels.instructions import instructions
from trinity_kernels.lanes import tree_sum, zero_lanes
from trinity_kernels.ops.matmul.activations import (
    q8_groups,
    q8_halves,
    q8_scales,
    q8_sums,
    q19_groups,
    q19_halves,
    q19_middle,
    q19_number,
    q19_scales,
    q19_sums,
)
from trinity_kernels.ops.matmul.dot_block32 import fine_products
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import (
    code,
    codes_of_part,
    elements,
    group,
    is_fine,
    minima,
    minima_of,
    minimum,
    nbytes,
    offset,
    reader_of,
    scale,
    scales_of,
)
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.tags import chosen, per_level


@chosen
def _product(isa: Any, qt: Any, sums: Any, codes: Any, x: Any, middle: Any) -> Any:
    """The exact lanes of a part's products; ``middle``: the address of the middle codes."""
    block = reader_of(qt.value, SuperBlock)
    if block.signed:

        def signed(isa: Any, qt: Any, sums: int, codes: Any, x: int, middle: int) -> Any:
            a = simd.load_i32x16(sums)
            return byte_dots.dot_i8i8_sums(isa, a, codes, simd.load_i8x64(x))

        return signed
    if block.offset == 0:

        def unsigned(isa: Any, qt: Any, sums: int, codes: Any, x: int, middle: int) -> Any:
            return byte_dots.dot_u8i8(isa, simd.splat_i32x16(0), codes, simd.load_i8x64(x))

        return unsigned
    bits = block.offset.bit_length() - 1
    if block.form == "q19":

        def fine(isa: Any, qt: Any, sums: int, codes: Any, x: int, middle: int) -> Any:
            start = simd.load_i32x16(sums) << simd.splat_i32x16(bits)
            return fine_products(isa, qt, codes, start, x, middle)

        return fine

    def above(isa: Any, qt: Any, sums: int, codes: Any, x: int, middle: int) -> Any:
        start = simd.load_i32x16(sums) << simd.splat_i32x16(bits)
        return byte_dots.dot_u8i8(isa, start, codes, simd.load_i8x64(x))

    return above


@chosen
def _add_part(
    isa: Any, qt: Any, acc: Any, f: Any, block: Any, x: Any, middle: Any, groups: Any, part: Any
) -> Any:
    if not isinstance(part, types.IntegerLiteral):
        return None
    p = part.literal_value

    def add_part(
        isa: Any, qt: Any, acc: Any, f: Any, block: int, x: int, middle: int, groups: int,
        part: int,
    ) -> Any:  # fmt: skip
        codes = codes_of_part(isa, qt, block, p)
        sums = _product(isa, qt, groups + 64 * p, codes, x + 64 * p, middle + 64 * p)
        return simd.fma_f32x16(spread(qt, f, p), simd.to_f32x16(sums), acc)

    return add_part


@instructions("f32x16", "tag", "intp", "intp")
def factors(builder: Any, qt: Any, scales: Any, sums: Any) -> Any:
    """The factors of a block's 16 lanes: the activations' scales, and sums for minima of 32."""
    return emit_factors(builder, reader_of(qt.value, SuperBlock), scales, sums)


def emit_factors(builder: Any, block: SuperBlock, scales: Any, sums: Any) -> Any:
    """Emit ``factors``."""
    count = block.elements // 32
    vec = simd.Vec("f32", count).ir
    d, s = (builder.load(simd.pointer(builder, a, vec), align=1) for a in [scales, sums])
    if block.group <= 16:
        lanes = [i // 2 % count for i in range(16)]
    elif block.minima == 32:
        lanes = [*range(8), *range(8, 16)]
    else:
        lanes = [i % 8 % count for i in range(16)]
    return simd.shuffle(builder, d, s, lanes)


@instructions("f32x16", "tag", "f32x16", "literal")
def spread(builder: Any, qt: Any, vector: Any, part: Any) -> Any:
    """The lane of each group of a part (a literal), copied to the lanes of that group's sums."""
    lanes = lanes_of_part(reader_of(qt.value, SuperBlock), part)
    return simd.shuffle(builder, vector, vector, lanes)


def lanes_of_part(block: SuperBlock, part: int) -> list[int]:
    """The group of each lane of a part's sums."""
    group = min(block.group, 32)
    return [64 * part // group + 4 * i // group for i in range(16)]


@instructions("f32x16", "f32x16")
def upper(builder: Any, vector: Any) -> Any:
    """The upper eight lanes, followed by zeros."""
    zeros = ir.Constant(simd.F32X16.ir, None)
    return simd.shuffle(builder, vector, zeros, [*range(8, 16), *range(16, 24)])


@inline
def _places(qt: Any, k: int) -> Any:
    """Bytes from a row's codes to its scales, sums, groups and halves."""
    if is_fine(qt):
        return q19_scales(k), q19_sums(k), q19_groups(k), q19_halves(k)
    return q8_scales(k), q8_sums(k), q8_groups(k), q8_halves(k)


def _vector(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    even = simd.splat_f32x16(np.float32(0))
    odd = simd.splat_f32x16(np.float32(0))
    least = simd.splat_f32x16(np.float32(0))
    to_scales, to_sums, to_groups, to_halves = _places(qt, k)
    scales, sums, groups, halves = x + to_scales, x + to_sums, x + to_groups, x + to_halves
    middle = x + q19_middle(k)
    size, width = nbytes(qt), elements(qt)
    for b in range(k // width):
        block = w + b * size
        for line in range((size + 63) // 64):
            simd.prefetch(block + AHEAD + 64 * line)
        c, e = x + b * width, middle + b * width
        g = groups + b * width
        at = b * (width // 8)
        a = factors(qt, scales + at, sums + at)
        f = scales_of(qt, block) * a
        if minima(qt) == 32:
            least = least - f
        even = _add_part(isa, qt, even, f, block, c, e, g, 0)
        if width > 64:
            odd = _add_part(isa, qt, odd, f, block, c, e, g, 1)
        if width > 128:
            even = _add_part(isa, qt, even, f, block, c, e, g, 2)
            odd = _add_part(isa, qt, odd, f, block, c, e, g, 3)
        if minima(qt) == 16:
            least = least - minima_of(qt, block) * simd.load_f32x16(halves + 2 * at)
    total = simd.sum_f32x16(even + odd)
    if minima(qt) == 0:
        return total
    if minima(qt) == 32:
        least = upper(least)
    return np.float32(total + simd.sum_f32x16(least))


@per_level(_vector)
def dot_superblock(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    even = zero_lanes()
    odd = zero_lanes()
    least = zero_lanes()
    to_scales, to_sums, _, to_halves = _places(qt, k)
    scales, sums, halves = x + to_scales, x + to_sums, x + to_halves
    width = elements(qt)
    for b in range(k // width):
        block = w + b * nbytes(qt)
        first = b * width // 32
        for i in range(width // 4):
            e = 4 * i
            lane = i % 16
            total = 0
            for t in range(4):
                a = int(memory.get_i8(x + b * width + e + t))
                if is_fine(qt):
                    a = q19_number(x, k, b * width + e + t)
                total += (int(code(qt, block, e + t)) - offset(qt)) * a
            d = memory.get_f32(scales + 4 * (first + e // 32))
            f = np.float32(scale(qt, block, e // group(qt)) * d)
            if i // 16 % 2 == 0:
                even[lane] = memory.fma_f32(f, np.float32(total), even[lane])
            else:
                odd[lane] = memory.fma_f32(f, np.float32(total), odd[lane])
        if minima(qt) == 32:
            for g in range(width // 32):
                m = np.float32(minimum(qt, block, g) * memory.get_f32(sums + 4 * (first + g)))
                least[g] = np.float32(least[g] - m)
        if minima(qt) == 16:
            for g in range(16):
                half = halves + 4 * (2 * first + g)
                m = np.float32(minimum(qt, block, g) * memory.get_f32(half))
                least[g] = np.float32(least[g] - m)
    for i in range(16):
        even[i] = np.float32(even[i] + odd[i])
    if minima(qt) == 0:
        return tree_sum(even)
    return np.float32(tree_sum(even) + tree_sum(least))
