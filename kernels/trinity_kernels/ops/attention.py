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
sum of exp(s - m). Parts are merged in the order of positions. ``attention`` is for many tokens,
each of which belongs to one thread. ``attention_parts`` and ``attention_merge`` share the blocks of
few tokens among threads. Both do the same arithmetic in the same order, and skip blocks before the
window. Up to 8 query heads of one KV head are processed together; if a query head has a KV head of
its own, 8 consecutive tokens that see the same positions. Of a prompt whose KV heads do not have a
multiple of 4 query heads, 4 tokens of one head are processed together in blocks that all of them
see whole.
Numerics: scores are summed over dimensions and values over positions, in order, each with a fused
multiply-add; probabilities are summed in 16 lanes and by one tree. All is float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i32, get_i64, set_f32, slots_of
from trinity_kernels.ops.attention_block import attend_block
from trinity_kernels.ops.exponential import exp_f32
from trinity_kernels.ops.kv_codes import codes_bytes
from trinity_kernels.ops.kv_layout import PAGE, key_head, padded_dim, value_head
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

Q, Q_STRIDE, POSITIONS, CACHES, LAYER_OFFSET, HEAD_DIM, HEADS, KV_HEADS = range(3, 11)
OUT, OUT_STRIDE, SCALE, SCRATCH, SCRATCH_STRIDE, PARTS = range(11, 17)
WINDOW, SOFTCAP, SINKS, VALUE_DIM, FIRSTS = range(17, 22)
BLOCK = PAGE
AT_ONCE = 8  # query heads of one KV head, or tokens of one head
TOKENS = 4  # of a prompt, which are processed together in blocks that all of them see


def part_bytes(value_dim: int) -> int:
    """Bytes of a part: the weighted values, m, and the sum of probabilities."""
    return 4 * (-(-value_dim // 32) * 32 + 16)


def scratch_bytes(head_dim: int, value_dim: int) -> int:
    """Bytes of a thread's scratch: probabilities and parts of a group, merged parts, and codes."""
    parts = (1 + TOKENS) * AT_ONCE * part_bytes(value_dim)
    return 4 * AT_ONCE * BLOCK + parts + codes_bytes(head_dim)


def _mix(isa: Any, into: int, part: int, padded: int, f0: Any, f1: Any) -> None:
    for d in range(padded):
        old = np.float32(get_f32(into + 4 * d) * f0)
        set_f32(into + 4 * d, np.float32(old + np.float32(get_f32(part + 4 * d) * f1)))


def _vector_mix(isa: Any, into: int, part: int, padded: int, f0: Any, f1: Any) -> None:
    old = simd.splat_f32x16(f0)
    new = simd.splat_f32x16(f1)
    for at in range(0, 4 * padded, 64):
        mixed = simd.load_f32x16(into + at) * old + simd.load_f32x16(part + at) * new
        simd.store_f32x16(into + at, mixed)


per_level(_vector_mix)(_mix)


@inline
def _merge(isa: Any, into: int, part: int, padded: int) -> None:
    """Add a part to the previous ones, after scaling both to the larger m."""
    m0 = get_f32(into + 4 * padded)
    m1 = get_f32(part + 4 * padded)
    m = max(m0, m1)
    f0 = exp_f32(np.float32(m0 - m))
    f1 = exp_f32(np.float32(m1 - m))
    _mix(isa, into, part, padded, f0, f1)
    total = np.float32(get_f32(into + 4 * padded + 4) * f0)
    total = np.float32(total + np.float32(get_f32(part + 4 * padded + 4) * f1))
    set_f32(into + 4 * padded, m)
    set_f32(into + 4 * padded + 4, total)


@inline
def _finish(part: int, padded: int, out: int, value_dim: int, sink: int) -> None:
    """Write the result of a merged part; ``sink``: the address of the head's sink, or 0."""
    total = get_f32(part + 4 * padded + 4)
    if sink != 0:
        m = get_f32(part + 4 * padded)
        s = get_f32(sink)
        if s > m:
            # exp(s - m) may overflow, so the values are scaled to the sink instead.
            f = exp_f32(np.float32(m - s))
            total = np.float32(np.float32(total * f) + np.float32(1))
            for d in range(value_dim):
                set_f32(part + 4 * d, np.float32(get_f32(part + 4 * d) * f))
        else:
            total = np.float32(total + exp_f32(np.float32(s - m)))
    for d in range(value_dim):
        set_f32(out + 4 * d, np.float32(get_f32(part + 4 * d) / total))


@inline
def _window_start(visible: int, window: int, firsts: int, t: int) -> int:
    """The first of ``visible`` positions that token t sees."""
    if firsts != 0:
        return int(get_i32(firsts + 4 * t))
    if window == 0 or visible <= window:
        return 0
    return visible - window


@inline
def _sink_of(sinks: int, head: int) -> int:
    """The address of a head's sink; 0 without sinks."""
    return sinks + 4 * head if sinks != 0 else 0


@inline
def _keys_at(qt: Any, table: int, block: int, offset: int, head: int, head_dim: int) -> int:
    """The address of a block's keys of a KV head."""
    return int(key_head(qt, get_i64(table + 8 * block) + offset, head, head_dim))


@inline
def _values_at(
    qt: Any, table: int, block: int, offset: int, head: int, kv_heads: int, head_dim: int,
    value_dim: int,
) -> int:  # fmt: skip
    """The address of a block's values of a KV head."""
    layer = get_i64(table + 8 * block) + offset
    return int(value_head(qt, layer, head, kv_heads, head_dim, value_dim))


@inline
def _sees(record: int, t: int, table: int, visible: int, lowest: int) -> bool:
    """Whether token t of attention in both directions sees those positions of that sequence."""
    if get_i64(get_i64(record + 8 * CACHES) + 8 * t) != table:
        return False
    if int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) + 1 != visible:
        return False
    return int(get_i32(get_i64(record + 8 * FIRSTS) + 4 * t)) == lowest


@inline
def _follows(record: int, t: int, table: int, position: int) -> bool:
    """Whether token t is that sequence's at that position."""
    if get_i64(get_i64(record + 8 * CACHES) + 8 * t) != table:
        return False
    return int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) == position


