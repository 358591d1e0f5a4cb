"""Grouped-query attention over pages of the KV cache, in blocks of 128 positions.

Shapes: Q is M rows of HEADS * HEAD_DIM float32, OUT M rows of HEADS * VALUE_DIM.
Positions: token t sees positions up to POSITIONS[t], its own or, for attention in both directions,
a later one. With WINDOW it sees the last WINDOW of these, with FIRSTS (int32) those from FIRSTS[t]
on; 0 means neither.
Cache: CACHES[t] is the address of the sequence's page table, which has the address of a page
(int64) for each 128 positions. A layer's part of a page (kv_layout.py) begins at LAYER_OFFSET.
Scores: q k * SCALE; with SOFTCAP c, c * tanh(score / c). SINKS is 0 or the address of a float32 for
each head, a score without a value.

A block gives a part for each head: the sum of exp(s - m) * value (padded dimensions), m, and the
sum of exp(s - m). Parts are merged in the order of positions.
``attention`` is for many tokens: tokens of a sequence with up to 8 query heads of one KV head form
a tile (attention_tile.py), which belongs to one thread. ``attention_parts`` and ``attention_merge``
share the blocks of few tokens among threads. Both do the same arithmetic in the same order, and
skip blocks before the window.
Numerics: scores are summed over dimensions and values over positions, in order, each with a fused
multiply-add; probabilities are summed in 16 lanes and by one tree. All is float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.memory import get_f64, get_i32, get_i64, set_i32, slots_of
from trinity_kernels.ops.attention_block import attend_block
from trinity_kernels.ops.attention_parts import finish, merge
from trinity_kernels.ops.attention_parts import part_bytes as part_bytes
from trinity_kernels.ops.attention_tile import MOST, attend_tile, memory_bytes, pack_queries
from trinity_kernels.ops.kv_codes import codes_bytes
from trinity_kernels.ops.kv_layout import PAGE, key_head, padded_dim, value_head
from trinity_kernels.record import ROWS

Q, Q_STRIDE, POSITIONS, CACHES, LAYER_OFFSET, HEAD_DIM, HEADS, KV_HEADS = range(3, 11)
OUT, OUT_STRIDE, SCALE, SCRATCH, SCRATCH_STRIDE, PARTS = range(11, 17)
WINDOW, SOFTCAP, SINKS, VALUE_DIM, FIRSTS = range(17, 22)
BLOCK = PAGE
AT_ONCE = 8  # query heads of one KV head
LEAST = 12  # queries of a tile; fewer do not pay for converting keys and values


def scratch_bytes(head_dim: int, value_dim: int) -> int:
    """Bytes of a thread's scratch: probabilities, parts, merged parts, codes, and a tile's."""
    parts = (AT_ONCE + MOST) * part_bytes(value_dim)
    return 4 * AT_ONCE * BLOCK + parts + codes_bytes(head_dim) + memory_bytes(head_dim, value_dim)


@inline
def window_start(visible: int, window: int, firsts: int, t: int) -> int:
    """The first of ``visible`` positions that token t sees."""
    if firsts != 0:
        return int(get_i32(firsts + 4 * t))
    if window == 0 or visible <= window:
        return 0
    return visible - window


@inline
def sink_of(sinks: int, head: int) -> int:
    """The address of a head's sink; 0 without sinks."""
    return sinks + 4 * head if sinks != 0 else 0


@inline
def keys_at(qt: Any, table: int, block: int, offset: int, head: int, head_dim: int) -> int:
    """The address of a block's keys of a KV head."""
    return int(key_head(qt, get_i64(table + 8 * block) + offset, head, head_dim))


@inline
def values_at(
    qt: Any, table: int, block: int, offset: int, head: int, kv_heads: int, head_dim: int,
    value_dim: int,
) -> int:  # fmt: skip
    """The address of a block's values of a KV head."""
    layer = get_i64(table + 8 * block) + offset
    return int(value_head(qt, layer, head, kv_heads, head_dim, value_dim))


@inline
def rows_of(record: int, t: int, limit: int) -> int:
    """The number of tokens from t on, before ``limit``, that belong to one sequence."""
    caches, rows = get_i64(record + 8 * CACHES), 1
    while t + rows < limit and get_i64(caches + 8 * (t + rows)) == get_i64(caches + 8 * t):
        rows += 1
    return rows


