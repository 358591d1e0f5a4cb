"""Activations in the forms that products take (ops/matmul/activations.py), computed by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops.matmul.activations import row_type

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
Codes = NDArray[np.int8]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def form_of(form: str, x: Floats) -> tuple[Bytes, Doubles]:
    """The rows of x (M, K) in a form, (M, activation_bytes), and the values they represent."""
    if form == "q8":
        codes, scales = q8_codes(x)
        return pack_q8(codes, scales), _scaled(codes, scales)
    if form == "q19":
        numbers, scales = q19_numbers(x)
        return pack_q19(numbers, scales), _scaled(numbers, scales)
    if form == "ternary":
        codes, s = ternary_codes(x)
        return pack_ternary(codes, s), codes / s[:, None].astype(np.float64)
    rows = _rows(form, x)
    rows["values"][:, : x.shape[1]] = x
    return _bytes(rows), x.astype(np.float64)


def _scaled(numbers: Array, scales: Floats) -> Doubles:
    """The values of numbers (M, K) with scales (M, K / 32)."""
    return numbers.astype(np.float64) * np.repeat(scales, 32, axis=1)


def q8_codes(x: Floats) -> tuple[Codes, Floats]:
    """Codes (M, K) and scales (M, K / 32) of the q8 form; x = scale * code."""
    codes, scales = _rounded(x, 127)
    return codes.astype(np.int8), scales


def q19_numbers(x: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Numbers (M, K) and scales (M, K / 32) of the q19 form; x = scale * number."""
    return _rounded(x, 1 << 18)


def ternary_codes(x: Floats) -> tuple[Codes, Floats]:
    """Codes (M, K) of the ternary form, and s (M,); x = code / s."""
    s = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(1e-5))
    codes = np.clip(np.rint(x * s[:, None]), -128, 127).astype(np.int8)
    return codes, s.astype(np.float32)


def pack_q8(codes: Codes, scales: Floats) -> Bytes:
    """The rows of the q8 form, (M, activation_bytes)."""
    rows = _rows("q8", codes)
    _fill(rows["codes"], codes)
    _fill(rows["negated"], -_sums(codes, 16))
    _fill_sums(rows, codes, scales)
    return _bytes(rows)


def pack_q19(numbers: NDArray[np.int32], scales: Floats) -> Bytes:
    """The rows of the q19 form, (M, activation_bytes)."""
    rows = _rows("q19", numbers)
    high = (numbers + 0x8080) >> 16
    rest = numbers - 65536 * high
    middle = (rest + 128) >> 8
    _fill(rows["high"], high)
    _fill(rows["middle"], middle)
    _fill(rows["ones"], rest - 256 * middle)
    _fill_sums(rows, numbers, scales)
    return _bytes(rows)


def pack_ternary(codes: Codes, s: Floats) -> Bytes:
    """The rows of the ternary form, (M, activation_bytes)."""
    rows = _rows("ternary", codes)
    padded = np.zeros(rows["codes"].shape, np.int8)
    padded[:, : codes.shape[1]] = codes
    # Element 128 h + 32 g + i of 256 to place 64 g + 32 h + i.
    places = padded.reshape(len(codes), -1, 2, 4, 32).transpose(0, 1, 3, 2, 4)
    rows["codes"] = places.reshape(padded.shape)
    _fill(rows["sums"], -_sums(padded, 256))
    rows["tail"]["s"], rows["tail"]["sum"] = s, codes.sum(axis=1, dtype=np.int32)
    return _bytes(rows)


def _rounded(x: Floats, top: int) -> tuple[NDArray[np.int32], Floats]:
    """Numbers up to ``top`` for blocks of 32, and their scales; a block below 1e-35 is zero."""
    blocks = x.reshape(len(x), -1, 32)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    largest[largest <= np.float32(1e-35)] = 0
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(largest > 0, np.float32(top) / largest, np.float32(0))
    numbers = np.clip(np.rint(blocks * inverse), -top, top).astype(np.int32)
    return numbers.reshape(x.shape), (largest / np.float32(top))[:, :, 0]


def _fill_sums(rows: Array, numbers: Array, scales: Floats) -> None:
    """Scales and sums, which the q8 and q19 forms share."""
    _fill(rows["scales"], scales)
    _fill(rows["sums"], scales * _sums(numbers, 32).astype(np.float32))
    _fill(rows["groups"], -_sums(numbers, 4))
    halves = _sums(numbers, 16).astype(np.float32)
    _fill(rows["halves"], np.repeat(scales, 2, axis=1) * halves)


def _sums(numbers: Array, size: int) -> Array:
    """The sums of ``size`` neighbours, int32."""
    found: Array = numbers.reshape(len(numbers), -1, size).sum(axis=2, dtype=np.int32)
    return found


def _rows(form: str, x: Array) -> Array:
    return np.zeros(len(x), row_type(form, x.shape[1]))


def _fill(array: Array, numbers: Array) -> None:
    """Write numbers (M, n) to the start of rows of an array; the rest stays zero."""
    array[:, : numbers.shape[1]] = numbers


def _bytes(rows: Array) -> Bytes:
    return rows.view(np.uint8).reshape(len(rows), -1)
