"""The plans of an engine's steps; each is built on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.plan import Buffers, PlanBuilder
from trinity.runtime.rounding import Rounding
from trinity.runtime.step import Step
from trinity.runtime.weights import Weight
from trinity_kernels.record import RECORD

if TYPE_CHECKING:
    from trinity.runtime.adapters import AdapterSet

# The KV element type; whether the step has few rows; its kernels; whether a row uses an adapter.
PlanKey = tuple[str, bool, Rounding, bool]


class StepPlan(NamedTuple):
    """The records of one kind of step."""

    records: NDArray[np.void]  # those of the layers, then those of the head
    head: int  # the index of the head's first record
    logits: list[tuple[int, int]]  # records and slots that contain the address of the logits
    ends: list[int]  # the number of records up to each layer's end

    def after(self, layers: int) -> StepPlan:
        """The plan without its first layers."""
        end = self.ends[layers - 1]
        logits = [(record - end, slot) for record, slot in self.logits]
        ends = [other - end for other in self.ends[layers:]]
        return StepPlan(self.records[end:], self.head - end, logits, ends)


class StepPlans(dict[PlanKey, StepPlan]):
    """The plan of each kind of step; looking up a new kind builds its plan.

    ``heads``: the weights that compute logits, at most one. ``few``: the most rows of a step whose
    attention is divided among threads by blocks of positions.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        buffers: Buffers,
        step: Step,
        heads: Sequence[Weight],
        adapters: AdapterSet | None,
        few: int,
    ) -> None:
        super().__init__()
        self._builder, self._buffers, self._step = builder, buffers, step
        self._heads, self._adapters, self._few = heads, adapters, few

    def __missing__(self, key: PlanKey) -> StepPlan:
        kv_type, few, rounding, adapted = key
        builder, buffers, step = self._builder, self._buffers, self._step
        adapters = self._adapters if adapted else None
        rows = self._few if few else 0
        layers, ends = builder.steps(buffers, step, kv_type, rows, rounding, adapters)
        head, logits = list[NDArray[np.int64]](), list[tuple[int, int]]()
        for weight in self._heads:
            head, logits = builder.head(buffers, step, weight, rounding, adapters)
        records = np.zeros(len(layers) + len(head), RECORD)
        records["slots"] = layers + head
        logits = [(len(layers) + record, slot) for record, slot in logits]
        plan = self[key] = StepPlan(records, len(layers), logits, ends)
        return plan
