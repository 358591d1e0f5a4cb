"""F32, F16 and BF16: plain numbers, kept as blocks of one element."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import choose
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.dot import AHEAD, register_dot, tree_sum
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType
from trinity_kernels.quants.unpack import register_unpack

if not jit_disabled():
    from trinity_kernels import simd, tiles

_F32 = np.dtype([("x", "<f4")])
_F16 = np.dtype([("x", "<f2")])
_BF16 = np.dtype([("x", "<u2")])


def _decode(blocks: Blocks) -> Floats:
    values: Floats = blocks["x"].astype(np.float32)[:, None]
    return values


def _encode_f32(values: Floats) -> Blocks:
    return np.ascontiguousarray(values[:, 0], "<f4").view(_F32)


def _encode_f16(values: Floats) -> Blocks:
    return values[:, 0].astype("<f2").view(_F16)


def _decode_bf16(blocks: Blocks) -> Floats:
    bits = blocks["x"].astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)[:, None]


def _encode_bf16(values: Floats) -> Blocks:
    bits = np.ascontiguousarray(values[:, 0]).view(np.uint32)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    # Quiet NaNs keep their sign and top bits; the rest rounds half to even.
    quiet = (bits >> np.uint32(16)) | np.uint32(64)
    even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (bits + even) >> np.uint32(16)
    return np.where(is_nan, quiet, rounded).astype("<u2").view(_BF16)


TYPES = (
    QuantType(
        name="F32",
        block_size=1,
        block=_F32,
        decode_blocks=_decode,
        encode_blocks=_encode_f32,
        max_rmse=0.0,
        source="IEEE 754 binary32",
    ),
    QuantType(
        name="F16",
        block_size=1,
        block=_F16,
        decode_blocks=_decode,
        encode_blocks=_encode_f16,
        max_rmse=3e-4,
        source="IEEE 754 binary16",
    ),
    QuantType(
        name="BF16",
        block_size=1,
        block=_BF16,
        decode_blocks=_decode_bf16,
        encode_blocks=_encode_bf16,
        max_rmse=2.5e-3,
        source="ggml-impl.h ggml_compute_fp32_to_bf16: the upper half of binary32",
    ),
)

# -- the compiled dot product ----------------------------------------------------------------------


def _width(qt: Any) -> int:
    return 4 if qt.value == "F32" else 2


def _get(qt: Any, address: int) -> Any:
    readers = {"F32": memory.get_f32, "F16": memory.get_f16, "BF16": memory.get_bf16}
    return readers[qt.value](address)


def _load(qt: Any, address: int) -> Any: ...


def _load_tail(qt: Any, address: int, count: int) -> Any: ...


@choose(_width)
def _width_of(qt: Any) -> Any:
    return (lambda qt: 4) if qt.value == "F32" else (lambda qt: 2)


@choose(_get)
def _get_of(qt: Any, address: Any) -> Any:
    get = {"F32": memory.get_f32, "F16": memory.get_f16, "BF16": memory.get_bf16}[qt.value]
    return lambda qt, address: get(address)


@choose(_load)
def _load_of(qt: Any, address: Any) -> Any:
    loads = {"F32": simd.load_f32x16, "F16": simd.load_f16x16, "BF16": simd.load_bf16x16}
    load = loads[qt.value]
    return lambda qt, address: load(address)


@choose(_load_tail)
def _load_tail_of(qt: Any, address: Any, count: Any) -> Any:
    loads = {"F32": simd.load_tail_f32, "F16": simd.load_tail_f16, "BF16": simd.load_tail_bf16}
    load = loads[qt.value]
    return lambda qt, address, count: load(address, count)


def _dot(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    step = 16 * _width(qt)
    for i in range(k // 32):
        at = w + 2 * step * i
        simd.prefetch(at + AHEAD)
        acc = simd.fma_f32x16(_load(qt, at), simd.load_f32x16(x + 128 * i), acc)
        if _width(qt) == 4:
            simd.prefetch(at + AHEAD + 64)
        acc = simd.fma_f32x16(_load(qt, at + step), simd.load_f32x16(x + 128 * i + 64), acc)
    done = k // 32 * 32
    if k - done >= 16:
        acc = simd.fma_f32x16(_load(qt, w + _width(qt) * done), simd.load_f32x16(x + 4 * done), acc)
        done += 16
    if done < k:
        tail = _load_tail(qt, w + _width(qt) * done, k - done)
        acc = simd.fma_f32x16(tail, simd.load_tail_f32(x + 4 * done, k - done), acc)
    return simd.sum_f32x16(acc)


def _portable(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    lanes = np.zeros(16, np.float32)
    for i in range(k):
        weight = _get(qt, w + _width(qt) * i)
        lanes[i % 16] = memory.fma_f32(weight, memory.get_f32(x + 4 * i), lanes[i % 16])
    return tree_sum(lanes)


def _unpack_line(qt: Any, low: Any, high: Any, to: int) -> Any: ...


@choose(_unpack_line)
def _unpack_line_of(qt: Any, low: Any, high: Any, to: Any) -> Any:
    def short(qt: Any, low: Any, high: Any, to: int) -> int:
        tiles.store_bf16x32(to, low, high)
        return to + 1024

    def split(qt: Any, low: Any, high: Any, to: int) -> int:
        # Cut off, not rounded: what is left has three bits.
        first = tiles.cut_bf16(low)
        second = tiles.cut_bf16(high)
        tiles.store_bf16x32(to, first, second)
        tiles.store_bf16x32(to + 1024, low - first, high - second)
        return to + 2048

    return split if qt.value == "F16" else short


def _unpack(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """BF16 as it is, F16 (11 significant bits) as the sum of two bfloat16."""
    for i in range(k // 32):
        at = w + 64 * i
        to = _unpack_line(qt, _load(qt, at), _load(qt, at + 32), to)
    left = k % 32
    if left > 0:
        at = w + 64 * (k // 32)
        zeros = simd.splat_f32x16(np.float32(0))
        if left <= 16:
            _unpack_line(qt, _load_tail(qt, at, left), zeros, to)
        else:
            _unpack_line(qt, _load(qt, at), _load_tail(qt, at + 32, left - 16), to)


register_unpack("F16", _unpack, split=True)
register_unpack("BF16", _unpack)
for _name in ("F32", "F16", "BF16"):
    register_dot(_name, "f32", vector=_dot, portable=_portable)
