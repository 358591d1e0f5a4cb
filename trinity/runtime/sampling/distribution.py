"""The most probable tokens of a distribution, and its normalizer."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.isa import interpreted

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

COMPILED_FROM = 8192  # number of logits from which a compiled selection is faster than sorting
SUM_BLOCK = 8192  # elements per call of exp, so that they stay in the CPU cache


def best(logits: Floats, k: int) -> Ids:
    """The ids of the ``k`` largest logits, largest first; equal ones in order of id."""
    k = min(k, len(logits))
    if k <= 0:
        return np.empty(0, np.int64)
    if len(logits) < COMPILED_FROM or interpreted() or not logits.flags.c_contiguous:
        return np.argsort(-logits, kind="stable")[:k]
    # Imported here because it loads the compiler.
    from trinity_kernels.ops.select import largest

    return largest(logits, k)


def highest(shares: NDArray[np.float64], count: int) -> Ids:
    """The indices of the ``count`` largest shares, largest first; equal ones in order of index."""
    if not count:
        return np.empty(0, np.int64)
    indices = np.arange(len(shares))
    if count < len(shares):
        least = np.partition(shares, len(shares) - count)[len(shares) - count]
        indices = np.flatnonzero(shares >= least)
    return indices[np.argsort(-shares[indices], kind="stable")][:count]


def nucleus(values: Floats, top_p: float, normalizer: float) -> int:
    """Return how many of the logits, sorted from the largest, reach the probability ``top_p``."""
    if top_p >= 1:
        return len(values)
    mass = np.cumsum(np.exp(values.astype(np.float64) - normalizer))
    return min(int(np.searchsorted(mass, top_p, side="left")) + 1, len(values))


def log_normalizer(logits: Floats) -> float:
    """log(sum(exp(logits))); a logit minus this is its log-probability."""
    highest = float(logits.max())
    starts = [*range(0, len(logits), SUM_BLOCK), len(logits)]
    total = math.fsum(
        float(np.exp(logits[start:stop] - np.float32(highest)).sum(dtype=np.float64))
        for start, stop in pairwise(starts)
    )
    return highest + math.log(total)


def log_normalizers(rows: Floats) -> list[float]:
    """``log_normalizer`` of each of ``rows``, with the same bits, in fewer calls of NumPy."""
    highest = rows.max(axis=1)
    starts = [*range(0, rows.shape[1], SUM_BLOCK), rows.shape[1]]
    sums = [
        np.exp(rows[:, start:stop] - highest[:, None]).sum(axis=1, dtype=np.float64).tolist()
        for start, stop in pairwise(starts)
    ]
    totals = map(math.fsum, zip(*sums, strict=True))
    return [top + math.log(total) for top, total in zip(highest.tolist(), totals, strict=True)]


def best_of_rows(rows: Floats, k: int) -> Ids:
    """``best`` of each of ``rows``: (len(rows), k), or fewer columns if there are fewer logits."""
    if rows.shape[1] < COMPILED_FROM or interpreted():
        return np.argsort(-rows, axis=1, kind="stable")[:, :k]
    return np.stack([best(row, k) for row in rows])
