"""The check of rope_store: rotate queries and keys, store keys and values in the KV cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import Kernel
from trinity_kernels.ops import kv_layout
from trinity_kernels.ops import rope as op
from trinity_kernels.selftest import kv_cache
from trinity_kernels.selftest.checks import Check
from trinity_kernels.selftest.comparing import at, differs, first_error, random_numbers, run_kernel
from trinity_kernels.selftest.kv_cache import DIM, HEADS, KV_HEADS, VALUE_DIM

Array = NDArray[Any]
# Of the elements of a head, those from _FIRST on are rotated, _ROTATED of them.
_FIRST, _ROTATED = 5, 16


def check_rope_store(kernel: Kernel, level: str, tag: str) -> str | None:
    """Store two tokens; pairs of elements are halves apart, then neighbours."""
    return first_error(_check_rope_store(kernel, level, tag, interleaved) for interleaved in (0, 1))


def _check_rope_store(kernel: Kernel, level: str, tag: str, interleaved: int) -> str | None:
    positions = np.array([5, 299], np.int32)
    rows = np.array([5, 17], np.int32)  # of the table
    turns = random_numbers().standard_normal((kv_cache.POSITIONS, _ROTATED)).astype(np.float32)
    temperatures = random_numbers().uniform(0.5, 2, kv_cache.POSITIONS).astype(np.float32)
    memory, keys, values = kv_cache.filled_pages(tag)
    table = kv_cache.page_table(memory)
    caches = np.full(2, at(table), np.int64)
    q = random_numbers().standard_normal((2, HEADS, DIM)).astype(np.float32)
    k = np.ascontiguousarray(q[:, :KV_HEADS] + np.float32(1))
    v = random_numbers().standard_normal((2, KV_HEADS, VALUE_DIM)).astype(np.float32)
    expected_q, expected_k = (x.astype(np.float64) for x in (q, k))
    for x in (expected_q, expected_k):
        x[..., _FIRST:] = _rotated(x[..., _FIRST:], turns[rows], interleaved)
    expected_q *= temperatures[positions][:, None, None]
    rounded = kv_cache.kept(tag, expected_k.astype(np.float32))
    keys[positions], values[positions] = rounded, kv_cache.kept(tag, v)
    run_kernel(kernel, level, tag, 2, {
        op.Q: at(q), op.Q_STRIDE: q.strides[0], op.KEY: at(k), op.VALUE: at(v),
        op.KEY_STRIDE: k.strides[0], op.VALUE_STRIDE: v.strides[0],
        op.POSITIONS: at(positions), op.CACHES: at(caches), op.LAYER_OFFSET: 0,
        op.TABLE: at(turns), op.TURNS: at(rows), op.TEMPERATURES: at(temperatures),
        op.HEAD_DIM: DIM, op.VALUE_DIM: VALUE_DIM, op.FIRST: _FIRST, op.ROPE_DIM: _ROTATED,
        op.HEADS: HEADS, op.KV_HEADS: KV_HEADS, op.INTERLEAVED: interleaved,
    })  # fmt: skip
    found_keys, found_values = kv_cache.keys_and_values(memory)
    for found, expected in ((q, expected_q), (found_keys, keys), (found_values, values)):
        error = differs(found, expected, 1e-5 + 1e-3 * np.abs(expected) * (tag == "F16"))
        if error:
            return error
    return None


def _rotated(x: Array, table: Array, interleaved: int) -> Array:
    half = table.shape[1] // 2
    cos, sin = table[:, None, :half], table[:, None, half:]
    out = x.copy()
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


CHECKS = {"rope_store": Check(op.rope_store, kv_layout.KV_TYPES, check_rope_store)}
