"""The order of an image's patches in a tower, and their positions.

Blocks of ``merge`` x ``merge`` neighbours, which the projector joins, are adjacent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_THETA = 10000.0  # the base of the rotary frequencies of a tower
_THETA_OF_HALVES = 100.0


def in_blocks(values: NDArray[np.float32], merge: int) -> NDArray[np.float32]:
    """Return a grid (height, width, ...) as rows (height * width, ...) in the tower's order."""
    height, width, *rest = values.shape
    blocks = values.reshape(height // merge, merge, width // merge, merge, *rest)
    return blocks.swapaxes(1, 2).reshape(height * width, *rest)


def patches_of(pixels: NDArray[np.float32], size: int, merge: int) -> NDArray[np.float32]:
    """Return the patches of an image (height, width, 3) as rows in the order channel, y, x."""
    height, width = pixels.shape[0] // size, pixels.shape[1] // size
    cut = pixels[: height * size, : width * size].reshape(height, size, width, size, 3)
    return in_blocks(cut.transpose(0, 2, 4, 1, 3).reshape(height, width, -1), merge)


def resized_table(table: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Return a table (side, side, n) for an image of height x width patches.

    The corners keep their positions; between the table's rows and columns it is linear.
    """
    side = len(table)
    for axis, length in enumerate((height, width)):
        places = np.arange(length, dtype=np.float32) * np.float32((side - 1) / max(length - 1, 1))
        first = np.minimum(places.astype(np.int64), side - 1)
        second = np.minimum(first + 1, side - 1)
        share = (places - first.astype(np.float32)).reshape((-1, 1) if axis else (-1, 1, 1))
        table = table.take(first, axis) * (1 - share) + table.take(second, axis) * share
    return table


def nearest_table(table: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Return the nearest entries of a table (side, side, n) for an image of height x width patches.

    Source: transformers' get_vision_nearest_position_ids.
    """
    side = len(table)
    borders = (np.arange(1, side) / side).astype(np.float32)
    rows, columns = (
        np.searchsorted(borders, np.arange(length, dtype=np.float32) / np.float32(length), "right")
        for length in (height, width)
    )
    return table[rows][:, columns]


def smoothed_table(table: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Return a table (side, side, n) for an image of height x width patches.

    The interpolation is linear between the centers of rows and columns. A table for a smaller image
    has averages of several rows and columns.
    """
    rows, columns = (_shares(len(table), length) for length in (height, width))
    made: NDArray[np.float32] = np.einsum("yi,xj,ijn->yxn", rows, columns, table, optimize=True)
    return made


def _shares(side: int, length: int) -> NDArray[np.float32]:
    """Return the weights (length, side) with which a table's rows are averaged to a resized one."""
    scale = side / length
    centers = (np.arange(length, dtype=np.float32)[:, None] + 0.5) * np.float32(scale) - 0.5
    distances = np.abs(np.arange(side, dtype=np.float32) - centers) / np.float32(max(scale, 1))
    shares = np.maximum(1 - distances, 0)
    made: NDArray[np.float32] = shares / shares.sum(axis=1, keepdims=True)
    return made


def windows_of(height: int, width: int, side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of blocks, window by window, and the number of blocks in each window.

    An image of height x width blocks is cut into windows of side x side, smaller at its end.
    """
    y, x = np.divmod(np.arange(height * width), width)
    window = y // side * -(-width // side) + x // side
    return np.argsort(window, kind="stable"), np.bincount(window)


def rotations(
    height: int, width: int, head_dim: int, merge: int, *, odd: bool = False
) -> NDArray[np.float32]:
    """Return cosines and sines (height * width, head_dim) of pairs (i, i + head_dim / 2).

    The first half of the pairs rotates by the patch's row, the second by its column. ``odd``: the
    frequencies of columns are between those of rows.
    """
    count = head_dim // 4
    rows, columns = _angles(height, width, count, _THETA)
    if odd:
        columns = columns * _THETA ** (-0.5 / count)
    return _turns(np.concatenate([rows, columns], axis=-1), merge)


def rotations_of_halves(
    height: int, width: int, head_dim: int, merge: int
) -> list[NDArray[np.float32]]:
    """Return cosines and sines (height * width, head_dim / 2) of the pairs in each half of a head.

    The first half rotates by the patch's column, the second by its row.
    """
    rows, columns = _angles(height, width, head_dim // 4, _THETA_OF_HALVES)
    return [_turns(columns, merge), _turns(rows, merge)]


def _angles(
    height: int, width: int, count: int, theta: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The angles (height, width, count) by the row, and those by the column."""
    frequencies = theta ** (-np.arange(count) / count)
    shape = height, width, count
    rows = np.broadcast_to(np.arange(height)[:, None, None] * frequencies, shape)
    return rows, np.broadcast_to(np.arange(width)[:, None] * frequencies, shape)


def _turns(angles: NDArray[np.float64], merge: int) -> NDArray[np.float32]:
    both = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
    return in_blocks(both, merge)
