"""Pages of a KV cache for the checks of attention and of rope_store: one layer, one KV head."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops import kv_layout
from trinity_kernels.selftest.comparing import at, random_numbers

Array = NDArray[Any]
HEADS, KV_HEADS, DIM, VALUE_DIM, PAGES = 10, 1, 24, 40, 3
POSITIONS = PAGES * kv_layout.PAGE


def filled_pages(kv_type: str) -> tuple[Array, Array, Array]:
    """The memory of random pages, and their keys and values (positions, KV heads, dim)."""
    keys, values = (
        random_numbers().standard_normal((POSITIONS, KV_HEADS, dim)).astype(np.float32)
        for dim in (DIM, VALUE_DIM)
    )
    dtype = np.float16 if kv_type == "F16" else np.float32
    size = kv_layout.layer_bytes(kv_type, KV_HEADS, DIM, VALUE_DIM)
    memory = np.zeros((PAGES, size // np.dtype(dtype).itemsize), dtype)
    key_part, value_part = _views(memory)
    key_part[:] = keys.reshape(PAGES, -1, 16, KV_HEADS, DIM).transpose(0, 3, 1, 4, 2)
    by_page = values.reshape(PAGES, -1, KV_HEADS, VALUE_DIM)
    value_part[..., :VALUE_DIM] = by_page.transpose(0, 2, 1, 3)
    return memory, keys.astype(dtype).astype(np.float64), values.astype(dtype).astype(np.float64)


def keys_and_values(memory: Array) -> tuple[Array, Array]:
    """What pages contain, as keys and values (positions, KV heads, dim)."""
    keys, values = _views(memory)
    return (
        keys.transpose(0, 2, 4, 1, 3).reshape(POSITIONS, KV_HEADS, DIM),
        values.transpose(0, 2, 1, 3)[..., :VALUE_DIM].reshape(POSITIONS, KV_HEADS, VALUE_DIM),
    )


def page_table(memory: Array) -> Array:
    """The addresses of the pages."""
    return np.array([at(page) for page in memory], np.int64)


def _views(memory: Array) -> tuple[Array, Array]:
    """Views: keys [page][head][tile][dim][16] and values [page][head][position][padded]."""
    count = KV_HEADS * kv_layout.PAGE * DIM
    keys = memory[:, :count].reshape(PAGES, KV_HEADS, -1, DIM, 16)
    return keys, memory[:, count:].reshape(PAGES, KV_HEADS, kv_layout.PAGE, -1)
