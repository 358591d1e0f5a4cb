"""Keys, values and queries as int8 codes: attention and storing for the tag Q8_0.

kv_layout.py has the layout of keys and values. A query is quantized for each block of positions: a
float32 scale for 32 elements, codes padded with zeros to a whole block, the scales, and for each
block -128 times the sum of its codes (int32).
Numerics: the product of 32 codes is an exact integer; times the key's scale times the query's scale
it is added to the score by a fused multiply-add. A value's code is multiplied by its probability
times its scale. A scale of keys or values is rounded to float16 before codes are computed; a value
that is not finite makes it NaN. The bits are the same on every level.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import (
    fma_f32,
    get_f16,
    get_f32,
    get_i8,
    get_i32,
    set_f16,
    set_f32,
    set_i8,
    set_i32,
)
from trinity_kernels.ops.kv_layout import tile_bytes
from trinity_kernels.ops.matmul.q8_tables import TINY, load_before, q8_codes, q8_scale
from trinity_kernels.tags import constant, per_level, shared

WEIGHTS = 4 * 512  # bytes of the weighted probabilities of four queries


@shared
def codes_bytes(head_dim: int) -> int:
    """Bytes of a thread's scratch: weighted probabilities and codes of four queries."""
    return WEIGHTS + 4 * int(query_bytes(head_dim))


