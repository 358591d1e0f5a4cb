"""The layout of a layer's keys and values in a page of 128 positions.

The keys of all KV heads come first, then the values of all heads. The keys of a head are tiles of
16 positions, ``[tile][head_dim][16]``, so 16 scores are computed without sums across lanes. The
values of a head are ``[position][padded]``; ``padded`` is value_dim (usually head_dim) rounded up
to 32. Elements are float16 or float32, by the tag "F16" or "F32".
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.tags import chosen, constant

PAGE = 128
KV_TYPES = ("F16", "F32")


def layer_bytes(
    kv_type: str, kv_heads: int, head_dim: int, value_dim: int, positions: int = PAGE
) -> int:
    """Bytes of one layer's part of a page, or of ``positions`` of it."""
    width = 2 if kv_type == "F16" else 4
    return width * kv_heads * positions * (head_dim + -(-value_dim // 32) * 32)


@inline
def padded_dim(value_dim: int) -> int:
    """Elements between one position's values and the next."""
    return (value_dim + 31) // 32 * 32


@constant
def width(qt: Any) -> int:
    """Bytes of an element."""
    return 2 if qt.value == "F16" else 4


@chosen
def get_element(qt: Any, address: Any) -> Any:
    """One element as float32."""
    if qt.value == "F16":
        return lambda qt, address: memory.get_f16(address)
    return lambda qt, address: memory.get_f32(address)


@chosen
def set_element(qt: Any, address: Any, value: Any) -> Any:
    """Write one element."""
    if qt.value == "F16":
        return lambda qt, address, value: memory.set_f16(address, value)
    return lambda qt, address, value: memory.set_f32(address, value)


@chosen
def load_16(qt: Any, address: Any) -> Any:
    """16 elements as a float32 vector."""
    if qt.value == "F16":
        return lambda qt, address: simd.load_f16x16(address)
    return lambda qt, address: simd.load_f32x16(address)


@inline
def key_head(qt: Any, layer: int, head: int, head_dim: int) -> int:
    """The address of the keys of a KV head."""
    return layer + width(qt) * head * 128 * head_dim


@inline
def value_head(qt: Any, layer: int, head: int, kv_heads: int, head_dim: int, value_dim: int) -> int:
    """The address of the values of a KV head."""
    keys = kv_heads * 128 * head_dim
    head_bytes: int = width(qt) * (keys + head * 128 * padded_dim(value_dim))
    return layer + head_bytes
