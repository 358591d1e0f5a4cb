"""Whisper's encoder as plans: from mel frames to the keys and values of cross-attention.

The two convolutions have three taps; the second has stride 2. They are computed as linears: rows of
frames are contiguous, so that three of them form one longer row. Each layer has norms before
attention and feed-forward, and bidirectional attention; a last norm follows. Between two attentions
every row is independent, so a piece of the rows passes all operations while it is in the CPU
caches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trinity.formats.speech_config import SpeechConfig
from trinity.runtime.records.full_attention import FullAttention
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.recorder import Heads, Pages, Recorder, RowBuffer
from trinity.speech.weights import PADDING_MOST, SpeechWeights
from trinity_kernels.team import Team

PIECE = 256  # rows of a piece between two attentions; whole pairs of tiles


class SpeechEncoder:
    """Runs the encoder; ``cross`` has the keys and values of each decoder layer."""

    def __init__(self, config: SpeechConfig, weights: SpeechWeights, recorder: Recorder) -> None:
        self._config, self._weights, self._recorder = config, weights, recorder
        stack, d = config.encoder, config.width
        self._positions = weights.table("enc.position_embd.weight", stack.positions, d)
        heads = Heads(stack.heads, d // stack.heads)
        self._attention = FullAttention(recorder, stack.positions, heads)
        self._mel, self._first = _frames(config, config.bands), _frames(config, d)
        self._x, self._h = RowBuffer(stack.positions, d), RowBuffer(stack.positions, d)
        self._inner = RowBuffer(PIECE, stack.inner)
        across = Heads(config.decoder.heads, d // config.decoder.heads)
        self.cross = Pages(config.decoder.layers, stack.positions, across.number, across.dim)

        self._frames, self._count = recorder.number(config.frames), recorder.number(stack.positions)
        self._pieces = [
            (first, recorder.number(min(PIECE, stack.positions - first)))
            for first in range(0, stack.positions, PIECE)
        ]
        self._places = np.arange(stack.positions, dtype=np.int32)
        self._across = np.full(stack.positions, self.cross.address, np.int64)

        self._write_stem()
        self._stem = recorder.take()
        for first in self._each_piece():
            self._write_queries(0, first)
        for layer in range(stack.layers):
            self._attention.write(self._h, as_bytes=self._as_bytes(layer))
            for first in self._each_piece():
                self._write_rest(layer, first)
                if layer + 1 < stack.layers:
                    self._write_queries(layer + 1, first)
                else:
                    self._write_norm("enc.output_norm", first)
                    self._write_cross(across, first)
        self._layers = recorder.take()

    def run(self, team: Team, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Encode a window (frames, bands) and fill ``cross``.

        Returns the states (positions, width), valid until the next call.
        """
        self._mel.values[1 : 1 + len(features)] = features
        team.run(self._stem.records)
        count = self._config.encoder.positions
        with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
            self._x.values[:count] += self._positions
        team.run(self._layers.records)
        return self.states

    @property
    def states(self) -> NDArray[np.float32]:
        """The states of the last window (positions, width)."""
        return self._h.values[: self._config.encoder.positions]

    def _write_stem(self) -> None:
        config, d, recorder, weights = (
            self._config, self._config.width, self._recorder, self._weights
        )  # fmt: skip
        as_bytes = self._as_bytes(0)
        first = weights.convolution("enc.conv1d.1", d, config.bands, 3, as_bytes)
        second = weights.convolution("enc.conv1d.2", d, d, 3, as_bytes)
        recorder.rows, recorder.most = self._frames, config.frames
        recorder.linear(self._mel.at(), (first, self._first.at(1)))
        recorder.activation("gelu_erf", self._first.at(1), d)
        recorder.rows, recorder.most = self._count, config.encoder.positions
        twice = RowsView(self._first.at().address, 2 * self._first.stride)
        recorder.linear(twice, (second, self._x.at()))
        recorder.activation("gelu_erf", self._x.at(), d)

    def _as_bytes(self, layer: int) -> bool:
        """Whether the weights of a layer are quantized."""
        d = self._config.width
        return self._weights.linear(f"enc.blk.{layer}.attn_o", d, d).form != "f32"

    def _each_piece(self) -> Iterator[int]:
        """Yield the first row of each piece; records written meanwhile are for that piece."""
        recorder = self._recorder
        recorder.most = PIECE
        for first, recorder.rows in self._pieces:
            yield first
        recorder.rows, recorder.most = self._count, self._config.encoder.positions

    def _write_norm(self, name: str, first: int) -> None:
        weight, bias = (
            self._weights.vector(f"{name}.{part}", self._config.width)
            for part in ("weight", "bias")
        )
        self._recorder.norm(self._x.at(first), weight, bias, self._h.at(first))

    def _write_queries(self, layer: int, first: int) -> None:
        """The queries, keys and values of a piece."""
        d, name, own = self._config.width, f"enc.blk.{layer}.attn_", self._attention
        self._write_norm(f"{name}norm", first)
        self._recorder.linear(self._h.at(first), *(
            (self._weights.linear(f"{name}{part}", d, d), out.at(first))
            for part, out in (("q", own.q), ("k", own.k), ("v", own.v))
        ))  # fmt: skip

    def _write_rest(self, layer: int, first: int) -> None:
        """The operations of a piece after attention."""
        config, d, inner = self._config, self._config.width, self._config.encoder.inner
        name, recorder, linear = f"enc.blk.{layer}.", self._recorder, self._weights.linear
        x, h, wide = self._x.at(first), self._h.at(first), self._inner.at()
        recorder.linear(h, (linear(f"{name}attn_o", d, d), x), add=True)
        self._write_norm(f"{name}ffn_norm", first)
        recorder.linear(h, (linear(f"{name}ffn_up", inner, d), wide))
        recorder.activation(config.activation, wide, inner)
        recorder.linear(wide, (linear(f"{name}ffn_down", d, inner), x), add=True)

    def _write_cross(self, heads: Heads, first: int) -> None:
        """The decoder's keys and values of a piece."""
        d, recorder, linear = self._config.width, self._recorder, self._weights.linear
        own = self._attention
        h, k, v = self._h.at(first), own.k.at(first), own.v.at(first)
        for layer in range(self._config.decoder.layers):
            name = f"dec.blk.{layer}.cross_attn_"
            recorder.linear(h, (linear(f"{name}k", d, d), k), (linear(f"{name}v", d, d), v))
            recorder.store(
                k, v, heads, self._places[first:], self._across[first:],
                layer * self.cross.layer_bytes,
            )  # fmt: skip


def _frames(config: SpeechConfig, width: int) -> RowBuffer:
    """Rows of frames for the convolutions.

    The convolutions need one row of zeros before the first frame and one after the last. Products
    with padded weights also read the memory after that row.
    """
    return RowBuffer(config.frames + 2 + -(-PADDING_MOST // width), width, 4 * width)