@inline
def query_bytes(head_dim: int) -> int:
    """Bytes of a quantized query."""
    return 40 * ((head_dim + 31) // 32)


@inline
def _largest(x: int, first: int, last: int) -> Any:
    """The largest magnitude of some elements; NaN if one is not finite."""
    largest = np.float32(0)
    poison = np.float32(0)
    for i in range(first, last):
        v = get_f32(x + 4 * i)
        magnitude = np.float32(abs(v))
        largest = magnitude if magnitude > largest else largest
        poison = np.float32(poison + np.float32(v * np.float32(0)))
    return np.float32(largest + poison)


@inline
def _code(x: Any, inverse: Any) -> int:
    scaled = np.float32(x * inverse)
    if scaled == scaled:
        return int(np.rint(max(np.float32(-127), min(np.float32(127), scaled))))
    return 0


@inline
def store_codes(x: int, dim: int, codes: int, group: int, scales: int, step: int) -> None:
    """Quantize a head of ``dim`` float32.

    Each 4 codes are ``group`` bytes after the previous ones, each scale ``step`` bytes.
    """
    for b in range((dim + 31) // 32):
        last = min(32 * b + 32, dim)
        largest = _largest(x, 32 * b, last)
        set_f16(scales + step * b, np.float32(largest / np.float32(127)))
        d = get_f16(scales + step * b)
        inverse = np.float32(0)
        if d > 0:
            inverse = np.float32(np.float32(1) / d)
        for i in range(32 * b, last):
            code = _code(get_f32(x + 4 * i), inverse)
            set_i8(codes + i // 4 * group + i % 4, np.int8(code))


def quantize_query(isa: Any, q: int, head_dim: int, to: int) -> None:
    """Quantize a query of ``head_dim`` float32 to ``query_bytes``."""
    blocks = (head_dim + 31) // 32
    for b in range(blocks):
        last = min(32 * b + 32, head_dim)
        largest = _largest(q, 32 * b, last)
        d = np.float32(largest * np.float32(0))
        inverse = np.float32(0)
        if largest > TINY:
            d = np.float32(d + np.float32(largest / np.float32(127)))
            inverse = np.float32(np.float32(127) / largest)
        total = 0
        for i in range(32 * b, 32 * b + 32):
            code = 0
            if i < last:
                code = _code(get_f32(q + 4 * i), inverse)
            set_i8(to + i, np.int8(code))
            total += code
        set_f32(to + 32 * blocks + 4 * b, d)
        set_i32(to + 36 * blocks + 4 * b, np.int32(-128 * total))


def _vector_query(isa: Any, q: int, head_dim: int, to: int) -> None:
    blocks = (head_dim + 31) // 32
    for b in range(blocks):
        at = 32 * b
        v0 = load_before(q, at, head_dim)
        v1 = simd.splat_f32x16(np.float32(0))
        if at + 16 < head_dim:
            v1 = load_before(q, at + 16, head_dim)
        d, inverse = q8_scale(v0, v1)
        low, high = q8_codes(v0, inverse), q8_codes(v1, inverse)
        simd.store_i8x16(to + at, low)
        simd.store_i8x16(to + at + 16, high)
        total = simd.sum_i32x16(simd.widen_i8x16(low) + simd.widen_i8x16(high))
        set_f32(to + 32 * blocks + 4 * b, d)
        set_i32(to + 36 * blocks + 4 * b, np.int32(-128 * total))


per_level(_vector_query)(quantize_query)


def score(qt: Any, q: int, keys: int, j: int, head_dim: int) -> Any:
    """The product of a quantized query with the key of position ``j``."""
    blocks = (head_dim + 31) // 32
    tile = keys + j // 16 * int(tile_bytes(qt, head_dim))
    scales = tile + (head_dim + 3) // 4 * 64
    s = np.float32(0)
    for b in range(blocks):
        total = 0
        for d in range(32 * b, min(32 * b + 32, head_dim)):
            code = int(get_i8(tile + d // 4 * 64 + j % 16 * 4 + d % 4))
            total += code * int(get_i8(q + d))
        scale = np.float32(get_f16(scales + 32 * b + j % 16 * 2) * get_f32(q + 32 * blocks + 4 * b))
        s = fma_f32(np.float32(total), scale, s)
    return s


@constant
def _biased(isa: Any) -> int:
    """Whether codes of keys become unsigned: 128 is added to each."""
    return 1 if isa.value in ("amx", "avx512vnni") else 0


@inline
def _codes(isa: Any, address: int) -> Any:
    """4 codes of 16 keys, as ``_add`` takes them."""
    codes = simd.load_i8x64(address)
    if _biased(isa) == 1:
        codes = codes ^ simd.splat_i8x64(-128)
    return codes


@inline
def _start(isa: Any, negated: int) -> Any:
    """What sums of a block begin with."""
    if _biased(isa) == 1:
        return simd.splat_i32x16(get_i32(negated))
    return simd.splat_i32x16(0)


@inline
def _add(isa: Any, total: Any, codes: Any, query: int) -> Any:
    """Add the products of 4 codes of a query with those of 16 keys."""
    word = simd.i32x16_as_i8x64(simd.splat_i32x16(get_i32(query)))
    if _biased(isa) == 1:
        return byte_dots.dot_u8i8(isa, total, codes, word)
    return byte_dots.dot_i8i8(isa, total, codes, word)


@inline
def scores_1(
    isa: Any, qt: Any, q: int, head_dim: int, keys: int, tiles: int, scale: Any, p: int
) -> None:
    """The scores of one quantized query."""
    factor = simd.splat_f32x16(scale)
    blocks, fours = (head_dim + 31) // 32, (head_dim + 3) // 4
    for tile in range(tiles):
        k = keys + tile * int(tile_bytes(qt, head_dim))
        a = simd.splat_f32x16(np.float32(0))
        for b in range(blocks):
            at = q + 32 * blocks + 4 * b
            x = _start(isa, at + 4 * blocks)
            for i in range(8 * b, min(8 * b + 8, fours)):
                x = _add(isa, x, _codes(isa, k + 64 * i), q + 4 * i)
            s = simd.load_f16x16(k + 64 * fours + 32 * b)
            a = simd.fma_f32x16(simd.to_f32x16(x), s * simd.splat_f32x16(get_f32(at)), a)
        simd.store_f32x16(p + 64 * tile, a * factor)


@inline
def scores_4(
    isa: Any, qt: Any, q: int, head_dim: int, keys: int, tiles: int, scale: Any, p: int,
    values: int,
) -> None:  # fmt: skip
    """The scores of four quantized queries; prefetches the block's values, which are read next."""
    factor = simd.splat_f32x16(scale)
    blocks, fours = (head_dim + 31) // 32, (head_dim + 3) // 4
    step = query_bytes(head_dim)
    for tile in range(tiles):
        k = keys + tile * int(tile_bytes(qt, head_dim))
        a = simd.splat_f32x16(np.float32(0))
        b = simd.splat_f32x16(np.float32(0))
        c = simd.splat_f32x16(np.float32(0))
        e = simd.splat_f32x16(np.float32(0))
        for block in range(blocks):
            at = q + 32 * blocks + 4 * block
            start = at + 4 * blocks
            xa = _start(isa, start)
            xb = _start(isa, start + step)
            xc = _start(isa, start + 2 * step)
            xe = _start(isa, start + 3 * step)
            for i in range(8 * block, min(8 * block + 8, fours)):
                simd.prefetch_l2(values)
                values += 64
                codes = _codes(isa, k + 64 * i)
                word = q + 4 * i
                xa = _add(isa, xa, codes, word)
                xb = _add(isa, xb, codes, word + step)
                xc = _add(isa, xc, codes, word + 2 * step)
                xe = _add(isa, xe, codes, word + 3 * step)
            s = simd.load_f16x16(k + 64 * fours + 32 * block)
            of_b, of_c, of_e = at + step, at + 2 * step, at + 3 * step
            a = simd.fma_f32x16(simd.to_f32x16(xa), s * simd.splat_f32x16(get_f32(at)), a)
            b = simd.fma_f32x16(simd.to_f32x16(xb), s * simd.splat_f32x16(get_f32(of_b)), b)
            c = simd.fma_f32x16(simd.to_f32x16(xc), s * simd.splat_f32x16(get_f32(of_c)), c)
            e = simd.fma_f32x16(simd.to_f32x16(xe), s * simd.splat_f32x16(get_f32(of_e)), e)
        simd.store_f32x16(p + 64 * tile, a * factor)
        simd.store_f32x16(p + 512 + 64 * tile, b * factor)
        simd.store_f32x16(p + 1024 + 64 * tile, c * factor)
        simd.store_f32x16(p + 1536 + 64 * tile, e * factor)


@inline
def weigh(p: int, queries: int, tiles: int, scales: int, to: int) -> None:
    """Write probabilities times the scales of their positions' values."""
    for g in range(queries):
        for i in range(tiles):
            s = simd.load_f16x16(scales + 32 * i)
            at = 512 * g + 64 * i
            simd.store_f32x16(to + at, simd.load_f32x16(p + at) * s)
