"""Learned queries that attend to an image's patches, and so make a fixed number of rows.

Source: OpenBMB's resampler.py (MiniCPM-V); llama.cpp, tools/mtmd/models/minicpmv.cpp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.images.tower_config import RESAMPLER_HEAD, TowerConfig
from trinity.images.tower_weights import TowerWeights
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.recorder import Heads, Pages, RecordedPlan, Recorder, RowBuffer

_EPS = 1e-6
_THETA = 10000.0


class ImageResampler:
    """A plan that computes the rows in ``out`` from the hidden states of ``count`` patches."""

    def __init__(
        self, config: TowerConfig, weights: TowerWeights, recorder: Recorder, states: RowsView,
        count: int,
    ) -> None:  # fmt: skip
        width, queries = config.projection_size, config.queries
        heads = Heads(width // RESAMPLER_HEAD, RESAMPLER_HEAD)
        self._places, self.out = RowBuffer(count, width), RowBuffer(queries, width)
        self._learned = RowBuffer(queries, width)
        self._learned.values[:] = weights.table("resampler.query", queries, width)
        shared, keys, values = (RowBuffer(count, width) for _ in range(3))
        asked, seen = RowBuffer(queries, width), RowBuffer(queries, width)
        pages = Pages(1, count, heads.number, heads.dim)

        def norm(name: str, x: RowBuffer, out: RowBuffer) -> None:
            weight, bias = weights.norm(f"resampler.{name}", width, "layer")
            recorder.norm(x.at(), weight, bias, out.at(), eps=_EPS)

        def linear(name: str, x: RowsView, out: RowBuffer, k: int = width) -> None:
            recorder.linear(x, (weights.linear(f"resampler.{name}", width, k), out.at()))

        recorder.rows, recorder.most = recorder.number(count), count
        linear("kv", states, shared, config.hidden_size)
        norm("ln_kv", shared, shared)
        recorder.add(shared.at(), self._places.at(), width)
        linear("attn.k", self._places.at(), keys)
        linear("attn.v", shared.at(), values)
        addresses = np.full(max(count, queries), pages.address, np.int64)
        positions = np.arange(count, dtype=np.int32)
        recorder.store(keys.at(), values.at(), heads, positions, addresses, 0)
        recorder.rows, recorder.most = recorder.number(queries), queries
        norm("ln_q", self._learned, asked)
        linear("attn.q", asked.at(), seen)
        firsts, lasts = np.zeros(queries, np.int32), np.full(queries, count - 1, np.int32)
        recorder.attention(seen.at(), heads, asked.at(), lasts, addresses, 0, firsts=firsts)
        linear("attn.out", asked.at(), seen)
        norm("ln_post", seen, seen)
        linear("proj", seen.at(), self.out)
        self.plan: RecordedPlan = recorder.take()
        self._kept = shared, keys, values, asked, seen, pages

    def place(self, height: int, width: int) -> None:
        """Write the position embeddings for an image of height x width patches.

        Call it before each run of the plan.
        """
        table = sines(height, width, self._places.values.shape[1])
        self._places.values[:] = table.reshape(height * width, -1)


def sines(height: int, width: int, size: int) -> NDArray[np.float32]:
    """Return sines and cosines (height, width, size): of columns, then of rows."""
    count = size // 4
    frequencies = np.float32(1) / np.float32(_THETA) ** (np.arange(count, dtype=np.float32) / count)
    made = np.empty((height, width, 4, count), np.float32)
    for first, length, axis in ((0, width, 0), (2, height, 1)):
        angles = np.arange(length, dtype=np.float32)[:, None] * frequencies
        angles = angles.reshape((length, 1, count) if axis else (1, length, count))
        made[:, :, first], made[:, :, first + 1] = np.sin(angles), np.cos(angles)
    return made.reshape(height, width, size)
