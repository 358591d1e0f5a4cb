"""Recurrent state: where a token finds it, and how it brings it forward.

A layer keeps its state in the windowed part of a sequence's pages, LAYER_OFFSET bytes into it: in a
page's part that behind the newest of its 128 positions. So a token changes the state of its page in
place; the first of a page takes the page's before, that at position 0 begins with zeros. TABLES has
two addresses for each row: of the table in which the state before the row's token is found, and of
that in which the state behind it goes. They are a sequence's one table, but where the states behind
several tokens are wanted: then each lies in memory of its own.

A head's state is a matrix S (keys, values), in columns of 16 side by side: 16 * keys float32 for
each 16 values or part of them. A token makes S = decay * S + k u^T of it and reads o = S^T q.
Numerics: a sum over keys is that of the even ones plus that of the odd ones, each in order with
fused multiply-add; decay * S is rounded by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import fma_f32, get_f32, get_i64, set_f32
from trinity_kernels.ops.kv_layout import PAGE

COLUMNS = 16


def state_values(heads: int, keys: int, values: int) -> int:
    """How many float32 the state of one layer's heads takes."""
    return heads * keys * -(-values // COLUMNS) * COLUMNS


@inline
def state_after(tables: int, row: int, position: int, offset: int) -> int:
    """Where the state behind ``position`` goes."""
    table = get_i64(tables + 16 * row + 8)
    return int(get_i64(table + 8 * (position // PAGE)) + offset)


@inline
def state_before(tables: int, row: int, position: int, offset: int) -> int:
    """Where the state before ``position`` is, which is not 0."""
    table = get_i64(tables + 16 * row)
    return int(get_i64(table + 8 * ((position - 1) // PAGE)) + offset)


@inline
def clear(state: int, count: int) -> None:
    """``count`` float32 of zero."""
    for i in range(count):
        set_f32(state + 4 * i, np.float32(0))


@inline
def read_column(k: int, state: int, keys: int) -> Any:
    """S^T k of the column that begins at ``state``."""
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
    """The column at ``old`` brought forward to ``new``; S^T q of it."""
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
    """As ``read_column``, of 16 columns."""
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
    """As ``advance_columns``; what ``read_columns`` then gives for ``next_k`` goes to ``seen``.

    The same bits, while each row of the state is in a register.
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
    """As ``advance_column``, of 16 columns; u has a value for each."""
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
