"""Copy pieces of rows from x to out.

Shapes: X and OUT are M rows of float32, X_STRIDE and OUT_STRIDE bytes apart. A row has GROUPS
pieces of WIDTH values, X_STEP bytes apart in x and OUT_STEP in out.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i64, set_f32
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, X_STRIDE, X_STEP, OUT, OUT_STRIDE, OUT_STEP, GROUPS, WIDTH = range(3, 11)


@inline
def _one_by_one(x: int, out: int, first: int, last: int) -> None:
    for i in range(first, last):
        set_f32(out + 4 * i, get_f32(x + 4 * i))


def _piece(isa: Any, x: int, out: int, width: int) -> None:
    _one_by_one(x, out, 0, width)


def _piece_vector(isa: Any, x: int, out: int, width: int) -> None:
    for i in range(width // 16):
        simd.store_f32x16(out + 64 * i, simd.load_f32x16(x + 64 * i))
    _one_by_one(x, out, width // 16 * 16, width)


per_level(_piece_vector)(_piece)


@kernel
def copy(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Copy; a piece belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    groups = get_i64(record + 8 * GROUPS)
    width = get_i64(record + 8 * WIDTH)
    for item in range(thread, tokens * groups, positive(threads)):
        t = item // groups
        g = item % groups
        x = get_i64(record + 8 * X) + t * get_i64(record + 8 * X_STRIDE)
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
        x += g * get_i64(record + 8 * X_STEP)
        out += g * get_i64(record + 8 * OUT_STEP)
        _piece(isa, x, out, width)
