"""Positions of images in time, height and width (M-RoPE).

An image at position p, of height x width rows, has the time p; the row at (y, x) has the height
p + y and the width p + x. The next token's position is p + max(height, width). Only the rotation
depends on these positions: attention and the KV cache count rows.
Source: Qwen2-VL, arXiv 2409.12191, section 2.1; transformers' Qwen3VLModel.get_rope_index and
Qwen3VLTextRotaryEmbedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.image_rows import ImageRows


class ImagePlaces(NamedTuple):
    """Rows of an image in a step: their positions ``first`` to ``end`` in the sequence, and their
    ``places`` (n, 3) in time, height and width.
    """

    first: int
    end: int
    places: NDArray[np.int64]


def axes_of_pairs(
    sections: Sequence[int], order: Literal["blocks", "interleaved"]
) -> NDArray[np.int64]:
    """Return the axis by which each pair of a head rotates: 0 time, 1 height, 2 width.

    ``sections``: the number of pairs of each axis. ``order``: "blocks" of an axis, or time, height
    and width "interleaved" until an axis has all of its pairs; time has the rest.
    """
    if order == "blocks":
        return np.repeat(np.arange(3), sections)
    axes = np.zeros(sum(sections), np.int64)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes


def positions_of_text(images: Sequence[ImageRows], start: int, count: int) -> NDArray[np.int64]:
    """Return the positions of ``count`` tokens from ``start`` on, as if all were text."""
    positions = np.arange(start, start + count)
    for image in images:
        positions[max(image.end - start, 0) :] -= len(image.rows) - image.span
    return positions


def places_of_images(images: Sequence[ImageRows], start: int, count: int) -> Iterator[ImagePlaces]:
    """Yield the rows of each image among ``count`` rows from ``start`` on."""
    before = 0  # positions that earlier images lack
    for image in images:
        low, high = max(image.first, start), min(image.end, start + count)
        if low < high:
            y, x = np.divmod(np.arange(low, high) - image.first, image.columns)
            yield ImagePlaces(low, high, np.stack([0 * y, y, x], axis=1) + image.first - before)
        before += len(image.rows) - image.span
