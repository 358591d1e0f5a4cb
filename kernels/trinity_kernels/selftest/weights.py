"""Random weights of every quantization type, with the values that they represent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import TYPES, dequantize, quantize
from trinity_kernels.selftest.comparing import random_numbers

Array = NDArray[Any]


def _random_blocks(tag: str, n: int, k: int) -> NDArray[np.uint8]:
    """Blocks of random codes, with scales of about 1 / 16."""
    quant = TYPES[tag]
    data = random_numbers().integers(0, 256, quant.nbytes((n, k)), np.uint8)
    blocks = data.view(quant.block)
    for name in quant.block.names or ():
        scales = random_numbers().uniform(-1, 1, len(blocks)).astype(np.float32) / 8
        if quant.block[name].kind == "f":
            blocks[name] = scales
        elif name in ("d", "m"):  # bfloat16
            blocks[name] = scales.view(np.uint32) >> 16
        elif name == "e":  # of a power of 2
            blocks[name] = random_numbers().integers(118, 125, len(blocks))
    if tag == "IQ1_M":  # its scale is in four parts: not infinite
        blocks["scales"][:, 3] &= 0xBFFF
    return data


def random_weights(tag: str, n: int, k: int) -> tuple[NDArray[np.uint8], Array, int, float]:
    """N rows of K weights: their bytes, values, bytes from row to row, and the tensor's scale."""
    values = random_numbers().standard_normal((n, k)).astype(np.float32)
    if TYPES[tag].ternary:
        values = (random_numbers().integers(-1, 2, (n, k)) * np.float32(0.75)).astype(np.float32)
    if FORMS[tag] in ("q8", "q19") and not TYPES[tag].ternary:
        data = _random_blocks(tag, n, k)
    else:
        data = np.ascontiguousarray(quantize(tag, values))
    scale, stride = 1.0, data.nbytes // n
    if TYPES[tag].tensor_scale:
        stride = k // 4
        scale = float(data[n * stride : n * stride + 4].view(np.float32)[0])
    return data, dequantize(tag, data, (n, k)).astype(np.float64), stride, scale
