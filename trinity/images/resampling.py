"""Resizes images as torchvision does, to the same values.

Pillow has weights of 22 bits, PyTorch's kernel for uint8 some of 16 bits, so single values differ.
Source: PyTorch, aten/src/ATen/native/cpu/UpSampleKernel.cpp (_compute_index_ranges_int16_weights).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image, Resampling, fromarray

_SUPPORT = {Resampling.BILINEAR: 1.0, Resampling.BICUBIC: 2.0}
_MOST_BITS = 22
_BAND = 1 << 18  # values of a band of rows that is resized at once


class _Weights(NamedTuple):
    """The weights with which values along an axis are added."""

    first: NDArray[np.int64]  # the first value of each result
    weights: NDArray[np.int32]  # (values of a result, results)
    bits: int  # of a weight's fraction


def resize(image: Image, size: tuple[int, int], resample: Resampling) -> Image:
    """Return an RGB image of this width and height."""
    if resample not in _SUPPORT:
        return image.resize(size, resample)
    (width, height), (new_width, new_height) = image.size, size
    across = _weights(width, new_width, resample) if width != new_width else None
    wide = np.empty((height, new_width, 3), np.uint8)
    rows = max(1, _BAND // (3 * max(width, new_width)))
    for top in range(0, height, rows):
        band = np.asarray(image.crop((0, top, width, min(top + rows, height))))
        wide[top : top + rows] = band if across is None else _added(band, across, 1)
    if height == new_height:
        return fromarray(wide)
    down = _weights(height, new_height, resample)
    made = np.empty((new_height, new_width, 3), np.uint8)
    columns = max(1, _BAND // (3 * new_height))
    for left in range(0, new_width, columns):
        made[:, left : left + columns] = _added(wide[:, left : left + columns], down, 0)
    return fromarray(made)


def _added(values: NDArray[np.uint8], weights: _Weights, axis: int) -> NDArray[np.uint8]:
    """The weighted sums along an axis, rounded."""
    last = values.shape[axis] - 1
    shape = (-1, 1, 1) if axis == 0 else (-1, 1)
    total = np.array(1 << (weights.bits - 1), np.int32)
    for offset, row in enumerate(weights.weights):  # beyond the last value, weights are 0
        taken = values.take(np.minimum(weights.first + offset, last), axis)
        total = total + taken * row.reshape(shape)
    made: NDArray[np.uint8] = np.clip(total >> weights.bits, 0, 255).astype(np.uint8)
    return made


def _weights(length: int, new_length: int, resample: Resampling) -> _Weights:
    scale = length / new_length
    support = _SUPPORT[resample] * max(scale, 1.0)
    centers = scale * (np.arange(new_length) + 0.5)
    first = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    counts = np.minimum((centers + support + 0.5).astype(np.int64), length) - first
    places = np.arange(counts.max())[:, None]
    distances = (places + first - centers + 0.5) * (1.0 / scale if scale >= 1.0 else 1.0)
    weights = np.where(places < counts, _filter(np.abs(distances), resample), 0.0)
    weights /= weights.sum(axis=0)
    most, bits = weights.max(), 0
    while bits < _MOST_BITS and int(0.5 + most * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    rounded = np.trunc(weights * (1 << bits) + np.copysign(0.5, weights))
    return _Weights(first, rounded.astype(np.int32), bits)


def _filter(x: NDArray[np.float64], resample: Resampling) -> NDArray[np.float64]:
    """The weight of a value at a distance of x >= 0."""
    if resample == Resampling.BILINEAR:
        return np.maximum(1.0 - x, 0.0)
    a = -0.5
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
