"""Loops that replace the values of a row, one by one or 16 at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, set_f32
from trinity_kernels.tags import per_level


def in_place(one: Any, of_16: Any) -> Any:
    """A function of (isa, x, numbers, first, last), which replaces those values of the row x.

    ``one`` and ``of_16``, inline functions, return the new values of one old value and of 16, with
    the same bits; ``numbers`` is their second argument.
    """

    @inline
    def one_by_one(x: int, numbers: Any, first: int, last: int) -> None:
        for i in range(first, last):
            set_f32(x + 4 * i, one(get_f32(x + 4 * i), numbers))

    def vector(isa: Any, x: int, numbers: Any, first: int, last: int) -> None:
        whole = first + (last - first) // 16 * 16
        for i in range(first, whole, 16):
            simd.store_f32x16(x + 4 * i, of_16(simd.load_f32x16(x + 4 * i), numbers))
        one_by_one(x, numbers, whole, last)

    @per_level(vector)
    def replace(isa: Any, x: int, numbers: Any, first: int, last: int) -> None:
        one_by_one(x, numbers, first, last)

    return replace


@inline
def _times(x: Any, factor: Any) -> Any:
    return np.float32(x * factor)


@inline
def _times_f32x16(x: Any, factor: Any) -> Any:
    return x * simd.splat_f32x16(factor)


multiply = in_place(_times, _times_f32x16)
