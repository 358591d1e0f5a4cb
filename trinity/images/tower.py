"""A vision transformer as a plan: from the patches of a square to rows of hidden states.

It is SigLIP's: patches and their positions, layers with norms before attention and feed-forward,
bidirectional attention, a last norm. Source: transformers' SiglipVisionModel, llama.cpp's
build_vit.

Between two attentions every row is independent, so a piece of the rows passes all operations while
it is in the CPU caches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trinity.images.family import ImageFamily
from trinity.images.tower_config import TowerConfig
from trinity.images.tower_weights import TowerWeights
from trinity.runtime.records.full_attention import FullAttention
from trinity.runtime.records.recorder import Heads, Recorder, RowBuffer
from trinity.runtime.weights import Weight
from trinity_kernels.team import Team

PIECE = 240  # rows of a piece between two attentions; whole tiles and panels


class Tower:
    """Runs the transformer and the projector's product."""

    def __init__(
        self, family: ImageFamily, config: TowerConfig, weights: TowerWeights, recorder: Recorder
    ) -> None:
        self._config, self._weights, self._recorder = config, weights, recorder
        self._joined_rows = family.joined(config, weights)
        d, rows = config.hidden_size, config.rows
        self._patch = weights.patches()
        self._positions = weights.table("v.position_embd.weight", rows, d)
        heads = Heads(config.num_heads, d // config.num_heads)
        self._attention = FullAttention(recorder, rows, heads)
        self._patches = RowBuffer(rows, self._patch.k)
        self._x, self._h = RowBuffer(self._attention.rows, d), RowBuffer(self._attention.rows, d)
        self._inner = RowBuffer(PIECE, config.intermediate_size)
        projector = weights.linear(family.projector, config.projection_size, family.width(config))
        self._joined = RowBuffer(config.image_rows, projector.k)
        self._out = RowBuffer(config.image_rows, config.projection_size)
        self._count = recorder.number(rows)
        self._pieces = [
            (first, recorder.number(min(PIECE, rows - first))) for first in range(0, rows, PIECE)
        ]
        recorder.rows, recorder.most = self._count, rows
        recorder.linear(self._patches.at(), (self._patch, self._x.at()))
        self._stem = recorder.take()
        for first in self._each_piece():
            self._write_queries(0, first)
        for layer in range(config.num_layers):
            as_bytes = self._linear(layer, "attn_out", d, d).form != "f32"
            mixed = self._attention.write(self._h, as_bytes=as_bytes)
            for first in self._each_piece():
                self._write_rest(layer, mixed, first)
                if layer + 1 < config.num_layers:
                    self._write_queries(layer + 1, first)
                else:
                    self._write_norm("v.post_ln", first)
        self._layers = recorder.take()
        recorder.rows, recorder.most = recorder.number(config.image_rows), config.image_rows
        recorder.linear(self._joined.at(), (projector, self._out.at()))
        self._projector = recorder.take()

    def run(self, team: Team, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rows of a square for the text model, (image_rows, projection_size).

        ``pixels``: (image_size, image_size, 3), normalized.
        """
        config, side, size = self._config, self._config.side, self._config.patch_size
        patches = pixels[: side * size, : side * size].reshape(side, size, side, size, 3)
        # A patch is in the order of the convolution's weight: channel, y, x.
        self._patches.values[:] = patches.transpose(0, 2, 4, 1, 3).reshape(config.rows, -1)
        team.run(self._stem.records)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
            self._x.values[: config.rows] += self._positions
        team.run(self._layers.records)
        merge, merged = config.merge, side // config.merge
        states = self._h.values[: config.rows].reshape(merged, merge, merged, merge, -1)
        blocks = states.transpose(0, 2, 1, 3, 4).reshape(config.image_rows, merge**2, -1)
        self._joined.values[:] = self._joined_rows(blocks)
        team.run(self._projector.records)
        return self._out.values.copy()

    def _linear(self, layer: int, name: str, n: int, k: int) -> Weight:
        return self._weights.linear(f"v.blk.{layer}.{name}", n, k)

    def _each_piece(self) -> Iterator[int]:
        """Yield the first row of each piece; records written meanwhile are for that piece."""
        recorder = self._recorder
        recorder.most = PIECE
        for first, recorder.rows in self._pieces:
            yield first
        recorder.rows, recorder.most = self._count, self._config.rows

    def _write_norm(self, name: str, first: int) -> None:
        weight, bias = (
            self._weights.vector(f"{name}.{part}", self._config.hidden_size)
            for part in ("weight", "bias")
        )
        eps = self._config.layer_norm_eps
        self._recorder.norm(self._x.at(first), weight, bias, self._h.at(first), eps=eps)

    def _write_queries(self, layer: int, first: int) -> None:
        """The queries, keys and values of a piece."""
        d, own = self._config.hidden_size, self._attention
        self._write_norm(f"v.blk.{layer}.ln1", first)
        self._recorder.linear(self._h.at(first), *(
            (self._linear(layer, f"attn_{part}", d, d), out.at(first))
            for part, out in (("q", own.q), ("k", own.k), ("v", own.v))
        ))  # fmt: skip

    def _write_rest(self, layer: int, mixed: RowBuffer, first: int) -> None:
        """The operations of a piece after attention."""
        config, recorder = self._config, self._recorder
        d, inner = config.hidden_size, config.intermediate_size
        x, h, wide = self._x.at(first), self._h.at(first), self._inner.at()
        recorder.linear(mixed.at(first), (self._linear(layer, "attn_out", d, d), x), add=True)
        self._write_norm(f"v.blk.{layer}.ln2", first)
        recorder.linear(h, (self._linear(layer, "ffn_up", inner, d), wide))
        recorder.activation(config.activation, wide, inner)
        recorder.linear(wide, (self._linear(layer, "ffn_down", d, inner), x), add=True)
