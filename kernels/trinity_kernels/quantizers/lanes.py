"""16 groups of values side by side: a line is 16 float32, one of each group.

The searches of quantizers process lines, so every group goes through the same steps in the order of
its elements, and results do not depend on the CPU. Lines have the operators +, -, * and /. Without
compilation they are NumPy arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from trinity_kernels.isa import is_compiled_copy

LANES = 16
LINE = 4 * LANES  # bytes

load: Callable[..., Any]
store: Callable[..., Any]
splat: Callable[..., Any]
rint: Callable[..., Any]
floor: Callable[..., Any]
largest_lane: Callable[..., Any]
absolute: Callable[..., Any]
smaller: Callable[..., Any]
larger: Callable[..., Any]
where_less: Callable[..., Any]
store_codes: Callable[..., Any]

if not is_compiled_copy():

    def load(address: int) -> Any:
        """The line at ``address``."""
        return np.frombuffer(ctypes.string_at(int(address), LINE), np.float32)

    def store(address: int, line: Any) -> None:
        """Write a line."""
        ctypes.memmove(int(address), np.asarray(line, np.float32).tobytes(), LINE)

    def splat(value: Any) -> Any:
        """A value in every lane."""
        return np.full(LANES, value, np.float32)

    rint, floor, absolute, largest_lane = np.rint, np.floor, np.abs, np.max

    def smaller(a: Any, b: Any) -> Any:
        """a where a < b, else b."""
        return np.where(a < b, a, b)

    def larger(a: Any, b: Any) -> Any:
        """a where a > b, else b."""
        return np.where(a > b, a, b)

    def where_less(a: Any, b: Any, value: Any, other: Any) -> Any:
        """``value`` where a < b, else ``other``."""
        return np.where(a < b, value, other)

    def store_codes(address: int, line: Any) -> None:
        """Write whole numbers from -128 to 255 as bytes."""
        codes = np.asarray(line).astype(np.int32).astype(np.uint8)
        ctypes.memmove(int(address), codes.tobytes(), LANES)

else:
    from trinity_kernels import simd
    from trinity_kernels._jit import inline

    load, store, splat = simd.load_f32x16, simd.store_f32x16, simd.splat_f32x16
    rint, floor, absolute = simd.rint_f32x16, simd.floor_f32x16, simd.abs_f32x16
    largest_lane = simd.max_lane_f32x16
    smaller, larger, where_less = simd.min_f32x16, simd.max_f32x16, simd.select_less

    @inline
    def store_codes(address: int, line: Any) -> None:
        """Write whole numbers from -128 to 255 as bytes."""
        simd.store_i8x16(address, simd.narrow_i8x16(simd.round_i32x16(line)))
