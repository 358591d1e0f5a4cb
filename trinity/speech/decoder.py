"""Whisper's decoder as plans: from tokens and encoder states to logits.

Token and position embeddings are added. Each layer has causal self-attention, cross-attention to
the encoder states, whose keys and values are computed once per window, and a feed-forward, each
after a norm. A last norm follows; the token embeddings give the logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TrinityError
from trinity.formats.speech_config import SpeechConfig
from trinity.runtime.records.recorder import (
    KV_TYPE,
    Heads,
    Pages,
    RecordedPlan,
    Recorder,
    RowBuffer,
)
from trinity.speech.history import History
from trinity.speech.weights import SpeechWeights
from trinity_kernels.ops.kv_layout import layer_bytes
from trinity_kernels.team import Team

# Steps of at most this many rows divide their attention among threads by blocks of positions. It is
# also the maximum number of rows of logits.
FEW = 16


class SpeechDecoder:
    """Runs the decoder with ``cross``, the encoder's keys and values."""

    def __init__(
        self, config: SpeechConfig, weights: SpeechWeights, recorder: Recorder, cross: Pages
    ) -> None:
        self._config, self._cross = config, cross
        stack, d = config.decoder, config.width
        self._heads = Heads(stack.heads, d // stack.heads)
        self._layer_bytes = layer_bytes(KV_TYPE, stack.heads, d // stack.heads, d // stack.heads)
        self._table = weights.linear("token_embd", config.vocab_size, d)
        self._embeddings = weights.rows("token_embd.weight", config.vocab_size, d)
        self._positions = weights.table("dec.position_embd.weight", stack.positions, d)
        rows = max(FEW, stack.positions)
        self._x, self._h, self._a = (RowBuffer(rows, d), RowBuffer(rows, d), RowBuffer(rows, d))
        self._q, self._k, self._v = (RowBuffer(rows, d), RowBuffer(rows, d), RowBuffer(rows, d))
        self._inner = RowBuffer(rows, stack.inner)
        self._logits = RowBuffer(FEW, config.vocab_size)
        self._count, self._wanted = recorder.number(0), recorder.number(0)
        self._places = np.zeros(rows, np.int32)
        self._wanted_rows = np.zeros(rows, np.int32)
        self._caches = np.zeros(rows, np.int64)
        self._across = np.full(rows, cross.address, np.int64)
        self._last = np.full(rows, config.encoder.positions - 1, np.int32)
        self._plans = [self._plan(recorder, weights, few) for few in (0, FEW)]
        self._recorder, self._weights = recorder, weights
        self._kept: dict[int, RowBuffer] = {}
        self._aligning: RecordedPlan | None = None

    def begin(self) -> History:
        """The history of a text without tokens."""
        stack = self._config.decoder
        return History(stack.positions, stack.layers * self._layer_bytes)

    def run(
        self, team: Team, rows: Sequence[tuple[int, History]], wanted: Sequence[int]
    ) -> NDArray[np.float32]:
        """Compute rows of (token, its text's history) in order; logits after the rows ``wanted``.

        Returns (len(wanted), vocabulary), valid until the next call. ``wanted`` has at most FEW
        indices.
        Raises: TrinityError if the logits are not finite.
        """
        self._enter(rows)
        self._wanted[0] = len(wanted)
        self._wanted_rows[: len(wanted)] = wanted
        team.run(self._plans[len(rows) <= FEW].records)
        logits = self._logits.values[: len(wanted)]
        if not np.isfinite(logits).all():
            raise TrinityError(
                f"{self._config.source}: the model's output is not finite, so no token can be "
                "chosen: the model is damaged; download or convert it again"
            )
        return logits

    def queries(self, team: Team, tokens: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The cross-attention queries of a text, for each layer that has alignment heads.

        Returns (len(tokens), width) for each layer, valid until the next call.
        """
        if self._aligning is None:  # memory that only word times need
            layers = sorted({layer for layer, _ in self._config.alignment_heads})
            rows = len(self._places)
            self._kept = {layer: RowBuffer(rows, self._config.width) for layer in layers}
            recorder = self._recorder
            recorder.rows, recorder.most = self._count, rows
            for layer in range(layers[-1] + 1):
                self._write_layer(recorder, self._weights, layer, 0, self._kept.get(layer))
            self._aligning = recorder.take()
        history = self.begin()
        self._enter([(token, history) for token in tokens])
        team.run(self._aligning.records)
        return {layer: rows.values[: len(tokens)] for layer, rows in self._kept.items()}

    def _enter(self, rows: Sequence[tuple[int, History]]) -> None:
        """Write tokens, each with the history of its text, to the input of the plans."""
        count = len(rows)
        for row, (_, history) in enumerate(rows):
            self._places[row] = history.length
            history.extend(1)
            self._caches[row] = history.address
        tokens = np.array([token for token, _ in rows])
        x = self._x.values[:count]
        self._embeddings.put(tokens, x)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
            x += self._positions[self._places[:count]]
        self._count[0] = count

    def _plan(self, recorder: Recorder, weights: SpeechWeights, few: int) -> RecordedPlan:
        recorder.rows, recorder.most = self._count, few or len(self._places)
        for layer in range(self._config.decoder.layers):
            self._write_layer(recorder, weights, layer, few)
        recorder.rows, recorder.most = self._wanted, FEW
        self._write_norm(recorder, weights, "dec.output_norm", self._wanted_rows)
        recorder.linear(self._h.at(), (self._table, self._logits.at()))
        return recorder.take()

    def _write_norm(
        self, recorder: Recorder, weights: SpeechWeights, name: str,
        index: NDArray[np.int32] | None = None,
    ) -> None:  # fmt: skip
        d = self._config.width
        weight, bias = (weights.vector(f"{name}.{part}", d) for part in ("weight", "bias"))
        recorder.norm(self._x.at(), weight, bias, self._h.at(), index)

    def _write_layer(
        self, recorder: Recorder, weights: SpeechWeights, layer: int, few: int,
        queries: RowBuffer | None = None,
    ) -> None:  # fmt: skip
        """The operations of a layer. ``queries`` receives its cross-attention queries."""
        config, d, inner = self._config, self._config.width, self._config.decoder.inner
        name = f"dec.blk.{layer}."
        x, h, a = self._x.at(), self._h.at(), self._a.at()
        self._write_norm(recorder, weights, f"{name}attn_norm")
        recorder.linear(h, *(
            (weights.linear(f"{name}attn_{part}", d, d), out.at())
            for part, out in (("q", self._q), ("k", self._k), ("v", self._v))
        ))  # fmt: skip
        offset = layer * self._layer_bytes
        recorder.store(self._k.at(), self._v.at(), self._heads, self._places, self._caches, offset)
        recorder.attention(
            self._q.at(), self._heads, a, self._places, self._caches, offset,
            few, config.decoder.positions,
        )  # fmt: skip
        recorder.linear(a, (weights.linear(f"{name}attn_o", d, d), x), add=True)
        self._write_norm(recorder, weights, f"{name}cross_attn_norm")
        recorder.linear(h, (weights.linear(f"{name}cross_attn_q", d, d), self._q.at()))
        if queries is not None:
            row = 4 * d
            recorder.copy(self._q.at(), row, queries.at(), row, 1, d, True)
        recorder.attention(
            self._q.at(), self._heads, a, self._last, self._across,
            layer * self._cross.layer_bytes, few, config.encoder.positions,
        )  # fmt: skip
        recorder.linear(a, (weights.linear(f"{name}cross_attn_o", d, d), x), add=True)
        self._write_norm(recorder, weights, f"{name}ffn_norm")
        recorder.linear(h, (weights.linear(f"{name}ffn_up", inner, d), self._inner.at()))
        recorder.activation(config.activation, self._inner.at(), inner)
        recorder.linear(
            self._inner.at(), (weights.linear(f"{name}ffn_down", d, inner), x), add=True
        )
