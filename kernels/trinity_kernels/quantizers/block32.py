"""Quantizers for blocks of 32 with a scale and possibly a minimum.

Without importance, the scale of Q4_0 to Q5_1 follows from the outermost element; with importance it
is searched.
Source: ggml-quants.c quantize_row_q4_0_impl to quantize_row_q5_1_impl, quantize_iq4_nl.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.quantizers import outermost
from trinity_kernels.quantizers.groups import codes_under_own_minimum, codes_under_own_scale
from trinity_kernels.quantizers.k_quants import (
    Bytes,
    Floats,
    Quantizer,
    importance_weights,
    scratch,
)
from trinity_kernels.quantizers.tables import table_codes
from trinity_kernels.quants import TYPES
from trinity_kernels.quants.q4 import pack_nibbles
from trinity_kernels.quants.q5 import pack_fifth_bits


def _signed(name: str, half: int) -> Quantizer:
    def quantize(values: Floats, importance: Floats | None) -> NDArray[np.void]:
        groups = values.reshape(-1, 32)
        codes, d = np.empty(groups.shape, np.uint8), np.empty(len(groups), np.float32)
        if importance is None:
            outermost.signed_codes(groups, len(groups), half, codes, d)
        else:
            weights = importance_weights(values, importance, values.shape[1], 1.0)
            codes_under_own_scale(groups, weights, len(groups), 32, half, scratch(), codes, d)
        return _packed(name, codes, d)

    return quantize


def _above_minimum(name: str, top_code: int) -> Quantizer:
    def quantize(values: Floats, importance: Floats | None) -> NDArray[np.void]:
        groups = values.reshape(-1, 32)
        codes, d = np.empty(groups.shape, np.uint8), np.empty(len(groups), np.float32)
        m = np.empty(len(groups), np.float32)
        if importance is None:
            outermost.offset_codes(groups, len(groups), top_code, codes, d, m)
        else:
            weights = importance_weights(values, importance, values.shape[1], 1.0)
            codes_under_own_minimum(
                groups, weights, len(groups), 32, top_code, scratch(), codes, d, m
            )
        blocks = _packed(name, codes, d)
        blocks["m"] = m
        return blocks

    return quantize


def _packed(name: str, codes: Bytes, d: Floats) -> NDArray[np.void]:
    blocks = np.empty(len(d), TYPES[name].block)
    blocks["d"], blocks["qs"] = d, pack_nibbles(codes)
    if "qh" in (blocks.dtype.names or ()):
        blocks["qh"] = pack_fifth_bits(codes)
    return blocks


def _iq4_nl(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    weights = np.square(values)
    if importance is not None:
        weights = importance_weights(values, importance, 32)
    groups = values.reshape(-1, 32)
    codes, scales = np.empty(groups.shape, np.uint8), np.empty(len(groups), np.int8)
    d = np.empty(len(groups), np.float32)
    table_codes(groups, weights, len(groups), 1, scratch(), codes, scales, d)
    return _packed("IQ4_NL", codes, d)


def _q8_0(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    groups = values.reshape(-1, 32)
    codes, d = np.empty(groups.shape, np.int8), np.empty(len(groups), np.float32)
    outermost.byte_codes(groups, len(groups), codes, d)
    blocks = np.empty(len(d), TYPES["Q8_0"].block)
    blocks["d"], blocks["qs"] = d, codes
    return blocks


def _mxfp4(values: Floats, importance: Floats | None) -> NDArray[np.void]:
    groups = values.reshape(-1, 32)
    codes, e = np.empty(groups.shape, np.uint8), np.empty(len(groups), np.uint8)
    outermost.fp4_codes(groups, len(groups), scratch(), codes, e)
    blocks = np.empty(len(e), TYPES["MXFP4"].block)
    blocks["e"], blocks["qs"] = e, pack_nibbles(codes)
    return blocks


QUANTIZERS: dict[str, Quantizer] = {
    "Q4_0": _signed("Q4_0", 8), "Q5_0": _signed("Q5_0", 16), "Q4_1": _above_minimum("Q4_1", 15),
    "Q5_1": _above_minimum("Q5_1", 31), "IQ4_NL": _iq4_nl, "Q8_0": _q8_0, "MXFP4": _mxfp4,
}  # fmt: skip
