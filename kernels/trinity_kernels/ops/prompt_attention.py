"""Attention of the rows of prompts over pages of the KV cache, in bfloat16 on AMX tiles.

The record is that of ``attention`` (attention.py); SCRATCH has ``scratch_bytes`` for each thread.
A share is some tokens of a sequence with the heads of one KV head, up to ``_most_rows`` queries.
Keys and values of a block become tiles once for a share (prompt_tiles.py).

Numerics: queries, keys, values and probabilities are rounded to bfloat16, sums are float32. Blocks
of 128 positions are added in order. A probability is 2**(score * SCALE * log2(e) - m), with a
relative error below 1e-4 (byte_softmax.py); m is the row's largest exponent up to this block. The
bits of a row depend on its query and on what it sees, not on other rows. A value that is not finite
makes all results NaN of the rows that see it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels._jit import inline, kernel_with
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i32, get_i64, set_f32, set_i32, slots_of
from trinity_kernels.ops.attention import (
    CACHES,
    FIRSTS,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    LAYER_OFFSET,
    OUT,
    OUT_STRIDE,
    POSITIONS,
    Q_STRIDE,
    SCALE,
    SCRATCH,
    SCRATCH_STRIDE,
    SINKS,
    SOFTCAP,
    VALUE_DIM,
    WINDOW,
    Q,
    keys_at,
    rows_of,
    sink_of,
    values_at,
    window_start,
)
from trinity_kernels.ops.exponential import exp_f32
from trinity_kernels.ops.kv_layout import padded_dim, tile_bytes, value_bytes
from trinity_kernels.ops.prompt_tiles import (
    GROUP,
    LOWEST,
    PROBABILITIES_BYTES,
    SCORES_BYTES,
    add_values,
    group_scores,
    limit_scores,
    no_probabilities,
    pack_keys,
    pack_query,
    pack_values,
    remove_values,
    row_softmax,
)
from trinity_kernels.record import ROWS
from trinity_kernels.tags import shared

TYPES = frozenset({"F16", "Q8_0"})  # of the KV cache; float32 is for those who want no rounding
AT_ONCE = 32  # query heads of one KV head
_MEMORY = 512 << 10  # bytes of the queries and sums of a share, which the second-level cache holds
_LOG2E, _LN2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
_TINY, _LEAST_NORMAL = np.float32(1e-30), np.float32(2.0**-126)


@shared
def _dims(dim: int) -> int:
    return (dim + 31) // 32 * 32


@shared
def _row_bytes(head_dim: int, value_dim: int) -> int:
    """Bytes of a row's query, sums, lanes and state: the positions that it sees, and m."""
    return 2 * int(_dims(head_dim)) + 4 * int(_dims(value_dim)) + 64 + 16


