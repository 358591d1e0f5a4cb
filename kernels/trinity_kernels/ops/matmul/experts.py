"""The products of experts: the rows of each expert (ops/expert_rows.py) times its weights.

These kernels multiply nothing themselves. For each expert they copy their record, write the
expert's addresses into the copy, and call the kernel in INNER with it, which may be of any type and
variant. So an expert with few rows uses dot products, one with many rows panels or tiles.

The record is that of the inner kernel, except for these slots:

    W       the address of an int64 for each expert, the address of its weights
    SCALE   the address of a float64 for each expert
    BIAS    the bias of the first expert, or 0; the next are BIAS_STEP bytes apart
    TILES   the tiles of the first pair of 16 tokens; the next pairs are TILE_STEP bytes apart
    ROWS    ignored
"""

from __future__ import annotations

from typing import Any

from trinity_kernels._jit import inline, kernel
from trinity_kernels.isa import is_compiled_copy
from trinity_kernels.memory import get_i64, set_i64
from trinity_kernels.ops.expert_rows import (
    ACTIVE,
    COPIES,
    COPY_BYTES,
    COUNT,
    EXPERT,
    FIRST_PAIR,
    FIRST_ROW,
    group_at,
)
from trinity_kernels.ops.matmul.operands import (
    BIAS,
    CODES,
    CODES_STRIDE,
    INDEX,
    OUT,
    OUT_STRIDE,
    SCALE,
    SCRATCH,
    SCRATCH_STRIDE,
    TILES,
    W_STRIDE,
    X_STRIDE,
    N,
    W,
    X,
)
from trinity_kernels.record import BARRIER, ROWS, SLOTS

if not is_compiled_copy():
    from trinity_kernels._jit import python_kernel

    def call_kernel(kernel: int, record: int, thread: int, threads: int) -> None:
        """Run the kernel uncompiled."""
        python_kernel(int(kernel))(record, thread, threads)

else:
    from trinity_kernels.atomics import call_kernel

# BIAS_STEP is a slot that otherwise only kernels that write tiles use.
BIAS_STEP, INNER, GROUPS, TILE_STEP = 17, 21, 22, 23
# The cost of an expert in rows: its rows, and so many for reading and unpacking its weights.
READ_COST = 3


@inline
def _copied(record: int, thread: int) -> Any:
    """A thread's own copy of the record."""
    copy = get_i64(get_i64(record + 8 * GROUPS) + 8 * COPIES) + thread * COPY_BYTES
    for slot in range(SLOTS):
        set_i64(copy + 8 * slot, get_i64(record + 8 * slot))
    set_i64(copy + 8 * BARRIER, 0)
    return copy


@inline
def _bind_rows(record: int, copy: int, group: int) -> None:
    """Write an expert's rows of activations into the copy."""
    row = get_i64(group + 8 * FIRST_ROW)
    pair = get_i64(group + 8 * FIRST_PAIR)
    set_i64(copy + 8 * ROWS, group + 8 * COUNT)
    x = get_i64(record + 8 * X) + row * get_i64(record + 8 * X_STRIDE)
    set_i64(copy + 8 * X, x)
    tiles = get_i64(record + 8 * TILES) + pair * get_i64(record + 8 * TILE_STEP)
    set_i64(copy + 8 * TILES, tiles)


@inline
def _bind_panels(record: int, copy: int, group: int, first: int, last: int) -> None:
    """Write an expert's rows of weights 16 * first to 16 * last, or to the end, into the copy."""
    expert = get_i64(group + 8 * EXPERT)
    row = get_i64(group + 8 * FIRST_ROW)
    w = get_i64(get_i64(record + 8 * W) + 8 * expert)
    set_i64(copy + 8 * W, w + 16 * first * get_i64(record + 8 * W_STRIDE))
    n = get_i64(record + 8 * N)
    set_i64(copy + 8 * N, min(n, 16 * last) - 16 * first)
    set_i64(copy + 8 * SCALE, get_i64(get_i64(record + 8 * SCALE) + 8 * expert))
    bias = get_i64(record + 8 * BIAS)
    if bias != 0:
        step = get_i64(record + 8 * BIAS_STEP)
        set_i64(copy + 8 * BIAS, bias + expert * step + 64 * first)
    out = get_i64(record + 8 * OUT) + row * get_i64(record + 8 * OUT_STRIDE)
    set_i64(copy + 8 * OUT, out + 64 * first)


@kernel
def expert_products(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Multiply panels of 16 rows of weights of all experts, which threads share by their cost.

    A thread gets adjacent panels: parts of experts if there are few, whole experts if many.
    """
    groups = get_i64(record + 8 * GROUPS)
    active = get_i64(groups + 8 * ACTIVE)
    panels = (get_i64(record + 8 * N) + 15) // 16
    work = 0
    for number in range(active):
        work += get_i64(group_at(groups, number) + 8 * COUNT) + READ_COST
    first = work * panels * thread // threads
    last = work * panels * (thread + 1) // threads
    copy = _copied(record, thread)
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    set_i64(copy + 8 * SCRATCH, scratch)
    inner = get_i64(record + 8 * INNER)
    start = 0
    for number in range(active):
        group = group_at(groups, number)
        cost = get_i64(group + 8 * COUNT) + READ_COST
        # A panel belongs to the thread in whose share its work starts.
        begin = min(panels, max(0, (first - start + cost - 1) // cost))
        end = min(panels, max(0, (last - start + cost - 1) // cost))
        start += cost * panels
        if begin < end:
            _bind_rows(record, copy, group)
            _bind_panels(record, copy, group, begin, end)
            call_kernel(inner, copy, 0, 1)


@kernel
def expert_tiles(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Write activations as tiles, expert by expert; all threads work on each.

    INDEX is 0, or the token of each row: X has the rows of tokens, CODES those of experts.
    """
    groups = get_i64(record + 8 * GROUPS)
    copy = _copied(record, thread)
    index = get_i64(record + 8 * INDEX)
    for number in range(get_i64(groups + 8 * ACTIVE)):
        group = group_at(groups, number)
        row = get_i64(group + 8 * FIRST_ROW)
        _bind_rows(record, copy, group)
        if index != 0:
            set_i64(copy + 8 * X, get_i64(record + 8 * X))
            set_i64(copy + 8 * INDEX, index + 4 * row)
        codes = get_i64(record + 8 * CODES) + row * get_i64(record + 8 * CODES_STRIDE)
        set_i64(copy + 8 * CODES, codes)
        call_kernel(get_i64(record + 8 * INNER), copy, thread, threads)
