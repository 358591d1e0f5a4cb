"""Weights that are drawn from a tensor's name, so that tests need not store them."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray


def drawn_tensor(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw a weight, a norm or a bias, according to its name."""
    values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if name.endswith("bias"):
        values = values * 0.2
    elif "norm" in name:
        values = 1 + 0.2 * values
    elif shape:
        values = values * (2 / shape[-1]) ** 0.5
    return np.asarray(values, np.float32)