@kernel
def attention(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Attention for many tokens: heads that are processed together belong to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    head_dim = get_i64(record + 8 * HEAD_DIM)
    value_dim = get_i64(record + 8 * VALUE_DIM)
    padded = padded_dim(value_dim)
    kv_heads = get_i64(record + 8 * KV_HEADS)
    group = get_i64(record + 8 * HEADS) // kv_heads
    units = (group + AT_ONCE - 1) // AT_ONCE
    offset, window, firsts = slots_of(record, (LAYER_OFFSET, WINDOW, FIRSTS))
    scale = np.float32(get_f64(record + 8 * SCALE))
    softcap = np.float32(get_f64(record + 8 * SOFTCAP))
    part_stride = 4 * (padded + 16)
    p = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    parts = p + 512 * AT_ONCE
    merged = parts + AT_ONCE * part_stride
    codes = merged + TOKENS * AT_ONCE * part_stride
    sinks = get_i64(record + 8 * SINKS)
    # Tokens of one head that are taken at once in all blocks, if a query head has keys of its own.
    most = AT_ONCE if group == 1 and firsts != 0 else 1
    # Tokens that are taken at once in the blocks that all of them see whole.
    some = TOKENS if firsts == 0 and group % TOKENS != 0 and tokens >= 4 * TOKENS * threads else 1
    step = max(most, some)
    q_stride, out_stride = get_i64(record + 8 * Q_STRIDE), get_i64(record + 8 * OUT_STRIDE)
    for unit in range(kv_heads * units):
        head = unit // units
        first = unit % units * AT_ONCE
        heads = min(group - first, AT_ONCE)
        first += head * group
        t = step * thread
        while t < tokens:
            limit = min(t // step * step + step, tokens)
            q = get_i64(record + 8 * Q) + t * q_stride + 4 * first * head_dim
            out = get_i64(record + 8 * OUT) + t * out_stride + 4 * first * value_dim
            table = get_i64(get_i64(record + 8 * CACHES) + 8 * t)
            visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) + 1
            lowest = _window_start(visible, window, firsts, t)
            rows = 1
            if most > 1:
                while t + rows < limit and _sees(record, t + rows, table, visible, lowest):
                    rows += 1
            else:
                while t + rows < limit and _follows(record, t + rows, table, visible + rows - 1):
                    rows += 1
            begin = lowest // 128
            end = (visible + 127) // 128
            whole_from, whole_to = begin, end
            if most == 1:
                end = (visible + rows - 1 + 127) // 128
                highest = _window_start(visible + rows - 1, window, firsts, t)
                whole_from = highest // 128 + min(highest, 1)
                whole_to = visible // 128
                if rows == 1:
                    whole_to = 0  # all heads together
            keys = _keys_at(qt, table, begin, offset, head, head_dim)
            for block in range(begin, end):
                values = _values_at(
                    qt, table, block, offset, head, kv_heads, head_dim, value_dim
                )  # fmt: skip
                ahead = keys
                if block + 1 < end:
                    ahead = _keys_at(qt, table, block + 1, offset, head, head_dim)
                start = 128 * block
                whole = whole_from <= block < whole_to
                # In whole blocks a head of all rows together, in others a row with all heads.
                calls, count = rows, heads
                between, call_step, q_step = TOKENS, q_stride, 4 * head_dim
                if whole:
                    calls, count = heads, rows
                    between, call_step, q_step = 1, 4 * head_dim, q_stride
                for call in range(calls):
                    seen, low, slot = visible, lowest, TOKENS * call
                    if not whole:
                        seen, slot = visible + call, call
                        low = _window_start(seen, window, firsts, t)
                    if low // 128 <= block and start < seen:
                        is_first = block == low // 128
                        to, part_step = parts, part_stride
                        if is_first:
                            to, part_step = merged + slot * part_stride, between * part_stride
                        attend_block(
                            isa, qt, q + call * call_step, q_step, head_dim, value_dim, count,
                            keys, values, max(low - start, 0), min(seen - start, 128), scale,
                            softcap, p, to, part_step, codes, ahead,
                        )  # fmt: skip
                        if not is_first:
                            for i in range(count):
                                into = merged + (slot + i * between) * part_stride
                                _merge(isa, into, parts + i * part_stride, padded)
                keys = ahead
            for g in range(heads):
                for row in range(rows):
                    part = merged + (TOKENS * g + row) * part_stride
                    to = out + row * out_stride + 4 * g * value_dim
                    _finish(part, padded, to, value_dim, _sink_of(sinks, first + g))
            t += rows
            if t % step == 0 or t == tokens:
                t = (t + step - 1) // step * step + step * (threads - 1)


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
        blocks = (visible + 127) // 128 - _window_start(visible, window, firsts, t) // 128
        total += kv_heads * units * blocks
    first = total * thread // threads
    last = total * (thread + 1) // threads
    turn = 0
    parts = get_i64(record + 8 * PARTS)
    for t in range(tokens):
        visible = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t)) + 1
        lowest = _window_start(visible, window, firsts, t)
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
                    keys = _keys_at(qt, table, block, offset, head, head_dim)
                    values = _values_at(
                        qt, table, block, offset, head, kv_heads, head_dim, value_dim
                    )  # fmt: skip
                    ahead = _keys_at(qt, table, block, offset, (unit + 1) // units, head_dim)
                    if unit + 1 == kv_heads * units and block + 1 < end:
                        ahead = _keys_at(qt, table, block + 1, offset, 0, head_dim)
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
        blocks = (visible + 127) // 128 - _window_start(visible, window, firsts, t) // 128
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
        for head in range(heads):
            if (t * heads + head) % threads == thread:
                merged = parts + head * part_stride
                for block in range(1, blocks):
                    _merge(isa, merged, merged + block * heads * part_stride, padded)
                sink = _sink_of(sinks, head)
                _finish(merged, padded, out + 4 * head * value_dim, value_dim, sink)
        parts += blocks * heads * part_stride
