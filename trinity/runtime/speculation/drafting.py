"""Multi-token prediction: a layer after the last one proposes the next tokens.

From the hidden state of a token and the embedding of the following token, the layer computes the
state from which the head predicts the token after that. The layer has its own keys and values in
the model's KV pages, one position for each such pair. The model verifies every proposal, so a wrong
or missing one costs time but never changes the text.
Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; llama.cpp src/models/qwen35.cpp.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.models.architecture import DRAFT_STATE, DRAFT_TOKEN
from trinity.models.decoder import DRAFT_EMBEDDING, DRAFT_HEAD, DRAFT_NORM
from trinity.models.operations import Norm
from trinity.runtime import records
from trinity.runtime.embedding import TokenEmbedding
from trinity.runtime.interface import Rows
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.plan import Buffers, PlanBuilder
from trinity.runtime.records import linear, norm
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.writer import RecordWriter
from trinity.runtime.step import Step
from trinity.runtime.weights import Weight
from trinity_kernels.record import RECORD

Walk = Callable[[NDArray[np.void]], None]


class _Plan(NamedTuple):
    """Records that read hidden states of the model, then those of the layer, then those of the
    head.
    """

    records: NDArray[np.void]
    head: int

    @property
    def layer(self) -> NDArray[np.void]:
        """The records from the model's hidden states to the layer's."""
        return self.records[: self.head]

    @property
    def further(self) -> NDArray[np.void]:
        """The records from a hidden state of the layer to logits."""
        return self.records[1:]


@dataclass(slots=True)
class _Newest:
    """The rows of the newest step, if all of them belong to one sequence.

    The layer has computed the pairs of all rows before ``seen``.
    """

    cache: weakref.ref[KVCache]
    start: int
    count: int
    seen: int = 0


class Drafter:
    """Proposes the tokens that follow the rows of the newest step of an engine."""

    def __init__(
        self, builder: PlanBuilder, buffers: Buffers, step: Step, head: Weight,
        embedding: TokenEmbedding, few: int,
    ) -> None:  # fmt: skip
        decoder, config = builder.decoder, builder.config
        self._builder, self._buffers, self._step = builder, buffers, step
        self._prefix, self._few = decoder.drafting_prefix, few
        own = self._prefix + DRAFT_HEAD
        if builder.weights.has(own):
            name = own.removesuffix(".weight")
            head = builder.weights.linear(name, config.vocab_size, config.hidden_size)
        self.head = head  # the weight that computes logits
        own = self._prefix + DRAFT_EMBEDDING
        if builder.weights.has(own):
            embedding = TokenEmbedding(
                builder.weights, own, config.vocab_size, config.hidden_size, embedding.scale
            )
        self._embedding = embedding
        self._tokens = buffers.rows(DRAFT_TOKEN, config.hidden_size)
        self._states = buffers.rows(DRAFT_STATE, config.hidden_size)
        self._hidden = buffers.rows("h", config.hidden_size)
        self._index = np.zeros(len(step.positions), np.int32)
        self._last = np.zeros(1, np.int32)  # the row whose logits are needed
        self._one = np.ones(1, np.int64)
        self._logits = np.zeros(config.vocab_size, np.float32)
        self._plans: dict[tuple[str, bool], _Plan] = {}
        self._newest: _Newest | None = None

    def plan(self, kv_type: str, few: bool) -> _Plan:
        """The records for at most ``few`` rows, or for many; built on first use."""
        key = kv_type, few
        if key not in self._plans:
            builder, buffers = self._builder, self._buffers
            decoder, width = builder.decoder, builder.config.hidden_size
            writer = RecordWriter(builder, buffers, self._step, kv_type, self._few if few else 0)
            kind, last = decoder.architecture.norm, decoder.architecture.output_norm
            assert kind != "none"
            norm.write(writer, Norm("x", last, DRAFT_STATE, width, kind=kind), index=self._index)
            writer.layer, writer.prefix = builder.config.num_layers, self._prefix
            records.write_all(writer, decoder.drafting)
            head = len(writer.records)
            if writer.has(DRAFT_NORM):
                last = DRAFT_NORM
            else:
                writer.prefix = ""
            own = Norm("x", last, "h", width, kind=kind)
            norm.write(writer, own, rows=self._one, index=self._last)
            out = RowsView(int(self._logits.ctypes.data), self._logits.nbytes)
            linear.write_outputs(writer, "h", [(self.head, out)], rows=self._one)
            plan_records = np.zeros(len(writer.records), RECORD)
            plan_records["slots"] = writer.records
            self._plans[key] = _Plan(plan_records, head)
        return self._plans[key]

    def note(self, batch: Sequence[Rows], walk: Walk) -> None:
        """Keep the rows of the newest step whose following token is known."""
        self._newest = None
        kept, following, first = list[int](), list[int](), 0
        for rows in batch:
            if rows.following is not None:
                tokens = [int(token) for token in rows.tokens[1:]]
                tokens += [rows.following] if rows.following >= 0 else []
                kept += range(first, first + len(tokens))
                following += tokens
            first += len(rows.tokens)
        if len(batch) == 1:
            cache, count = batch[0].cache, len(batch[0].tokens)
            self._newest = _Newest(weakref.ref(cache), cache.length, count, len(following))
        if following:
            self._step.keep(np.array(kept))
            self._take(kept, following)
            walk(self.plan(batch[0].cache.kv_type, len(kept) <= self._few).layer)

    def propose(
        self, cache: KVCache, tokens: Sequence[int], most: int, wants: Callable[[float], bool],
        walk: Walk,
    ) -> list[int]:  # fmt: skip
        """At most ``most`` tokens that may follow ``tokens``, of which the last one is new.

        ``wants(probability)`` decides for each token whether verifying it is worth its cost; the
        first token that is not ends the proposal. The result is [] if the newest step belonged to
        other sequences, or if there is no room for the layer's keys and values.
        """
        newest, length = self._newest, cache.length
        if newest is None or newest.cache() is not cache or most < 1:
            return []
        first, count = newest.seen, length - newest.start
        if not first < count <= newest.count or len(tokens) != length + 1:
            return []
        if not cache.reserve(length + 1 + most, revocable=most):
            return []
        step = self._step
        self._builder.reach(length + most)
        step.set_positions(0, newest.start + first, count - first)
        step.caches[: count - first] = cache.address
        self._take(range(first, count), tokens[newest.start + first + 1 : length + 1])
        self._newest = None  # From here the residual stream belongs to the layer.
        plan = self.plan(cache.kv_type, count - first <= self._few)
        self._last[0] = count - first - 1
        walk(plan.records)
        proposed: list[int] = []
        while True:
            token, chance = most_probable(self._logits)
            if not np.isfinite(chance) or not wants(chance):
                return proposed
            proposed.append(token)
            if len(proposed) == most:
                return proposed
            step.set_positions(0, length - 1 + len(proposed), 1)
            step.caches[0] = cache.address
            step.tokens[0] = 1
            self._states[0] = self._hidden[0]
            self._embedding.put(np.array([token]), self._tokens)
            self._last[0] = 0
            walk(self.plan(cache.kv_type, True).further)

    def _take(self, rows: Sequence[int], following: Sequence[int]) -> None:
        """Make the next run of the plan use these rows of the residual stream."""
        count = len(rows)
        self._index[:count] = rows
        self._step.tokens[0] = count
        self._embedding.put(np.array(following), self._tokens)


def most_probable(logits: NDArray[np.float32]) -> tuple[int, float]:
    """Return the most probable token and its probability."""
    token = int(logits.argmax())
    with np.errstate(all="ignore"):  # NaN logits propose no token.
        return token, float(1 / np.exp(logits - logits[token]).sum())
