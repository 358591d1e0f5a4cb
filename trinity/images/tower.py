"""A vision transformer as a plan: from the patches of a square to rows of hidden states.

Patches and their positions, layers with norms before attention and feed-forward, bidirectional
attention, a last norm. Source: transformers' SiglipVisionModel, Qwen3VLVisionModel,
Qwen2_5_VisionTransformerPretrainedModel, Gemma4VisionModel, PixtralVisionModel, InternVLVisionModel
and CLIPVisionModel; llama.cpp's build_vit.

Between two attentions every row is independent, so a piece of the rows passes all operations while
it is in the CPU caches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.images.family import ImageFamily
from trinity.images.patches import (
    in_blocks,
    nearest_table,
    patches_of,
    resized_table,
    rotations,
    rotations_of_halves,
    smoothed_table,
    windows_of,
)
from trinity.images.resampler import ImageResampler
from trinity.images.tower_config import Norm, TowerConfig
from trinity.images.tower_weights import NO_LIMITS, TowerWeights
from trinity.runtime.records.full_attention import FullAttention
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.recorder import EPS, Heads, RecordedPlan, Recorder, RowBuffer
from trinity.runtime.weights import Weight
from trinity_kernels.team import Team

PIECE = 256  # rows of a piece between two attentions; whole pairs of tiles
_EPS_OF_ROWS = 1e-6  # of norms of whole rows of queries and keys


class _Stage(NamedTuple):
    """Some layers, and the projector of their states."""

    layers: RecordedPlan
    projector: RecordedPlan


class Tower:
    """Runs the transformer and the projector, for images of ``count`` blocks of patches."""

    def __init__(
        self, family: ImageFamily, config: TowerConfig, weights: TowerWeights, recorder: Recorder,
        count: int,
    ) -> None:  # fmt: skip
        self.count = count
        self._family, self._config = family, config
        self._weights, self._recorder = weights, recorder
        d, rows = config.hidden_size, count * config.merge**2
        self._rows = rows
        whole = rows + config.class_token
        self._patch = weights.patches()
        self._positions: NDArray[np.float32] | None = None
        if family.positions == "axes":
            table = weights.table("v.position_embd.weight", 2, config.positions, d)
            self._positions = table[:, : count * config.merge].copy()
        elif family.positions != "none":
            table = weights.positions()
            if config.class_token:
                self._class = weights.vector("v.class_embd", d) + table[0]
            self._positions = table[-config.rows :].reshape(config.side, config.side, d)
        self._heads = Heads(config.num_heads, d // config.num_heads)
        tables = 1 + family.rotates_halves if family.rotates else 0
        self._rotations = [
            np.zeros((rows, self._heads.dim // tables), np.float32) for _ in range(tables)
        ]
        self._turns = np.arange(rows, dtype=np.int32)
        self._attention = FullAttention(recorder, whole, self._heads)
        self._patches = RowBuffer(rows, self._patch.k)
        self._x, self._h = RowBuffer(whole, d), RowBuffer(whole, d)
        self._inner = RowBuffer(PIECE, config.intermediate_size)
        self._up = RowBuffer(PIECE, config.intermediate_size) if family.gated else self._inner
        # The output of attention or feed-forward, before the norm or the factors that follow it.
        follow = family.post_norms or config.scales
        self._branch = RowBuffer(PIECE, d) if follow else self._h
        # The input of a linear, limited to its range.
        widest = max(d, config.intermediate_size)
        self._limited = RowBuffer(PIECE, widest) if config.clips else self._h
        width = d if family.joined else d * config.merge**2 * config.joined_states
        self._joined_rows = family.joined(config, weights) if family.joined else None
        # Pieces copy states of all rows, also those of a class token.
        self._joined = RowBuffer(whole if config.features else count, width)
        self._merged = RowBuffer(count, d) if weights.merger else self._joined
        names = [
            *family.projector[:-1],
            *(f"v.deepstack.{layer}.fc1" for layer in config.deepstack),
        ]
        between = [weights.outputs(name) for name in names]
        self._between = RowBuffer(count, max(between)) if between else self._joined
        self._out = RowBuffer(count, config.projection_size * (1 + len(config.deepstack)))
        self._resampler: ImageResampler | None = None
        self._number, self._out_number = recorder.number(whole), recorder.number(count)
        self._pieces = [
            (first, recorder.number(min(PIECE, whole - first))) for first in range(0, whole, PIECE)
        ]
        recorder.rows, recorder.most = recorder.number(rows), rows
        recorder.linear(self._patches.at(), (self._patch, self._x.at()))
        self._stem = recorder.take()
        self._whole = recorder.rows, recorder.most = self._number, whole
        self._stages = list(self._written())

    def run(self, team: Team, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rows of an image, (n, projection_size) or wider: see ``ImageRows``.

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
        elif self._family.positions == "smoothed" and positions is not None:
            positions = smoothed_table(positions, height, width)
        elif self._family.positions == "nearest" and positions is not None:
            positions = nearest_table(positions, height, width)
        elif self._family.positions == "axes" and positions is not None:
            positions = positions[0, :width] + positions[1, :height, None]
        if self._family.rotates_halves:
            turned = rotations_of_halves(height, width, self._heads.dim, merge)
        elif self._family.rotates:
            odd = self._family.rotates_odd
            turned = [rotations(height, width, self._heads.dim, merge, odd=odd)]
        else:
            turned = []
        for table, turns in zip(self._rotations, turned, strict=True):
            table[:] = self._in(order, turns)
        if positions is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
                self._x.values[: self._rows] += self._in(order, in_blocks(positions, merge))
        if self._config.class_token:
            self._x.values[self._rows] = self._class
        for stage in self._stages[:-1]:
            team.run(stage.layers.records)
            self._joined.values[:] = self._x.values[: self._rows].reshape(self.count, -1)
            team.run(stage.projector.records)
        team.run(self._stages[-1].layers.records)
        if self._resampler is not None:
            self._resampler.place(height, width)
            team.run(self._stages[-1].projector.records)
            return self._resampler.out.values.copy()
        last = self._h if self._weights.last_norm else self._x
        blocks = last.values[: self._rows].reshape(self.count, merge**2, -1)
        if self._config.features:
            pass  # the layers have copied their states
        elif self._joined_rows is None:
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
        """Return the rows of patches, with their blocks of neighbours in the order ``order``."""
        return rows.reshape(self.count, self._config.merge**2, -1)[order].reshape(self._rows, -1)

    def _written(self) -> Iterator[_Stage]:
        """Write the layers up to each projector, and the projector."""
        config, recorder, d = self._config, self._recorder, self._config.hidden_size
        for first in self._each_piece():
            if self._weights.pre_norm:
                self._write_norm("v.pre_ln", self._x.at(first), self._x.at(first), d)
            self._write_queries(0, first)
        for layer in range(config.num_layers):
            windows = config.window > 0 and layer not in config.whole_layers
            as_bytes = self._linear(layer, "attn_out", d, d).form != "f32"
            self._attention.write(self._h, as_bytes=as_bytes, windows=windows)
            last = layer + 1 == config.num_layers
            for first in self._each_piece():
                self._write_rest(layer, first)
                self._write_features(layer + 1, first)
                if last and self._weights.last_norm:
                    self._write_norm("v.post_ln", self._x.at(first), self._h.at(first), d)
                elif not last and layer not in config.deepstack:
                    self._write_queries(layer + 1, first)
            if layer in config.deepstack:
                layers, name = recorder.take(), f"v.deepstack.{layer}."
                number = 1 + config.deepstack.index(layer)
                products = name + "fc1", name + "fc2"
                yield _Stage(layers, self._projector(products, number, name + "norm"))
                for first in self._each_piece():
                    if not last:
                        self._write_queries(layer + 1, first)
        layers, norm = recorder.take(), self._weights.projector_norm
        if config.queries:
            states = self._h if self._weights.last_norm else self._x
            self._resampler = ImageResampler(
                config, self._weights, recorder, states.at(), self._rows
            )
            yield _Stage(layers, self._resampler.plan)
            return
        yield _Stage(layers, self._projector(self._family.projector, 0, norm, eps=EPS))

    def _write_features(self, number: int, first: int) -> None:
        """Copy the states of a piece after a layer that the projector reads."""
        size = 4 * self._config.hidden_size
        for place, feature in enumerate(self._config.features):
            if feature == number:
                row = self._joined.at(first)
                out = RowsView(row.address + place * size, row.stride)
                self._recorder.copy(self._x.at(first), size, out, size, 1, size // 4, barrier=True)

    def _projector(
        self, names: Sequence[str], number: int, norm: str = "", *, eps: float | None = None
    ) -> RecordedPlan:
        """The products from joined rows to the part ``number`` of the result."""
        recorder, size = self._recorder, self._config.projection_size
        recorder.rows, recorder.most = self._out_number, self.count
        source, width = self._joined.at(), self._joined.values.shape[1]
        if norm:
            self._write_norm(norm, source, source, width, kind="layer", eps=eps)
        elif merger := self._weights.merger:
            d = self._config.hidden_size
            recorder.linear(source, (self._weights.linear(merger, d, width), self._merged.at()))
            source, width = self._merged.at(), d
        *inner, last = names
        for name in inner:
            size_between = self._weights.outputs(name)
            weight = self._weights.linear(name, size_between, width)
            recorder.linear(source, (weight, self._between.at()))
            source, width = self._between.at(), size_between
            recorder.activation("gelu_erf", source, width)
        out = self._out.at()
        into = RowsView(out.address + 4 * size * number, out.stride)
        recorder.linear(source, (self._weights.linear(last, size, width), into))
        plan = recorder.take()
        recorder.rows, recorder.most = self._whole
        return plan

    def _linear(self, layer: int, name: str, n: int, k: int) -> Weight:
        return self._weights.linear(f"v.blk.{layer}.{name}", n, k)

    def _each_piece(self) -> Iterator[int]:
        """Yield the first row of each piece; records written meanwhile are for that piece."""
        recorder = self._recorder
        recorder.most = PIECE
        for first, recorder.rows in self._pieces:
            yield first
        recorder.rows, recorder.most = self._whole

    def _write_norm(
        self, name: str, x: RowsView, out: RowsView, width: int, *, add: bool = False,
        kind: Norm | None = None, eps: float | None = None,
    ) -> None:  # fmt: skip
        """A norm of the layers' kind and with their epsilon, unless others are given."""
        weight, bias = self._weights.norm(name, width, kind or self._config.norm)
        eps = self._config.layer_norm_eps if eps is None else eps
        self._recorder.norm(x, weight, bias, out, eps=eps, add=add)

    def _write_linear(
        self, x: RowsView, names: Sequence[str], *outputs: tuple[Weight, RowsView],
        add: bool = False,
    ) -> None:  # fmt: skip
        """Linears of the same rows. Their inputs and outputs are limited to ranges."""
        recorder, limits = self._recorder, [self._weights.limits(name) for name in names]
        for before in dict.fromkeys((one.low, one.high) for one in limits):
            source = x
            if before != NO_LIMITS[:2]:
                source = self._limited.at()
                recorder.clamp(x, source, outputs[0][0].k, *before)
            same = [(one.low, one.high) == before for one in limits]
            recorder.linear(source, *compress(outputs, same), add=add)
        for one, (weight, out) in zip(limits, outputs, strict=True):
            if (one.lowest, one.highest) != NO_LIMITS[2:]:
                recorder.clamp(out, out, weight.n, one.lowest, one.highest)

    def _write_branch(self, x: RowsView, layer: int, name: str, k: int, out: RowsView) -> None:
        """Add a product to the rows ``out``, after what follows it in some families."""
        d, prefix = self._config.hidden_size, f"v.blk.{layer}."
        weight = self._linear(layer, name, d, k)
        if not (self._family.post_norms or self._config.scales):
            self._write_linear(x, [prefix + name], (weight, out), add=True)
            return
        self._write_linear(x, [prefix + name], (weight, self._branch.at()))
        if self._config.scales:
            factors = "ls1" if name == "attn_out" else "ls2"
            weights = self._weights.vector(f"{prefix}{factors}.weight", d)
            self._recorder.multiply(self._branch.at(), weights)
            self._recorder.add(self._branch.at(), out, d)
            return
        norm = "attn_post_norm" if name == "attn_out" else "ffn_post_norm"
        self._write_norm(prefix + norm, self._branch.at(), out, d, add=True)

    def _write_queries(self, layer: int, first: int) -> None:
        """The queries, keys and values of a piece."""
        d, own, h = self._config.hidden_size, self._attention, self._h.at(first)
        self._write_norm(f"v.blk.{layer}.ln1", self._x.at(first), h, d)
        views = [buffer.at(first) for buffer in (own.q, own.k, own.v)]
        names = [f"v.blk.{layer}.attn_{part}" for part in "qkv"]
        weights = self._weights.queries(layer)
        self._write_linear(h, names, *zip(weights, views, strict=True))
        if self._family.head_norms:
            self._write_head_norms(layer, views)
        if self._config.row_norms:
            for part, view in zip("qk", views[:2], strict=True):
                weight = self._weights.vector(f"v.blk.{layer}.attn_{part}_norm.weight", d)
                self._recorder.norm(view, weight, None, view, eps=_EPS_OF_ROWS)
        for view in views[:2]:
            for i, table in enumerate(self._rotations):
                turns, start = self._turns[first:], i * table.shape[1]
                self._recorder.rotate(view, self._heads, table, turns, start)

    def _write_head_norms(self, layer: int, views: Sequence[RowsView]) -> None:
        """The norms of each head of queries, keys and values."""
        heads, prefix = self._heads, f"v.blk.{layer}.attn_"
        # The attention kernel divides scores by this root; the family does not.
        query = self._weights.vector(f"{prefix}q_norm.weight", heads.dim)
        query = query * np.float32(math.sqrt(heads.dim))
        key = self._weights.vector(f"{prefix}k_norm.weight", heads.dim)
        value = np.ones(heads.dim, np.float32)
        for weight, view in zip((query, key, value), views, strict=True):
            self._recorder.norm(
                view, weight, None, view, eps=self._config.layer_norm_eps, groups=heads.number
            )

    def _write_rest(self, layer: int, first: int) -> None:
        """The operations of a piece after attention."""
        config, recorder = self._config, self._recorder
        d, inner, prefix = config.hidden_size, config.intermediate_size, f"v.blk.{layer}."
        x, h, wide = self._x.at(first), self._h.at(first), self._inner.at()
        self._write_branch(h, layer, "attn_out", d, x)
        self._write_norm(f"{prefix}ln2", x, h, d)
        up = self._linear(layer, "ffn_up", inner, d)
        if self._family.gated:
            gate, other = self._linear(layer, "ffn_gate", inner, d), self._up.at()
            names = [f"{prefix}ffn_gate", f"{prefix}ffn_up"]
            self._write_linear(h, names, (gate, wide), (up, other))
            recorder.activation(config.activation, wide, inner, other)
        else:
            self._write_linear(h, [f"{prefix}ffn_up"], (up, wide))
            recorder.activation(config.activation, wide, inner)
        self._write_branch(wide, layer, "ffn_down", inner, x)
