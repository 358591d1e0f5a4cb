"""The layout of a layer's keys and values in a page of 128 positions.

The keys of all KV heads come first, then the values of all heads. The keys of a head are tiles of
16 positions, so 16 scores are computed without sums across lanes.

F16 and F32: a tile is ``[head_dim][16]``; the values of a head are ``[position][padded]``.
``padded`` is value_dim (usually head_dim) rounded up to 32.

Q8_0: x = scale * code, int8 codes from -127 to 127, a float16 scale for 32 elements of a head, as
in ggml's type; the last block of a head may be shorter. A tile is ``[head_dim / 4][16][4]`` codes,
head_dim rounded up to 4, then ``[block][16]`` scales, of an even number of blocks. The values of a
head are ``[position][padded]`` codes, then ``[block][position]`` scales.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.tags import chosen, constant

PAGE = 128
KV_TYPES = ("F16", "F32", "Q8_0")


def layer_bytes(
    kv_type: str, kv_heads: int, head_dim: int, value_dim: int, positions: int = PAGE
) -> int:
    """Bytes of one layer's part of a page, or of ``positions`` of it."""
    tag = SimpleNamespace(value=kv_type)
    head = int(8 * tile_bytes(tag, head_dim) + value_bytes(tag, value_dim))
    return kv_heads * head * positions // PAGE


@inline
def padded_dim(value_dim: int) -> int:
    """Elements between one position's values and the next."""
    return (value_dim + 31) // 32 * 32


@constant
def width(qt: Any) -> int:
    """Bytes of an element."""
    return {"F16": 2, "F32": 4, "Q8_0": 1}[qt.value]


@chosen
def tile_bytes(qt: Any, head_dim: int) -> Any:
    """Bytes of 16 positions of a head's keys."""
    if qt.value == "Q8_0":
        return lambda qt, head_dim: (head_dim + 3) // 4 * 64 + (head_dim + 63) // 64 * 64
    return lambda qt, head_dim: width(qt) * 16 * head_dim


@chosen
def value_bytes(qt: Any, value_dim: int) -> Any:
    """Bytes of a head's values."""
    if qt.value == "Q8_0":
        return lambda qt, value_dim: (128 + 8) * padded_dim(value_dim)
    return lambda qt, value_dim: width(qt) * 128 * padded_dim(value_dim)


@chosen
def get_element(qt: Any, address: Any) -> Any:
    """One element, or its code, as float32."""
    if qt.value == "Q8_0":
        return lambda qt, address: np.float32(memory.get_i8(address))
    if qt.value == "F16":
        return lambda qt, address: memory.get_f16(address)
    return lambda qt, address: memory.get_f32(address)


@chosen
def set_element(qt: Any, address: Any, value: Any) -> Any:
    """Write one element; not for Q8_0."""
    if qt.value == "F16":
        return lambda qt, address, value: memory.set_f16(address, value)
    return lambda qt, address, value: memory.set_f32(address, value)


@chosen
def load_16(qt: Any, address: Any) -> Any:
    """16 elements, or their codes, as a float32 vector."""
    if qt.value == "Q8_0":
        return lambda qt, address: simd.to_f32x16(simd.widen_i8x16(simd.load_i8x16(address)))
    if qt.value == "F16":
        return lambda qt, address: simd.load_f16x16(address)
    return lambda qt, address: simd.load_f32x16(address)


@inline
def key_head(qt: Any, layer: int, head: int, head_dim: int) -> int:
    """The address of the keys of a KV head."""
    return layer + 8 * head * int(tile_bytes(qt, head_dim))


@inline
def value_head(qt: Any, layer: int, head: int, kv_heads: int, head_dim: int, value_dim: int) -> int:
    """The address of the values of a KV head."""
    values: int = key_head(qt, layer, kv_heads, head_dim)
    return values + head * int(value_bytes(qt, value_dim))
