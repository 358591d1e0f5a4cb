"""Activations in the forms that products take (ops/matmul/activations.py), computed by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops.matmul.activations import activation_bytes

Array = NDArray[Any]


def q8_form(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Array]:
    """The bytes of x (M, K) as q8, and the values that they stand for."""
    m, k = x.shape
    blocks = x.reshape(m, -1, 32)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 1e-35)
    codes = np.clip(np.rint(blocks * inverse), -127, 127).astype(np.int8)
    scales = (largest / np.float32(127))[:, :, 0]
    padded, sixteens = -(-k // 64) * 64, -(-k // 512) * 16
    out = np.zeros((m, activation_bytes("q8", k)), np.uint8)
    out[:, :k] = codes.reshape(m, k).view(np.uint8)
    table = np.zeros((m, 2, sixteens), np.float32)
    table[:, 0, : k // 32] = scales
    table[:, 1, : k // 32] = scales * codes.sum(axis=2, dtype=np.int32).astype(np.float32)
    out[:, padded : padded + 8 * sixteens] = table.reshape(m, -1).view(np.uint8)
    sums = np.zeros((m, padded // 4), np.int32)
    sums[:, : k // 4] = -codes.reshape(m, -1, 4).sum(axis=2, dtype=np.int32)
    out[:, padded + 8 * sixteens :][:, :padded] = sums.view(np.uint8)
    halves = np.zeros((m, 2, 2 * sixteens), np.float32)
    of_16 = codes.reshape(m, -1, 16).sum(axis=2, dtype=np.int32)
    halves[:, 0, : k // 16] = np.repeat(scales, 2, axis=1) * of_16.astype(np.float32)
    halves[:, 1, : k // 16] = (-of_16).view(np.float32)
    out[:, 2 * padded + 8 * sixteens :] = halves.reshape(m, -1).view(np.uint8)
    return out, (codes * scales[:, :, None].astype(np.float64)).reshape(m, k)


def q19_form(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Array]:
    """The bytes of x (M, K) as q19, and the values that they stand for."""
    m, k = x.shape
    blocks, top = x.reshape(m, -1, 32), np.float32(1 << 18)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.divide(top, largest, out=np.zeros_like(largest), where=largest > 1e-35)
    codes = np.clip(np.rint(blocks * inverse), -top, top).astype(np.int32)
    scales, high = (largest / top)[:, :, 0], (codes + 0x8080) >> 16
    rest = codes - 65536 * high
    middle = (rest + 128) >> 8
    padded, table = -(-k // 64) * 64, -(-k // 512) * 64
    out = np.zeros((m, activation_bytes("q19", k)), np.uint8)
    for row, of_row in enumerate((high, middle, rest - 256 * middle)):
        bytes_ = of_row.reshape(m, k).astype(np.int8).view(np.uint8)
        out[:, row * padded : row * padded + k] = bytes_
    out[:, 3 * padded :][:, : k // 8] = np.ascontiguousarray(scales).view(np.uint8)
    sums = scales * codes.sum(axis=2, dtype=np.int32).astype(np.float32)
    out[:, 3 * padded + table :][:, : k // 8] = np.ascontiguousarray(sums).view(np.uint8)
    groups = -codes.reshape(m, -1, 4).sum(axis=2, dtype=np.int32)
    out[:, 3 * padded + 2 * table :][:, :k] = groups.view(np.uint8)
    halves = np.repeat(scales, 2, axis=1) * (
        codes.reshape(m, -1, 16).sum(axis=2, dtype=np.int32).astype(np.float32)
    )
    out[:, 4 * padded + 2 * table :][:, : k // 4] = halves.view(np.uint8)
    return out, (codes * scales[:, :, None].astype(np.float64)).reshape(m, k)


def ternary_form(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Array]:
    """The bytes of x (M, K) as ternary activations, and the values that they stand for."""
    m, k = x.shape
    s = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(1e-5))
    codes = np.clip(np.rint(x * s[:, None]), -128, 127).astype(np.int8)
    padded = -(-k // 256) * 256
    whole = np.zeros((m, padded), np.int8)
    whole[:, :k] = codes
    permuted = whole.reshape(m, -1, 2, 4, 32).transpose(0, 1, 3, 2, 4).reshape(m, padded)
    sums = np.zeros((m, -(-padded // 4096) * 16), np.int32)
    sums[:, : padded // 256] = -whole.reshape(m, -1, 256).sum(axis=2, dtype=np.int32)
    out = np.zeros((m, activation_bytes("ternary", k)), np.uint8)
    out[:, :padded] = permuted.view(np.uint8)
    out[:, padded:-64] = sums.view(np.uint8)
    out[:, -64:-60] = s[:, None].view(np.uint8)
    total = codes.sum(axis=1, dtype=np.int32)[:, None]
    out[:, -60:-56] = total.view(np.uint8)
    return out, codes / s[:, None].astype(np.float64)


def form_of(name: str, x: NDArray[np.float32]) -> tuple[Array, Array]:
    """The rows of x (M, K) in a form, and the values that they represent."""
    if name == "f32":
        return x, x.astype(np.float64)
    forms = {"q8": q8_form, "q19": q19_form, "ternary": ternary_form}
    return forms[name](x)
