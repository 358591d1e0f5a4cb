"""Rotate queries and keys by their positions, and store keys and values in the KV cache.

Shapes: Q is M rows of HEADS * HEAD_DIM float32, KEY of KV_HEADS * HEAD_DIM, VALUE of KV_HEADS *
VALUE_DIM. Q and KEY are rotated in place. If KV_HEADS is 0, nothing is stored.
TABLE has rows of ROPE_DIM / 2 cosines and as many sines, float32. They rotate ROPE_DIM values of a
head from FIRST on. TURNS is M int32, the row of TABLE of each token. INTERLEAVED 1 rotates pairs
(2i, 2i + 1), 0 pairs (i, i + ROPE_DIM / 2). TEMPERATURES is 0 or a float32 for each position, by
which queries are multiplied after the rotation.
POSITIONS is M int32. CACHES is M int64, the addresses of the tokens' page tables (attention.py).
Numerics: every product and sum is rounded to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i32, get_i64, set_f32, slots_of
from trinity_kernels.ops.kv_codes import store_codes
from trinity_kernels.ops.kv_layout import (
    key_head,
    padded_dim,
    set_element,
    tile_bytes,
    value_head,
    width,
)
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import chosen, per_level

Q, Q_STRIDE, KEY, KEY_STRIDE, VALUE, VALUE_STRIDE, POSITIONS, CACHES, LAYER_OFFSET = range(3, 12)
TABLE, TEMPERATURES, HEADS, KV_HEADS, HEAD_DIM, VALUE_DIM = range(12, 18)
FIRST, ROPE_DIM, INTERLEAVED, TURNS = range(18, 22)


@inline
def _turn(x: int, table: int, rope_dim: int, interleaved: int, i: int) -> None:
    """Rotate pair ``i``."""
    half = rope_dim // 2
    a = x + 4 * i
    b = a + 4 * half
    if interleaved != 0:
        a = x + 8 * i
        b = a + 4
    cos = get_f32(table + 4 * i)
    sin = get_f32(table + 4 * (half + i))
    x0 = get_f32(a)
    x1 = get_f32(b)
    set_f32(a, np.float32(np.float32(x0 * cos) - np.float32(x1 * sin)))
    set_f32(b, np.float32(np.float32(x0 * sin) + np.float32(x1 * cos)))


def _rotate(isa: Any, x: int, table: int, rope_dim: int, interleaved: int) -> None:
    for i in range(rope_dim // 2):
        _turn(x, table, rope_dim, interleaved, i)


def _vector_rotate(isa: Any, x: int, table: int, rope_dim: int, interleaved: int) -> None:
    half = rope_dim // 2
    whole = 0
    if interleaved == 0:
        whole = half // 16 * 16
        for i in range(0, whole, 16):
            a = x + 4 * i
            b = a + 4 * half
            cos = simd.load_f32x16(table + 4 * i)
            sin = simd.load_f32x16(table + 4 * (half + i))
            x0 = simd.load_f32x16(a)
            x1 = simd.load_f32x16(b)
            simd.store_f32x16(a, x0 * cos - x1 * sin)
            simd.store_f32x16(b, x0 * sin + x1 * cos)
    for i in range(whole, half):
        _turn(x, table, rope_dim, interleaved, i)


per_level(_vector_rotate)(_rotate)


@chosen
def _store(
    qt: Any, key: int, value: int, layer: int, at: int, head: int, kv_heads: int, head_dim: int,
    value_dim: int,
) -> Any:  # fmt: skip
    """Store a KV head's key and value at position ``at`` of a page."""
    return _store_codes if qt.value == "Q8_0" else _store_floats


def _store_codes(
    qt: Any, key: int, value: int, layer: int, at: int, head: int, kv_heads: int, head_dim: int,
    value_dim: int,
) -> None:  # fmt: skip
    tile = key_head(qt, layer, head, head_dim) + at // 16 * tile_bytes(qt, head_dim)
    scales = tile + (head_dim + 3) // 4 * 64
    store_codes(key, head_dim, tile + at % 16 * 4, 64, scales + at % 16 * 2, 32)
    values = value_head(qt, layer, head, kv_heads, head_dim, value_dim)
    padded = padded_dim(value_dim)
    store_codes(value, value_dim, values + at * padded, 4, values + 128 * padded + 2 * at, 256)


def _store_floats(
    qt: Any, key: int, value: int, layer: int, at: int, head: int, kv_heads: int, head_dim: int,
    value_dim: int,
) -> None:  # fmt: skip
    keys = key_head(qt, layer, head, head_dim)
    tile = keys + width(qt) * (at // 16 * 16 * head_dim + at % 16)
    for d in range(head_dim):
        set_element(qt, tile + width(qt) * 16 * d, get_f32(key + 4 * d))
    values = value_head(qt, layer, head, kv_heads, head_dim, value_dim)
    line = values + width(qt) * at * padded_dim(value_dim)
    for d in range(value_dim):
        set_element(qt, line + width(qt) * d, get_f32(value + 4 * d))


@kernel
def rope_store(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Rotate and store; a head of a token belongs to one thread.

    Heads of keys and values come first, because they take longer.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    head_dim, value_dim = slots_of(record, (HEAD_DIM, VALUE_DIM))
    rope_dim, kv_heads = slots_of(record, (ROPE_DIM, KV_HEADS))
    heads = kv_heads + get_i64(record + 8 * HEADS)
    interleaved = get_i64(record + 8 * INTERLEAVED)
    first = 4 * get_i64(record + 8 * FIRST)
    temperatures = get_i64(record + 8 * TEMPERATURES)
    for item in range(thread, tokens * heads, positive(threads)):
        t = item // heads
        head = item % heads
        position = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t))
        turn = int(get_i32(get_i64(record + 8 * TURNS) + 4 * t))
        table = get_i64(record + 8 * TABLE) + 4 * turn * rope_dim
        if head >= kv_heads:
            q = get_i64(record + 8 * Q) + t * get_i64(record + 8 * Q_STRIDE)
            q += 4 * (head - kv_heads) * head_dim
            _rotate(isa, q + first, table, rope_dim, interleaved)
            if temperatures != 0:
                factor = get_f32(temperatures + 4 * position)
                for d in range(head_dim):
                    set_f32(q + 4 * d, np.float32(get_f32(q + 4 * d) * factor))
        else:
            key = get_i64(record + 8 * KEY) + t * get_i64(record + 8 * KEY_STRIDE)
            key += 4 * head * head_dim
            value = get_i64(record + 8 * VALUE) + t * get_i64(record + 8 * VALUE_STRIDE)
            value += 4 * head * value_dim
            _rotate(isa, key + first, table, rope_dim, interleaved)
            layer = get_i64(get_i64(get_i64(record + 8 * CACHES) + 8 * t) + position // 128 * 8)
            layer += get_i64(record + 8 * LAYER_OFFSET)
            _store(qt, key, value, layer, position % 128, head, kv_heads, head_dim, value_dim)
