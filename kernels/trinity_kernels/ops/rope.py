"""Rotate queries and keys by their positions, and put keys and values into their pages.

Shapes: Q M rows of HEADS * HEAD_DIM, KEY and VALUE M rows of KV_HEADS * HEAD_DIM, float32; Q is
rotated in place. TABLE holds, per position, ROPE_DIM / 2 cosines, then as many sines, float32.
POSITIONS is M int32, CACHES the M int64 addresses of the tokens' tables of pages (attention.py).
INTERLEAVED: 1 rotates dimensions (2i, 2i+1), 0 rotates (i, i + ROPE_DIM / 2); dimensions from
ROPE_DIM on stay as they are. Numerics: every product and sum is rounded to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.memory import get_f32, get_i32, get_i64, set_f32
from trinity_kernels.ops.kv_layout import key_head, padded_dim, set_element, value_head, width
from trinity_kernels.record import ROWS

Q, Q_STRIDE, KEY, VALUE, KV_STRIDE, POSITIONS, CACHES, LAYER_OFFSET, TABLE = range(3, 12)
HEAD_DIM, ROPE_DIM, HEADS, KV_HEADS, INTERLEAVED = range(12, 17)


@inline
def _rotate(x: int, table: int, rope_dim: int, interleaved: int) -> None:
    half = rope_dim // 2
    for i in range(half):
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


@kernel
def rope_store(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """A KV head of a token, with its query heads, belongs to one thread; see the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    head_dim = get_i64(record + 8 * HEAD_DIM)
    rope_dim = get_i64(record + 8 * ROPE_DIM)
    kv_heads = get_i64(record + 8 * KV_HEADS)
    group = get_i64(record + 8 * HEADS) // kv_heads
    interleaved = get_i64(record + 8 * INTERLEAVED)
    for item in range(thread, tokens * kv_heads, threads):
        t = item // kv_heads
        head = item % kv_heads
        position = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t))
        table = get_i64(record + 8 * TABLE) + 4 * position * rope_dim
        q = get_i64(record + 8 * Q) + t * get_i64(record + 8 * Q_STRIDE)
        for g in range(group):
            _rotate(q + 4 * (head * group + g) * head_dim, table, rope_dim, interleaved)
        row = t * get_i64(record + 8 * KV_STRIDE) + 4 * head * head_dim
        key = get_i64(record + 8 * KEY) + row
        value = get_i64(record + 8 * VALUE) + row
        _rotate(key, table, rope_dim, interleaved)
        layer = get_i64(get_i64(get_i64(record + 8 * CACHES) + 8 * t) + position // 128 * 8)
        layer += get_i64(record + 8 * LAYER_OFFSET)
        at = position % 128
        keys = key_head(qt, layer, head, head_dim)
        tile = keys + width(qt) * (at // 16 * 16 * head_dim + at % 16)
        values = value_head(qt, layer, head, kv_heads, head_dim)
        line = values + width(qt) * at * padded_dim(head_dim)
        for d in range(head_dim):
            set_element(qt, tile + width(qt) * 16 * d, get_f32(key + 4 * d))
            set_element(qt, line + width(qt) * d, get_f32(value + 4 * d))
