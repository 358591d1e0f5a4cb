"""The plans of an engine's steps, each built when it is first wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.adapters import AdapterSet
from trinity.runtime.plan import Buffers, PlanBuilder, Step
from trinity.runtime.rounding import Rounding
from trinity.runtime.weights import Weight
from trinity_kernels.record import RECORD


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Records of the layers, then ``head`` on those from the residual stream to logits.

    ``logits``: the records and slots that hold the address of the logits.
    """

    records: NDArray[np.void]
    head: int
    logits: list[tuple[int, int]]


class StepPlans:
    """Plans over one model's buffers, with ``heads`` that make logits, of which there may be none.

    ``rows``: the most rows of a step whose attention is shared out by blocks.
    """

    def __init__(
        self, builder: PlanBuilder, buffers: Buffers, step: Step, heads: Sequence[Weight],
        adapters: AdapterSet | None, rows: int,
    ) -> None:  # fmt: skip
        self._builder, self._buffers, self._step = builder, buffers, step
        self._heads, self._adapters, self._rows = heads, adapters, rows
        self._plans: dict[tuple[str, bool, Rounding, bool], StepPlan] = {}

    def get(self, kv_type: str, few: bool, rounding: Rounding, adapted: bool) -> StepPlan:
        """The plan of a step. ``few``: of at most ``rows``. ``adapted``: a row uses an adapter."""
        key = kv_type, few, rounding, adapted
        if key not in self._plans:
            builder, buffers, step = self._builder, self._buffers, self._step
            adapters = self._adapters if adapted else None
            rows = self._rows if few else 0
            layers = builder.steps(buffers, step, kv_type, rows, rounding, adapters)
            head, logits = list[NDArray[np.int64]](), list[tuple[int, int]]()
            for weight in self._heads:
                head, logits = builder.head(buffers, step, weight, rounding, adapters)
            records = np.zeros(len(layers) + len(head), RECORD)
            records["slots"] = layers + head
            logits = [(len(layers) + record, slot) for record, slot in logits]
            self._plans[key] = StepPlan(records, len(layers), logits)
        return self._plans[key]

    def clear(self) -> None:
        """Build all plans anew."""
        self._plans.clear()