@shared
def _most_rows(head_dim: int, value_dim: int) -> int:
    """The most queries of a share."""
    return max(GROUP, min(512, _MEMORY // int(_row_bytes(head_dim, value_dim))) // GROUP * GROUP)


@shared
def _block_bytes(head_dim: int, value_dim: int) -> int:
    """Bytes of what a block needs: whether its values are finite, scores and tiles."""
    tile_bytes = 256 * (int(_dims(head_dim)) + int(_dims(value_dim)))
    return 512 + SCORES_BYTES + PROBABILITIES_BYTES + tile_bytes


def scratch_bytes(head_dim: int, value_dim: int) -> int:
    """Bytes of a thread's scratch."""
    rows = _most_rows(head_dim, value_dim) * _row_bytes(head_dim, value_dim)
    return int(rows + _block_bytes(head_dim, value_dim))


@kernel_with("amx")
def prompt_attention(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Attention for the rows of a step that has rows of prompts."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    head_dim, value_dim, kv_heads = slots_of(record, (HEAD_DIM, VALUE_DIM, KV_HEADS))
    group = get_i64(record + 8 * HEADS) // kv_heads
    units = (group + AT_ONCE - 1) // AT_ONCE
    most = int(_most_rows(head_dim, value_dim))
    tiles.tiles_begin(get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE))
    turn = thread
    for unit in range(kv_heads * units):
        of_head = unit % units * AT_ONCE
        heads = min(group - of_head, AT_ONCE)
        # Some shares for each thread, of whole groups if there are enough tokens.
        all_tokens = tokens * kv_heads * units
        least = min((GROUP + heads - 1) // heads, max(1, all_tokens // threads))
        step = min(max(least, all_tokens // (4 * threads)), most // heads)
        shares = (tokens + step - 1) // step
        while turn < shares:
            # Later tokens of a prompt see more positions, so every second unit begins with them.
            share = turn
            if unit % 2 == 1:
                share = shares - 1 - turn
            t, limit = share * step, min(share * step + step, tokens)
            while t < limit:
                rows = rows_of(record, t, limit)
                _attend(isa, qt, record, thread, unit // units, of_head, heads, t, rows)
                t += rows
            turn += threads
        turn -= shares
    tiles.tiles_end()


@inline
def _attend(
    isa: Any, qt: Any, record: int, thread: int, head: int, of_head: int, heads: int, t: int,
    tokens: int,
) -> None:  # fmt: skip
    """Some heads of a KV head, of several tokens of a sequence."""
    head_dim, value_dim, offset, kv_heads = slots_of(
        record, (HEAD_DIM, VALUE_DIM, LAYER_OFFSET, KV_HEADS)
    )
    dims, padded = int(_dims(head_dim)), padded_dim(value_dim)
    first = head * (get_i64(record + 8 * HEADS) // kv_heads) + of_head
    table = get_i64(get_i64(record + 8 * CACHES) + 8 * t)
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    rest, keys, most = scratch, scratch + 512, int(_most_rows(head_dim, value_dim))
    values = keys + 256 * dims
    scores = values + 256 * padded
    probabilities = scores + SCORES_BYTES
    queries = probabilities + PROBABILITIES_BYTES
    sums = queries + 2 * dims * most
    lanes = sums + 4 * padded * most
    states = lanes + 64 * most
    scale = np.float32(get_f64(record + 8 * SCALE))
    softcap = np.float32(get_f64(record + 8 * SOFTCAP))
    factor = np.float32(max(scale, _TINY) * _LOG2E)
    if softcap != 0:
        factor = _LOG2E
    count = tokens * heads
    _begin(record, t, heads, count, first, queries, sums, lanes, states)
    lowest, highest = _seen(states, 0, count)
    for block in range(lowest // 128, (highest + 127) // 128):
        start = 128 * block
        low, high = max(lowest - start, 0), min(highest - start, 128)
        source = keys_at(qt, table, block, offset, head, head_dim)
        pack_keys(qt, source, low // 32 * 2, (high + 31) // 32 * 2, head_dim, keys)
        source = values_at(qt, table, block, offset, head, kv_heads, head_dim, value_dim)
        finite = pack_values(qt, source, low, high, value_dim, values)
        if not finite:
            remove_values(qt, source, low, high, value_dim, values, rest)
        following = min(block + 1, (highest + 127) // 128 - 1)
        ahead = keys_at(qt, table, following, offset, head, head_dim)
        more = values_at(qt, table, following, offset, head, kv_heads, head_dim, value_dim)
        for g in range(0, count, GROUP):
            end = min(g + GROUP, count)
            _prefetch(ahead, 8 * int(tile_bytes(qt, head_dim)), g, count)
            _prefetch(more, int(value_bytes(qt, value_dim)), g, count)
            low, high = _seen(states, g, end)
            low, high = max(low - start, 0), min(high - start, 128)
            if low < high:
                to = sums + 4 * padded * g
                from_tile, to_tile = low // 32, (high + 31) // 32
                group_scores(queries + 2 * dims * g, keys, dims, from_tile, to_tile, scores)
                for i in range(g, end):
                    at = (i - g) // 16 * 2048 + i % 16 * 64
                    p = probabilities + (i - g) // 16 * 4096 + i % 16 * 64
                    low = max(int(get_i32(states + 16 * i)) - start, 0)
                    high = min(int(get_i32(states + 16 * i + 4)) - start, 128)
                    if low >= high:
                        no_probabilities(p)
                    else:
                        if high - low < 128 or softcap != 0:
                            limit_scores(scores + at, low, high, scale, softcap)
                        row_softmax(
                            isa, scores + at, p, factor, states + 16 * i + 8, lanes + 64 * i,
                            to + at, padded // 16,
                        )  # fmt: skip
                        if not finite:
                            _add_rest(rest, low, high, lanes + 64 * i)
                add_values(probabilities, values, padded, from_tile, to_tile, to)
    for i in range(count):
        at = sums + 4 * padded * (i // GROUP * GROUP) + i % GROUP // 16 * 2048 + i % 16 * 64
        out = get_i64(record + 8 * OUT) + (t + i // heads) * get_i64(record + 8 * OUT_STRIDE)
        of_query = first + i % heads
        sink = sink_of(get_i64(record + 8 * SINKS), of_query)
        _finish(
            at, lanes + 64 * i, get_f32(states + 16 * i + 8), out + 4 * of_query * value_dim,
            value_dim, sink,
        )  # fmt: skip


@inline
def _prefetch(address: int, size: int, g: int, count: int) -> None:
    """Prefetch a group's part of ``size`` bytes; ``g``: its first query of ``count``."""
    part = (size * GROUP // count + 63) // 64 * 64
    first = address + g // GROUP * part
    for at in range(first, min(first + part, address + size), 64):
        simd.prefetch_l2(at)


@inline
def _begin(
    record: int, t: int, heads: int, count: int, first: int, queries: int, sums: int, lanes: int,
    states: int,
) -> None:  # fmt: skip
    """Write the queries of a share, the positions that they see, and sums of 0."""
    head_dim, q_stride, window, firsts = slots_of(record, (HEAD_DIM, Q_STRIDE, WINDOW, FIRSTS))
    dims, padded = int(_dims(head_dim)), padded_dim(get_i64(record + 8 * VALUE_DIM))
    zero = simd.splat_f32x16(np.float32(0))
    for i in range(count):
        token = t + i // heads
        q = get_i64(record + 8 * Q) + token * q_stride + 4 * (first + i % heads) * head_dim
        pack_query(q, head_dim, queries + 2 * dims * (i // 16 * 16) + i % 16 * 64)
        visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * token)) + 1
        low = window_start(visible, window, firsts, token)
        set_i32(states + 16 * i, np.int32(low))
        set_i32(states + 16 * i + 4, np.int32(visible))
        set_f32(states + 16 * i + 8, LOWEST)
        simd.store_f32x16(lanes + 64 * i, zero)
    for at in range(sums, sums + 4 * padded * ((count + GROUP - 1) // GROUP * GROUP), 64):
        simd.store_f32x16(at, zero)


@inline
def _seen(states: int, first: int, last: int) -> tuple[int, int]:
    """The positions that some queries see."""
    lowest, highest = 1 << 30, 0
    for i in range(first, last):
        lowest = min(lowest, int(get_i32(states + 16 * i)))
        highest = max(highest, int(get_i32(states + 16 * i + 4)))
    return lowest, highest


@inline
def _add_rest(rest: int, low: int, high: int, lanes: int) -> None:
    """Add NaN to a query's sum if it sees a value that is not finite."""
    for j in range(low, high):
        set_f32(lanes, np.float32(get_f32(lanes) + get_f32(rest + 4 * j)))


@inline
def _finish(sums: int, lanes: int, m: Any, out: int, value_dim: int, sink: int) -> None:
    """Write the result of a query; ``sink``: the address of the head's sink, or 0."""
    total, f = simd.sum_f32x16(simd.load_f32x16(lanes)), np.float32(1)
    if sink != 0:
        # exp(sink - m), or all of it relative to the sink, because that may overflow.
        more = np.float32(get_f32(sink) - np.float32(m * _LN2))
        if more > 0:
            f = exp_f32(np.float32(-more))
            total = np.float32(np.float32(total * f) + np.float32(1))
        else:
            total = np.float32(total + exp_f32(more))
    factor = simd.splat_f32x16(np.float32(f / total))
    zero, least = simd.splat_f32x16(np.float32(0)), simd.splat_f32x16(_LEAST_NORMAL)
    for d in range(0, value_dim, 16):
        at = sums + d // 32 * 4096 + d % 32 * 64
        x = simd.load_f32x16(at)
        # Tiles make sums below the least normal number 0, but only in blocks that are computed, and
        # other rows decide which are. So such results are always 0.
        x = simd.select_less(simd.abs_f32x16(x), least, zero, x) * factor
        if d + 16 <= value_dim:
            simd.store_f32x16(out + 4 * d, x)
        else:
            simd.store_f32x16(at, x)
            for i in range(value_dim - d):
                set_f32(out + 4 * (d + i), get_f32(at + 4 * i))
