"""Group the rows of a step by expert: the rows of one expert are adjacent, in the order of tokens.

M tokens with P experts each have M * P rows.

    GROUPS  int64: the number of experts that have rows, the number of rows, the address of the
            threads' copies of a record (ops/matmul/experts.py); from ``FIRST_GROUP`` on
            ``GROUP_WORDS`` numbers for each of these experts, in ascending order: the expert, its
            first row, its number of rows, the pairs of tiles of 16 tokens of previous experts
    PLACES  int32 (M, P): the row of each token and choice
    TOKENS  int32 (M * P): the token of each row
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i32, get_i64, set_f32, set_i32, set_i64, slots_of
from trinity_kernels.record import RECORD_BYTES, ROWS
from trinity_kernels.tags import per_level

# In GROUPS, in int64: its head, then the words of each group.
ACTIVE, ALL_ROWS, COPIES, FIRST_GROUP = 0, 1, 2, 8
GROUP_WORDS = 4
EXPERT, FIRST_ROW, COUNT, FIRST_PAIR = range(4)
COPY_BYTES = -(-RECORD_BYTES // 64) * 64  # of each thread, its own lines

# Slots of group_by_expert; COUNTS: an int64 for each expert, to count in.
CHOSEN, EXPERTS, PER_TOKEN, PLACES, TOKENS, GROUPS, COUNTS = range(3, 10)
# Slots of spread: as many of those above, then rows of NBYTES, a multiple of 4.
X, X_STRIDE, OUT, OUT_STRIDE, NBYTES = range(10, 15)
WEIGHTS = 15  # of spread_weighted: float32 (M, PER_TOKEN)


def groups_words(experts: int) -> int:
    """The number of int64 in GROUPS for so many experts."""
    return FIRST_GROUP + GROUP_WORDS * experts


@inline
def group_at(groups: int, number: int) -> int:
    """The address of a group's words."""
    return groups + 8 * (FIRST_GROUP + GROUP_WORDS * number)


@kernel
def group_by_expert(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Assign a row to each token and choice, from the experts in CHOSEN, int32 (M, PER_TOKEN).

    One thread counts and sorts. Experts are numbers from 0 to EXPERTS - 1.
    """
    if thread != 0:
        return
    per_token = get_i64(record + 8 * PER_TOKEN)
    total = get_i64(get_i64(record + 8 * ROWS)) * per_token
    experts, chosen, counts = slots_of(record, (EXPERTS, CHOSEN, COUNTS))
    groups, places, tokens = slots_of(record, (GROUPS, PLACES, TOKENS))
    for expert in range(experts):
        set_i64(counts + 8 * expert, 0)
    for i in range(total):
        at = counts + 8 * int(get_i32(chosen + 4 * i))
        set_i64(at, get_i64(at) + 1)
    active = 0
    row = 0
    pair = 0
    for expert in range(experts):
        count = get_i64(counts + 8 * expert)
        if count > 0:
            group = group_at(groups, active)
            set_i64(group + 8 * EXPERT, expert)
            set_i64(group + 8 * FIRST_ROW, row)
            set_i64(group + 8 * COUNT, count)
            set_i64(group + 8 * FIRST_PAIR, pair)
            # From here on COUNTS counts the rows that are assigned.
            set_i64(counts + 8 * expert, row)
            active += 1
            row += count
            pair += (count + 31) // 32
    set_i64(groups + 8 * ACTIVE, active)
    set_i64(groups + 8 * ALL_ROWS, total)
    for i in range(total):
        at = counts + 8 * int(get_i32(chosen + 4 * i))
        row = get_i64(at)
        set_i64(at, row + 1)
        set_i32(places + 4 * i, row)
        set_i32(tokens + 4 * row, i // per_token)


@inline
def _pairs(record: int, thread: int, threads: int) -> tuple[int, int]:
    """The share of a thread of the pairs of a token and one of its experts."""
    total = get_i64(get_i64(record + 8 * ROWS)) * get_i64(record + 8 * PER_TOKEN)
    return total * thread // threads, total * (thread + 1) // threads


@inline
def _rows_of(record: int, pair: int) -> tuple[int, int]:
    """The row of X of a pair's token, and the row of OUT of the pair."""
    token = pair // get_i64(record + 8 * PER_TOKEN)
    row = int(get_i32(get_i64(record + 8 * PLACES) + 4 * pair))
    x = get_i64(record + 8 * X) + token * get_i64(record + 8 * X_STRIDE)
    return x, get_i64(record + 8 * OUT) + row * get_i64(record + 8 * OUT_STRIDE)


def _copy(isa: Any, source: int, to: int, nbytes: int) -> None:
    for at in range(0, nbytes, 4):
        set_f32(to + at, get_f32(source + at))


def _vector_copy(isa: Any, source: int, to: int, nbytes: int) -> None:
    whole = nbytes // 64 * 64
    for at in range(0, whole, 64):
        simd.store_f32x16(to + at, simd.load_f32x16(source + at))
    for at in range(whole, nbytes, 4):
        set_f32(to + at, get_f32(source + at))


per_level(_vector_copy)(_copy)


@kernel
def spread(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Copy each token's row of X, of NBYTES bytes, to its PER_TOKEN rows of OUT."""
    first, last = _pairs(record, thread, threads)
    for i in range(first, last):
        x, to = _rows_of(record, i)
        _copy(isa, x, to, get_i64(record + 8 * NBYTES))


@inline
def _scaled_range(source: int, weight: Any, to: int, first: int, nbytes: int) -> None:
    for at in range(first, nbytes, 4):
        set_f32(to + at, np.float32(get_f32(source + at) * weight))


def _scaled(isa: Any, source: int, weight: Any, to: int, nbytes: int) -> None:
    _scaled_range(source, weight, to, 0, nbytes)


def _vector_scaled(isa: Any, source: int, weight: Any, to: int, nbytes: int) -> None:
    whole = nbytes // 64 * 64
    factor = simd.splat_f32x16(weight)
    for at in range(0, whole, 64):
        simd.store_f32x16(to + at, simd.load_f32x16(source + at) * factor)
    _scaled_range(source, weight, to, whole, nbytes)


per_level(_vector_scaled)(_scaled)


@kernel
def spread_weighted(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """As ``spread``, for rows of float32, which the weight of their expert multiplies."""
    first, last = _pairs(record, thread, threads)
    for i in range(first, last):
        x, to = _rows_of(record, i)
        weight = get_f32(get_i64(record + 8 * WEIGHTS) + 4 * i)
        _scaled(isa, x, weight, to, get_i64(record + 8 * NBYTES))
