"""The recurrent state of a layer: where it is stored, and how a token updates it.

Each page of a sequence stores the state after the newest of its 128 positions, LAYER_OFFSET bytes
into the page's part for windowed layers. A token updates its page's state in place; the first token
of a page reads that of the previous page, and the token at position 0 starts from zeros. TABLES has
two addresses for each row: the page table from which the state before the token is read, and the
page table for the state after it. Usually both are the table of the sequence; if the states after
several tokens are needed, each has memory of its own.

A head's state is a matrix S (keys, values), stored as groups of 16 columns: 16 * keys float32 for
each 16 values. A token computes S = decay * S + k u^T and reads o = S^T q.
Numerics: a sum over keys is the sum of even keys plus that of odd keys, each in order with fused
multiply-add; decay * S is rounded separately.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import fma_f32, get_f32, get_i32, get_i64, set_f32
from trinity_kernels.ops.kv_layout import PAGE

COLUMNS = 16


def state_values(heads: int, keys: int, values: int) -> int:
    """The number of float32 in the state of a layer's heads."""
    return heads * keys * -(-values // COLUMNS) * COLUMNS


@inline
def state_after(tables: int, row: int, position: int, offset: int) -> int:
    """The address for the state after ``position``."""
    table = get_i64(tables + 16 * row + 8)
    return int(get_i64(table + 8 * (position // PAGE)) + offset)


@inline
def state_before(tables: int, row: int, position: int, offset: int) -> int:
    """The address of the state before ``position``, which is not 0."""
    table = get_i64(tables + 16 * row)
    return int(get_i64(table + 8 * ((position - 1) // PAGE)) + offset)


@inline
def own_values(count: int, thread: int, threads: int) -> tuple[int, int]:
    """The first value of a thread's part of ``count`` values, and its end, in groups of 16."""
    units = (count + 15) // 16
    first = min(units * thread // threads * 16, count)
    return first, min(units * (thread + 1) // threads * 16, count)


@inline
def states_around(tables: int, positions: int, row: int, offset: int) -> tuple[int, int]:
    """The addresses of the states before and after a row's token.

    The first is 0 at position 0, where there is no state.
    """
    position = int(get_i32(positions + 4 * row))
    new = state_after(tables, row, position, offset)
    if position > 0:
        return state_before(tables, row, position, offset), new
    return 0, new


@inline
def _clear(state: int, count: int) -> None:
    """Set ``count`` float32 to zero."""
    for i in range(count):
        set_f32(state + 4 * i, np.float32(0))


@inline
def states_of(tables: int, positions: int, row: int, offset: int, keys: int) -> tuple[int, int]:
    """The addresses of the states before and after a row's token, of 16 columns.

    At position 0 both are the new state, which is set to zeros.
    """
    old, new = states_around(tables, positions, row, offset)
    if old != 0:
        return old, new
    _clear(new, COLUMNS * keys)
    return new, new


@inline
def read_column(k: int, state: int, keys: int) -> Any:
    """S^T k of the column at ``state``."""
    even = np.float32(0)
    odd = np.float32(0)
    for i in range(keys):
        s = get_f32(state + 64 * i)
        if i % 2 == 0:
            even = fma_f32(get_f32(k + 4 * i), s, even)
        else:
            odd = fma_f32(get_f32(k + 4 * i), s, odd)
    return np.float32(even + odd)


@inline
def advance_column(
    old: int, new: int, q: int, k: int, u: Any, keys: int, decay: Any
) -> Any:  # fmt: skip
    """Update the column at ``old`` to ``new``, and return S^T q of the new one."""
    even = np.float32(0)
    odd = np.float32(0)
    for i in range(keys):
        s = fma_f32(get_f32(k + 4 * i), u, np.float32(get_f32(old + 64 * i) * decay))
        set_f32(new + 64 * i, s)
        if i % 2 == 0:
            even = fma_f32(get_f32(q + 4 * i), s, even)
        else:
            odd = fma_f32(get_f32(q + 4 * i), s, odd)
    return np.float32(even + odd)


@inline
def read_columns(k: int, state: int, keys: int) -> Any:
    """As ``read_column``, for 16 columns."""
    even = simd.splat_f32x16(np.float32(0))
    odd = even
    for pair in range(keys // 2):
        at = state + 128 * pair
        factor = simd.splat_f32x16(get_f32(k + 8 * pair))
        even = simd.fma_f32x16(factor, simd.load_f32x16(at), even)
        factor = simd.splat_f32x16(get_f32(k + 8 * pair + 4))
        odd = simd.fma_f32x16(factor, simd.load_f32x16(at + 64), odd)
    if keys % 2 != 0:
        factor = simd.splat_f32x16(get_f32(k + 4 * (keys - 1)))
        even = simd.fma_f32x16(factor, simd.load_f32x16(state + 64 * (keys - 1)), even)
    return even + odd


@inline
def _advance_row(old: int, new: int, k: Any, u: Any, decay: Any) -> Any:
    s = simd.fma_f32x16(simd.splat_f32x16(k), u, simd.load_f32x16(old) * decay)
    simd.store_f32x16(new, s)
    return s


@inline
def advance_and_read(
    old: int, new: int, q: int, k: int, u: Any, keys: int, decay: Any, next_k: int, seen: int
) -> Any:  # fmt: skip
    """As ``advance_columns``; then the result of ``read_columns`` for ``next_k`` goes to ``seen``.

    It has the same bits, and reads each row of the state once.
    """
    even = simd.splat_f32x16(np.float32(0))
    odd, next_even, next_odd = even, even, even
    factor = simd.splat_f32x16(decay)
    for i in range(0, keys // 2 * 2, 2):
        s = _advance_row(old + 64 * i, new + 64 * i, get_f32(k + 4 * i), u, factor)
        even = simd.fma_f32x16(simd.splat_f32x16(get_f32(q + 4 * i)), s, even)
        next_even = simd.fma_f32x16(simd.splat_f32x16(get_f32(next_k + 4 * i)), s, next_even)
        at = 64 * i + 64
        s = _advance_row(old + at, new + at, get_f32(k + 4 * i + 4), u, factor)
        odd = simd.fma_f32x16(simd.splat_f32x16(get_f32(q + 4 * i + 4)), s, odd)
        next_odd = simd.fma_f32x16(simd.splat_f32x16(get_f32(next_k + 4 * i + 4)), s, next_odd)
    if keys % 2 != 0:
        i = keys - 1
        s = _advance_row(old + 64 * i, new + 64 * i, get_f32(k + 4 * i), u, factor)
        even = simd.fma_f32x16(simd.splat_f32x16(get_f32(q + 4 * i)), s, even)
        next_even = simd.fma_f32x16(simd.splat_f32x16(get_f32(next_k + 4 * i)), s, next_even)
    simd.store_f32x16(seen, next_even + next_odd)
    return even + odd


@inline
def advance_columns(
    old: int, new: int, q: int, k: int, u: Any, keys: int, decay: Any
) -> Any:  # fmt: skip
    """As ``advance_column``, for 16 columns; u has a value for each."""
    even = simd.splat_f32x16(np.float32(0))
    odd = even
    factor = simd.splat_f32x16(decay)
    for i in range(0, keys // 2 * 2, 2):
        s = _advance_row(old + 64 * i, new + 64 * i, get_f32(k + 4 * i), u, factor)
        even = simd.fma_f32x16(simd.splat_f32x16(get_f32(q + 4 * i)), s, even)
        at = 64 * i + 64
        s = _advance_row(old + at, new + at, get_f32(k + 4 * i + 4), u, factor)
        odd = simd.fma_f32x16(simd.splat_f32x16(get_f32(q + 4 * i + 4)), s, odd)
    if keys % 2 != 0:
        i = keys - 1
        s = _advance_row(old + 64 * i, new + 64 * i, get_f32(k + 4 * i), u, factor)
        even = simd.fma_f32x16(simd.splat_f32x16(get_f32(q + 4 * i)), s, even)
    return even + odd
