"""Writes TL1 and TL2 from the formula for each weight's place, without the reader's code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.quants.tl import Tiling

Bytes = NDArray[np.uint8]
Values = NDArray[np.int8]


def _axes(*sizes: int) -> list[NDArray[np.int64]]:
    """Return an index array for each dimension, shaped to broadcast."""
    found = []
    for i, size in enumerate(sizes):
        shape = [1] * len(sizes)
        shape[i] = size
        found.append(np.arange(size).reshape(shape))
    return found


def _pairs(w: Values, row: NDArray[np.int64], column: NDArray[np.int64]) -> Bytes:
    """Return the bytes of four columns each, from ``column`` on."""
    a, b, c, d = (w[row, column + i].astype(np.int64) + 1 for i in range(4))
    return ((3 * a + b) * 16 + 3 * c + d).astype(np.uint8)


def write_tl1(w: Values, tiling: Tiling) -> Bytes:
    """Encode a matrix (M, K) of -1, 0, +1."""
    (m, k), (tile_m, tile_k, bm) = w.shape, tiling
    by = 256 // bm
    i_m, i_k, ib, jb, r, c, lane = _axes(
        m // tile_m, k // tile_k, tile_m // bm, tile_k // by, bm // 16, by // 4, 16
    )
    row = i_m * tile_m + ib * bm + 16 * r + lane
    return _pairs(w, row, i_k * tile_k + jb * by + 4 * c).reshape(-1)


def _stored_row(position: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of 32 at a position: the two middle groups of eight are swapped."""
    return np.choose(position // 8, [0, 16, 8, 24]) + position % 8


def write_tl2(w: Values, tiling: Tiling) -> Bytes:
    """Encode a matrix (M, K) of -1, 0, +1, with the zeros that the size formula requires."""
    (m, k), (tile_m, tile_k, _) = w.shape, tiling
    threes = k // tile_k * tile_k
    parts = []
    if threes:
        i_m, i_k, ib, jb, position = _axes(
            m // tile_m, threes // tile_k, tile_m // 32, tile_k // 6, 32
        )
        row = i_m * tile_m + ib * 32 + _stored_row(position)
        column = i_k * tile_k + 6 * jb
        x = [w[row, column + i].astype(np.int64) for i in range(6)]
        first, second = 9 * x[0] + 3 * x[1] + x[2], 9 * x[3] + 3 * x[4] + x[5]
        parts.append((16 * abs(first) + abs(second)).astype(np.uint8).reshape(-1))
        i_m, i_k, ib, jg, word = _axes(
            m // tile_m, threes // tile_k, tile_m // 32, tile_k // 24, 16
        )
        words = np.zeros(np.broadcast_shapes(*(a.shape for a in (i_m, i_k, ib, jg, word))), "<u2")
        for half in range(2):
            for triple in range(8):
                row = i_m * tile_m + ib * 32 + 16 * half + word
                column = i_k * tile_k + 24 * jg + 3 * triple
                x = [w[row, column + i].astype(np.int64) for i in range(3)]
                negative = (9 * x[0] + 3 * x[1] + x[2] < 0).astype("<u2")
                words |= negative << np.uint16(15 - (2 * triple + half))
        parts.append(words.reshape(-1).view(np.uint8))
    if k > threes:
        i_m, i_k, ib, jb, position = _axes(m // tile_m, (k - threes) // 32, tile_m // 32, 8, 32)
        row = i_m * tile_m + ib * 32 + _stored_row(position)
        parts.append(_pairs(w, row, threes + 32 * i_k + 4 * jb).reshape(-1))
    written = np.concatenate(parts)
    size = (k - 256) * m // 3 * 5 // 8 + 256 * m // 2 * 4 // 8
    return np.concatenate([written, np.zeros(max(0, -(-size // 32) * 32 - len(written)), np.uint8)])


def write_tl(type_name: str, w: Values, tiling: Tiling, scale: float | None = None) -> Bytes:
    """Encode a tensor; with ``scale``, followed by 32 bytes that begin with it."""
    codes = (write_tl1 if type_name == "TL1" else write_tl2)(w, tiling)
    if scale is None:
        return codes
    tail = np.zeros(32, np.uint8)
    tail[:4] = np.array([scale], "<f4").view(np.uint8)
    return np.concatenate([codes, tail])
