"""A vision transformer as a plan: from the patches of a square to rows of hidden states.

Patches and their positions, layers with norms before attention and feed-forward, bidirectional
attention, a last norm. Source: transformers' SiglipVisionModel, Qwen3VLVisionModel and
Qwen2_5_VisionTransformerPretrainedModel; llama.cpp's build_vit.

Between two attentions every row is independent, so a piece of the rows passes all operations while
it is in the CPU caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.images.family import ImageFamily
from trinity.images.patches import in_blocks, patches_of, resized_table, rotations, windows_of
from trinity.images.tower_config import TowerConfig
from trinity.images.tower_weights import TowerWeights
from trinity.runtime.records.full_attention import FullAttention
from trinity.runtime.records.recorder import Heads, RecordedPlan, Recorder, RowBuffer
from trinity.runtime.records.rows_view import RowsView
from trinity.runtime.weights import Weight
from trinity_kernels.team import Team

PIECE = 240  # rows of a piece between two attentions; whole tiles and panels


class _Stage(NamedTuple):
    """Some layers, and the projector of their states."""

    layers: RecordedPlan
    projector: RecordedPlan


class Tower:
    """Runs the transformer and the projector, for images of ``count`` rows of the text model."""

    def __init__(
        self, family: ImageFamily, config: TowerConfig, weights: TowerWeights, recorder: Recorder,
        count: int,
    ) -> None:  # fmt: skip
        self.count = count
        self._family, self._config = family, config
        self._weights, self._recorder = weights, recorder
        d, rows = config.hidden_size, count * config.merge**2
        self._rows = rows
        self._patch = weights.patches()
        self._positions: NDArray[np.float32] | None = None
        if family.positions != "none":
            table = weights.table("v.position_embd.weight", config.rows, d)
            self._positions = table.reshape(config.side, config.side, d)
        self._heads = Heads(config.num_heads, d // config.num_heads)
        self._rotations = np.zeros((rows if family.rotates else 0, self._heads.dim), np.float32)
        self._turns = np.arange(rows, dtype=np.int32)
        self._attention = FullAttention(recorder, rows, self._heads)
        self._patches = RowBuffer(rows, self._patch.k)
        self._x, self._h = RowBuffer(self._attention.rows, d), RowBuffer(self._attention.rows, d)
        self._inner = RowBuffer(PIECE, config.intermediate_size)
        gated = config.activation == "silu"
        self._up = RowBuffer(PIECE, config.intermediate_size) if gated else self._inner
        width = d if family.joined else d * config.merge**2
        self._joined_rows = family.joined(config, weights) if family.joined else None
        self._joined = RowBuffer(count, width)
        self._between = RowBuffer(count, width) if len(family.projector) > 1 else self._joined
        self._out = RowBuffer(count, config.projection_size * (1 + len(config.deepstack)))
        self._number, self._out_number = recorder.number(rows), recorder.number(count)
        self._pieces = [
            (first, recorder.number(min(PIECE, rows - first))) for first in range(0, rows, PIECE)
        ]
        recorder.rows, recorder.most = self._number, rows
        recorder.linear(self._patches.at(), (self._patch, self._x.at()))
        self._stem = recorder.take()
        self._stages = list(self._written())

    def run(self, team: Team, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rows of an image, (count, projection_size) or wider: see ``ImageRows``.

        ``pixels``: (height, width, 3), normalized.
        """
        merge, size = self._config.merge, self._config.patch_size
        height, width = pixels.shape[0] // size, pixels.shape[1] // size
        order = self._order(height // merge, width // merge)
        self._patches.values[:] = self._in(order, patches_of(pixels, size, merge))
        team.run(self._stem.records)
        positions = self._positions
        if self._family.positions == "resized" and positions is not None:
            positions = resized_table(positions, height, width)
        if self._family.rotates:
            turned = rotations(height, width, self._heads.dim, merge)
            self._rotations[:] = self._in(order, turned)
        if positions is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
                self._x.values[: self._rows] += self._in(order, in_blocks(positions, merge))
        for stage in self._stages[:-1]:
            team.run(stage.layers.records)
            self._joined.values[:] = self._x.values[: self._rows].reshape(self.count, -1)
            team.run(stage.projector.records)
        team.run(self._stages[-1].layers.records)
        blocks = self._h.values[: self._rows].reshape(self.count, merge**2, -1)
        if self._joined_rows is None:
            self._joined.values[:] = blocks.reshape(self.count, -1)
        else:
            self._joined.values[:] = self._joined_rows(blocks)
        team.run(self._stages[-1].projector.records)
        out = np.empty_like(self._out.values)
        out[order] = self._out.values
        return out

    def _order(self, height: int, width: int) -> NDArray[np.int64]:
        """The order of the blocks of neighbours in the buffers: window by window."""
        if not self._config.window:
            return np.arange(self.count)
        order, sizes = windows_of(height, width, self._config.window)
        ends = np.cumsum(sizes * self._config.merge**2)
        counts = np.diff(ends, prepend=0)
        self._attention.spans[:] = np.repeat([ends - counts, ends - 1], counts, axis=1)
        return order

    def _in(self, order: NDArray[np.int64], rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of patches with their blocks in this order."""
        return rows.reshape(self.count, self._config.merge**2, -1)[order].reshape(self._rows, -1)

    def _written(self) -> Iterator[_Stage]:
        """Write the layers up to each projector, and the projector."""
        config, recorder, d = self._config, self._recorder, self._config.hidden_size
        for first in self._each_piece():
            self._write_queries(0, first)
        for layer in range(config.num_layers):
            if config.window and layer not in config.whole_layers:
                mixed = self._attention.write_windows(self._h)
            else:
                as_bytes = self._linear(layer, "attn_out", d, d).form != "f32"
                mixed = self._attention.write(self._h, as_bytes=as_bytes)
            last = layer + 1 == config.num_layers
            for first in self._each_piece():
                self._write_rest(layer, mixed, first)
                if last:
                    self._write_norm("v.post_ln", self._x.at(first), self._h.at(first), d)
                elif layer not in config.deepstack:
                    self._write_queries(layer + 1, first)
            if layer in config.deepstack:
                layers, name = recorder.take(), f"v.deepstack.{layer}."
                number = 1 + config.deepstack.index(layer)
                yield _Stage(layers, self._projector((name + "fc1", name + "fc2"), number, name))
                for first in self._each_piece():
                    if not last:
                        self._write_queries(layer + 1, first)
        yield _Stage(recorder.take(), self._projector(self._family.projector, 0))

    def _projector(self, names: Sequence[str], number: int, norm: str = "") -> RecordedPlan:
        """The products from joined rows to the part ``number`` of the result."""
        recorder, size = self._recorder, self._config.projection_size
        recorder.rows, recorder.most = self._out_number, self.count
        source, width = self._joined.at(), self._joined.values.shape[1]
        if norm:
            self._write_norm(f"{norm}norm", source, source, width)
        *inner, last = names
        for name in inner:
            recorder.linear(source, (self._weights.linear(name, width, width), self._between.at()))
            source = self._between.at()
            recorder.activation("gelu_erf", source, width)
        out = self._out.at()
        into = RowsView(out.address + 4 * size * number, out.stride)
        recorder.linear(source, (self._weights.linear(last, size, width), into))
        plan = recorder.take()
        recorder.rows, recorder.most = self._number, self._rows
        return plan

    def _linear(self, layer: int, name: str, n: int, k: int) -> Weight:
        return self._weights.linear(f"v.blk.{layer}.{name}", n, k)

    def _each_piece(self) -> Iterator[int]:
        """Yield the first row of each piece; records written meanwhile are for that piece."""
        recorder = self._recorder
        recorder.most = PIECE
        for first, recorder.rows in self._pieces:
            yield first
        recorder.rows, recorder.most = self._number, self._rows

    def _write_norm(self, name: str, x: RowsView, out: RowsView, width: int) -> None:
        weight, bias = self._weights.norm(name, width)
        self._recorder.norm(x, weight, bias, out, eps=self._config.layer_norm_eps)

    def _write_queries(self, layer: int, first: int) -> None:
        """The queries, keys and values of a piece."""
        d, own, h = self._config.hidden_size, self._attention, self._h.at(first)
        self._write_norm(f"v.blk.{layer}.ln1", self._x.at(first), h, d)
        views = [buffer.at(first) for buffer in (own.q, own.k, own.v)]
        self._recorder.linear(h, *zip(self._weights.queries(layer), views, strict=True))
        if self._family.rotates:
            for view in views[:2]:
                turns = self._turns[first:]
                self._recorder.rotate(view, self._heads, self._rotations, turns)

    def _write_rest(self, layer: int, mixed: RowBuffer, first: int) -> None:
        """The operations of a piece after attention."""
        config, recorder = self._config, self._recorder
        d, inner = config.hidden_size, config.intermediate_size
        x, h, wide = self._x.at(first), self._h.at(first), self._inner.at()
        recorder.linear(mixed.at(first), (self._linear(layer, "attn_out", d, d), x), add=True)
        self._write_norm(f"v.blk.{layer}.ln2", x, h, d)
        up = self._linear(layer, "ffn_up", inner, d)
        if config.activation == "silu":
            gate, other = self._linear(layer, "ffn_gate", inner, d), self._up.at()
            recorder.linear(h, (gate, wide), (up, other))
            recorder.activation("silu", wide, inner, other)
        else:
            recorder.linear(h, (up, wide))
            recorder.activation(config.activation, wide, inner)
        recorder.linear(wide, (self._linear(layer, "ffn_down", d, inner), x), add=True)