@kernel
def attention(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Attention for many tokens: a share is some tokens with the heads of one KV head."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    kv_heads = get_i64(record + 8 * KV_HEADS)
    group = get_i64(record + 8 * HEADS) // kv_heads
    units = (group + AT_ONCE - 1) // AT_ONCE
    turn = thread
    for unit in range(kv_heads * units):
        of_head = unit % units * AT_ONCE
        heads = min(group - of_head, AT_ONCE)
        step = max(1, min(MOST // heads, tokens // (4 * threads)))
        shares = (tokens + step - 1) // step
        while turn < shares:
            # Later tokens of a prompt see more positions, so every second unit begins with them.
            share = turn
            if unit % 2 == 1:
                share = shares - 1 - turn
            t, limit = share * step, min(share * step + step, tokens)
            while t < limit:
                rows = rows_of(record, t, limit)
                if rows * heads >= LEAST:
                    _attend_rows(
                        isa, qt, record, thread, unit // units, of_head, heads, t, rows
                    )  # fmt: skip
                else:
                    for row in range(t, t + rows):
                        _attend_row(isa, qt, record, thread, unit // units, of_head, heads, row)
                t += rows
            turn += threads
        turn -= shares


@inline
def _attend_row(
    isa: Any, qt: Any, record: int, thread: int, head: int, of_head: int, heads: int, t: int
) -> None:  # fmt: skip
    """Some heads of a KV head, of one token."""
    head_dim, value_dim, offset, kv_heads = slots_of(
        record, (HEAD_DIM, VALUE_DIM, LAYER_OFFSET, KV_HEADS)
    )
    scale = np.float32(get_f64(record + 8 * SCALE))
    softcap = np.float32(get_f64(record + 8 * SOFTCAP))
    padded = padded_dim(value_dim)
    part_stride = 4 * (padded + 16)
    p = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    parts = p + 512 * AT_ONCE
    merged = parts + AT_ONCE * part_stride
    codes = merged + MOST * part_stride
    first = head * (get_i64(record + 8 * HEADS) // kv_heads) + of_head
    q = get_i64(record + 8 * Q) + t * get_i64(record + 8 * Q_STRIDE) + 4 * first * head_dim
    table = get_i64(get_i64(record + 8 * CACHES) + 8 * t)
    visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) + 1
    window, firsts, sinks = slots_of(record, (WINDOW, FIRSTS, SINKS))
    lowest = window_start(visible, window, firsts, t)
    begin, end = lowest // 128, (visible + 127) // 128
    keys = keys_at(qt, table, begin, offset, head, head_dim)
    for block in range(begin, end):
        values = values_at(qt, table, block, offset, head, kv_heads, head_dim, value_dim)
        ahead = keys
        if block + 1 < end:
            ahead = keys_at(qt, table, block + 1, offset, head, head_dim)
        start = 128 * block
        to = parts
        if block == begin:
            to = merged
        attend_block(
            isa, qt, q, 4 * head_dim, head_dim, value_dim, heads, keys, values,
            max(lowest - start, 0), min(visible - start, 128), scale, softcap, p, to,
            part_stride, codes, ahead,
        )  # fmt: skip
        if block > begin:
            for i in range(heads):
                merge(isa, merged + i * part_stride, parts + i * part_stride, padded)
        keys = ahead
    out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 4 * first * value_dim
    for i in range(heads):
        part = merged + i * part_stride
        finish(part, padded, out + 4 * i * value_dim, value_dim, sink_of(sinks, first + i))


@inline
def _attend_rows(
    isa: Any, qt: Any, record: int, thread: int, head: int, of_head: int, heads: int, t: int,
    rows: int,
) -> None:  # fmt: skip
    """Some heads of a KV head, of several tokens of a sequence."""
    head_dim, value_dim, offset, kv_heads = slots_of(
        record, (HEAD_DIM, VALUE_DIM, LAYER_OFFSET, KV_HEADS)
    )
    scale = np.float32(get_f64(record + 8 * SCALE))
    softcap = np.float32(get_f64(record + 8 * SOFTCAP))
    padded = padded_dim(value_dim)
    part_stride = 4 * (padded + 16)
    p = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    parts = p + 512 * AT_ONCE
    merged = parts + AT_ONCE * part_stride
    codes = merged + MOST * part_stride
    queries = codes + codes_bytes(head_dim)
    ranges = queries + MOST * (4 * head_dim + 64)
    panels = ranges + 8 * MOST
    first = head * (get_i64(record + 8 * HEADS) // kv_heads) + of_head
    q_stride, out_stride = get_i64(record + 8 * Q_STRIDE), get_i64(record + 8 * OUT_STRIDE)
    q = get_i64(record + 8 * Q) + t * q_stride + 4 * first * head_dim
    table = get_i64(get_i64(record + 8 * CACHES) + 8 * t)
    window, firsts, sinks = slots_of(record, (WINDOW, FIRSTS, SINKS))
    pack_queries(isa, qt, q, q_stride, heads, rows * heads, head_dim, queries)
    lowest, highest = 1 << 30, 0
    for row in range(rows):
        visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * (t + row))) + 1
        low = window_start(visible, window, firsts, t + row)
        lowest, highest = min(lowest, low), max(highest, visible)
        for i in range(row * heads, row * heads + heads):
            set_i32(ranges + 8 * i, np.int32(low))
            set_i32(ranges + 8 * i + 4, np.int32(visible))
    for block in range(lowest // 128, (highest + 127) // 128):
        keys = keys_at(qt, table, block, offset, head, head_dim)
        values = values_at(qt, table, block, offset, head, kv_heads, head_dim, value_dim)
        attend_tile(
            isa, qt, q, q_stride, heads, rows * heads, queries, ranges, 128 * block, head_dim,
            value_dim, keys, values, scale, softcap, p, parts, merged, codes, panels,
        )  # fmt: skip
    for row in range(rows):
        out = get_i64(record + 8 * OUT) + (t + row) * out_stride + 4 * first * value_dim
        for i in range(heads):
            part = merged + (row * heads + i) * part_stride
            finish(part, padded, out + 4 * i * value_dim, value_dim, sink_of(sinks, first + i))


@kernel
def attention_parts(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Attention for few tokens: a share is one block of heads that are processed together.

    Parts are stored by token, block and head.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    head_dim = get_i64(record + 8 * HEAD_DIM)
    value_dim = get_i64(record + 8 * VALUE_DIM)
    padded = padded_dim(value_dim)
    kv_heads = get_i64(record + 8 * KV_HEADS)
    heads = get_i64(record + 8 * HEADS)
    group = heads // kv_heads
    units = (group + AT_ONCE - 1) // AT_ONCE
    offset, window, firsts = slots_of(record, (LAYER_OFFSET, WINDOW, FIRSTS))
    scale = np.float32(get_f64(record + 8 * SCALE))
    softcap = np.float32(get_f64(record + 8 * SOFTCAP))
    part_stride = 4 * (padded + 16)
    p = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    codes = p + AT_ONCE * (512 + 2 * part_stride)
    total = 0
    for t in range(tokens):
        visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) + 1
        blocks = (visible + 127) // 128 - window_start(visible, window, firsts, t) // 128
        total += kv_heads * units * blocks
    first = total * thread // threads
    last = total * (thread + 1) // threads
    turn = 0
    parts = get_i64(record + 8 * PARTS)
    for t in range(tokens):
        visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) + 1
        lowest = window_start(visible, window, firsts, t)
        begin = lowest // 128
        end = (visible + 127) // 128
        table = get_i64(get_i64(record + 8 * CACHES) + 8 * t)
        for block in range(begin, end):
            for unit in range(kv_heads * units):
                turn += 1
                if first < turn <= last:
                    head = unit // units
                    of_head = unit % units * AT_ONCE
                    count = min(group - of_head, AT_ONCE)
                    of_head += head * group
                    q = get_i64(record + 8 * Q) + t * get_i64(record + 8 * Q_STRIDE)
                    q += 4 * of_head * head_dim
                    keys = keys_at(qt, table, block, offset, head, head_dim)
                    values = values_at(
                        qt, table, block, offset, head, kv_heads, head_dim, value_dim
                    )  # fmt: skip
                    ahead = keys_at(qt, table, block, offset, (unit + 1) // units, head_dim)
                    if unit + 1 == kv_heads * units and block + 1 < end:
                        ahead = keys_at(qt, table, block + 1, offset, 0, head_dim)
                    start = 128 * block
                    attend_block(
                        isa, qt, q, 4 * head_dim, head_dim, value_dim, count, keys, values,
                        max(lowest - start, 0), min(visible - start, 128), scale, softcap, p,
                        parts + ((block - begin) * heads + of_head) * part_stride,
                        part_stride, codes, ahead,
                    )  # fmt: skip
        parts += (end - begin) * heads * part_stride


@kernel
def attention_merge(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Merge the parts of each head in order; the record is that of attention_parts."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    value_dim = get_i64(record + 8 * VALUE_DIM)
    padded = padded_dim(value_dim)
    heads, window, firsts, sinks = slots_of(record, (HEADS, WINDOW, FIRSTS, SINKS))
    part_stride = 4 * (padded + 16)
    parts = get_i64(record + 8 * PARTS)
    for t in range(tokens):
        visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) + 1
        blocks = (visible + 127) // 128 - window_start(visible, window, firsts, t) // 128
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
        for head in range(heads):
            if (t * heads + head) % threads == thread:
                merged = parts + head * part_stride
                for block in range(1, blocks):
                    merge(isa, merged, merged + block * heads * part_stride, padded)
                sink = sink_of(sinks, head)
                finish(merged, padded, out + 4 * head * value_dim, value_dim, sink)
        parts += blocks * heads * part_stride
