"""Quantizers for Q2_K to Q6_K and IQ4_XS: blocks of 256 in which groups' scales are codes.

The weight of an element's error is its magnitude, as in ggml's reference quantizers; with
importance it is importance * sqrt(mean of the block's squares + x * x).
Source: ggml-quants.c quantize_row_q*_K_ref, quantize_row_q*_K_impl, quantize_iq4_xs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.quantizers.groups import SCRATCH_FLOATS, codes_and_minima, codes_and_scales
from trinity_kernels.quantizers.tables import table_codes
from trinity_kernels.quants import iq4, q2_k, q4_k, q6_k
from trinity_kernels.quants.q4 import pack_nibbles
from trinity_kernels.quants.quant_type import QuantType

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Quantizer = Callable[[Floats, Floats | None], NDArray[np.void]]
Search = tuple[float, float, int, int]  # first, step, steps, plain of find_scale_and_minimum
BLOCK = 256


def importance_weights(
    values: Floats, importance: Floats, size: int, factor: float = 2.0
) -> Floats:
    """importance * sqrt(factor * mean of squares + x * x), with means over ``size`` neighbours.

    Shapes: values (n, K), importance (K,), result (n, K).
    """
    squares = np.square(values)
    mean = squares.reshape(len(values), -1, size).mean(axis=2, dtype=np.float32)
    spread = np.repeat(np.float32(factor) * mean, size, axis=1)
    weights: Floats = importance[None, :] * np.sqrt(spread + squares)
    return weights


def scratch() -> Floats:
    """Scratch memory for the loops of groups.py."""
    return np.zeros(SCRATCH_FLOATS, np.float32)


def _with_minima(
    values: Floats, weights: Floats, size: int, top_code: int, scale_top: int,
    search: Search, refine: bool,
) -> tuple[Bytes, Bytes, Bytes, Floats, Floats]:  # fmt: skip
    """Codes (blocks, 256), scales and minima (blocks, groups), d and dmin (blocks,)."""
    groups = values.reshape(-1, size)
    per_block, blocks = BLOCK // size, values.size // BLOCK
    codes = np.empty(groups.shape, np.uint8)
    scales, minima = np.empty(len(groups), np.uint8), np.empty(len(groups), np.uint8)
    d, dmin = np.empty(blocks, np.float32), np.empty(blocks, np.float32)
    codes_and_minima(
        groups, weights, len(groups), size, per_block, top_code, scale_top, *search, int(refine),
        scratch(), codes, scales, minima, d, dmin,
    )  # fmt: skip
    shape = (blocks, per_block)
    return codes.reshape(blocks, BLOCK), scales.reshape(shape), minima.reshape(shape), d, dmin


_WITH_IMPORTANCE = (-0.9, 0.05, 36, 0)


def _q2_k(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    if importance is None:
        weights, search = np.abs(values), (-0.5, 0.1, 15, 1)
    else:
        weights, search = importance_weights(values, importance, BLOCK, 1.0), _WITH_IMPORTANCE
    codes, scales, minima, d, dmin = _with_minima(
        values, weights, 16, 3, 15, search, importance is not None
    )
    blocks = np.empty(len(d), q2_k.TYPES[0].block)
    blocks["d"], blocks["dmin"] = d, dmin
    blocks["scales"] = scales | minima << 4
    blocks["qs"] = _pack_pairs(codes)
    return blocks


def _pack_pairs(codes: Bytes) -> Bytes:
    """The bytes (n, 64) of codes (n, 256) of two bits: elements 32 apart share a byte."""
    fours = codes.reshape(len(codes), 2, 4, 32) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    packed: Bytes = np.bitwise_or.reduce(fours, axis=2)
    return packed.reshape(len(codes), 64)


def _q3_k(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    groups = values.reshape(-1, 16)
    weights = values if importance is None else importance_weights(values, importance, BLOCK)
    codes = np.empty(groups.shape, np.uint8)
    scales, d = np.empty(len(groups), np.int8), np.empty(len(groups) // 16, np.float32)
    refine = int(importance is not None)
    codes_and_scales(
        groups, weights, len(groups), 16, 4, 32, 1 - refine, refine, scratch(), codes, scales, d
    )
    codes = codes.reshape(-1, BLOCK)
    bits = (scales.reshape(-1, 16) + 32).astype(np.uint8)
    blocks = np.empty(len(d), q2_k.TYPES[1].block)
    blocks["d"] = d
    low = bits & np.uint8(15)
    high = (bits >> 4).reshape(-1, 4, 4) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    blocks["scales"][:, :8] = low[:, :8] | low[:, 8:] << 4
    blocks["scales"][:, 8:] = np.bitwise_or.reduce(high, axis=1)
    third = (codes.reshape(-1, 8, 32) >> 2) << np.arange(8, dtype=np.uint8)[:, None]
    blocks["hmask"] = np.bitwise_or.reduce(third, axis=1)
    blocks["qs"] = _pack_pairs(codes & np.uint8(3))
    return blocks


def _weights_of_32(values: Floats, importance: Floats | None) -> Floats:
    if importance is not None:
        return importance_weights(values, importance, BLOCK)
    groups = values.reshape(-1, 32)
    mean = np.sqrt(np.square(groups).mean(axis=1, dtype=np.float32))
    weights: Floats = mean[:, None] + np.abs(groups)
    return weights


def _pack_six_bits(scales: Bytes, minima: Bytes) -> Bytes:
    """The bytes (n, 12) of scales and minima (n, 8) below 64: the inverse of q4_k.unpack_scales."""
    packed = np.empty((len(scales), 12), np.uint8)
    packed[:, :4] = scales[:, :4] | scales[:, 4:] >> 4 << 6
    packed[:, 4:8] = minima[:, :4] | minima[:, 4:] >> 4 << 6
    packed[:, 8:] = scales[:, 4:] & 15 | minima[:, 4:] << 4
    return packed


def _with_six_bits(
    type: QuantType, values: Floats, importance: Floats | None, top_code: int, search: Search
) -> tuple[NDArray[np.void], Bytes]:
    """Blocks of Q4_K or Q5_K with the low four bits of their codes, and the whole codes."""
    search = search if importance is None else _WITH_IMPORTANCE
    weights = _weights_of_32(values, importance)
    codes, scales, minima, d, dmin = _with_minima(
        values, weights, 32, top_code, 63, search, importance is not None
    )
    blocks = np.empty(len(d), type.block)
    blocks["d"], blocks["dmin"] = d, dmin
    blocks["scales"] = _pack_six_bits(scales, minima)
    low = (codes & np.uint8(15)).reshape(-1, 4, 2, 32)
    blocks["qs"] = (low[:, :, 0] | low[:, :, 1] << 4).reshape(-1, 128)
    return blocks, codes


def _q4_k(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    blocks, _ = _with_six_bits(q4_k.TYPES[0], values, importance, 15, (-1.0, 0.1, 20, 0))
    return blocks


def _q5_k(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    blocks, codes = _with_six_bits(q4_k.TYPES[1], values, importance, 31, (-0.5, 0.1, 15, 0))
    fifth = (codes.reshape(-1, 8, 32) >> 4) << np.arange(8, dtype=np.uint8)[:, None]
    blocks["qh"] = np.bitwise_or.reduce(fifth, axis=1)
    return blocks


def _q6_k(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    groups = values.reshape(-1, 16)
    if importance is None:
        weights = np.square(values)
    else:
        weights = np.ascontiguousarray(np.broadcast_to(importance, values.shape))
    codes = np.empty(groups.shape, np.uint8)
    scales, d = np.empty(len(groups), np.int8), np.empty(len(groups) // 16, np.float32)
    codes_and_scales(groups, weights, len(groups), 16, 32, 128, 0, 0, scratch(), codes, scales, d)
    blocks = np.empty(len(d), q6_k.TYPES[0].block)
    blocks["d"], blocks["scales"] = d, scales.reshape(-1, 16)
    halves = codes.reshape(-1, 2, 2, 64) & np.uint8(15)
    blocks["ql"] = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(-1, 128)
    upper = (codes.reshape(-1, 2, 4, 32) >> 4) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    blocks["qh"] = np.bitwise_or.reduce(upper, axis=2).reshape(-1, 64)
    return blocks


def _iq4_xs(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    groups = values.reshape(-1, 32)
    weights = np.square(values)
    if importance is not None:
        weights = importance_weights(values, importance, BLOCK)
    codes = np.empty(groups.shape, np.uint8)
    scales, d = np.empty(len(groups), np.int8), np.empty(len(groups) // 8, np.float32)
    table_codes(groups, weights, len(groups), 8, scratch(), codes, scales, d)
    bits = (scales.reshape(-1, 8) + 32).astype(np.uint8)
    blocks = np.empty(len(d), iq4.TYPES[1].block)
    blocks["d"] = d
    blocks["scales_l"] = bits[:, ::2] & 15 | bits[:, 1::2] << 4
    high = (bits >> 4).astype(np.uint16) << np.arange(0, 16, 2, dtype=np.uint16)
    blocks["scales_h"] = np.bitwise_or.reduce(high, axis=1)
    blocks["qs"] = pack_nibbles(codes).reshape(-1, 128)
    return blocks


QUANTIZERS: dict[str, Quantizer] = {
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_XS": _iq4_xs,
}  # fmt: skip
