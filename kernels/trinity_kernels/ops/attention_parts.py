"""Parts of attention: the results of blocks of positions for a query, merged and finished.

A part: the sum of exp(s - m) * value (padded dimensions), m, and the sum of exp(s - m).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, set_f32
from trinity_kernels.ops.exponential import exp_f32
from trinity_kernels.tags import per_level


def part_bytes(value_dim: int) -> int:
    """Bytes of a part: the weighted values, m, and the sum of probabilities."""
    return 4 * (-(-value_dim // 32) * 32 + 16)


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


def _copied(isa: Any, part: int, to: int, padded: int) -> None:
    for d in range(padded):
        set_f32(to + 4 * d, get_f32(part + 4 * d))


def _vector_copied(isa: Any, part: int, to: int, padded: int) -> None:
    for at in range(0, 4 * padded, 64):
        simd.store_f32x16(to + at, simd.load_f32x16(part + at))


per_level(_vector_copied)(_copied)


@inline
def copy_part(isa: Any, part: int, to: int, padded: int) -> None:
    """Copy a part."""
    _copied(isa, part, to, padded)
    set_f32(to + 4 * padded, get_f32(part + 4 * padded))
    set_f32(to + 4 * padded + 4, get_f32(part + 4 * padded + 4))


@inline
def merge(isa: Any, into: int, part: int, padded: int) -> None:
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
def finish(part: int, padded: int, out: int, value_dim: int, sink: int) -> None:
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
