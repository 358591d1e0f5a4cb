"""What every record is written with: addresses of buffers, weights, the step's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.formats.tensor_names import complete
from trinity.models.operations import Recurrent
from trinity.runtime.memory import aligned
from trinity.runtime.rounding import Rounding
from trinity_kernels import record as slots
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import attention

if TYPE_CHECKING:
    from trinity.runtime.adapters import AdapterSet
    from trinity.runtime.plan import Buffers, PlanBuilder
    from trinity.runtime.step import Step


class RecordWriter:
    """Appends records to ``records``, those of ``layer``.

    ``few``: of so few tokens attention is shared out; 0: of many. ``rounding``: which kernels
    multiply. ``adapters``: those that a plan applies.
    """

    def __init__(
        self, builder: PlanBuilder, buffers: Buffers, step: Step, kv_type: str = "", few: int = 0,
        rounding: Rounding = Rounding.FASTEST, adapters: AdapterSet | None = None,
    ) -> None:  # fmt: skip
        self.builder = builder
        self.adapters = adapters
        self.kv_type = kv_type
        self.config = builder.config
        self.buffers = buffers
        self.step = step
        self.few = few
        self.rounding = rounding
        self.prefix = ""
        self.layer = 0
        self.records: list[NDArray[np.int64]] = []
        layers = builder.decoder.attention
        # By layer: where it begins in its part of a page, the tables of those parts.
        layout, indices = builder.layout, builder.decoder.attention_layers
        starts = layout.offsets(kv_type) if kv_type else []
        self.offsets = dict(zip(indices, starts, strict=False))
        tables = step.caches, step.window_caches
        addresses = [int(tables[w].ctypes.data) for w in layout.windowed]
        self.caches = dict(zip(indices, addresses, strict=True))
        self._states = dict(zip(builder.decoder.states, layout.state_offsets(), strict=True))
        self.scratch_stride = max(
            (-(-attention.scratch_bytes(a.width_of_values) // 64) * 64 for a in layers), default=0
        )
        self.scratch = aligned(self.scratch_stride * builder.threads)
        # The records hold addresses into these: they live as long as the builder.
        builder.kept.append(self.scratch)
        if kv_type and few and layers:
            blocks = -(-builder.context_length // attention.BLOCK)
            part = max(a.num_heads * attention.part_bytes(a.width_of_values) for a in layers)
            self.parts = aligned(few * blocks * part)
            builder.kept.append(self.parts)

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of the layer with that complete name."""
        return self.builder.weights.has(self.prefix + name)

    def vector(self, name: str, length: int, factor: float = 1.0) -> int:
        """The address of a weight of ``length`` values times ``factor``; without a name, of it."""
        whole = self.prefix + complete(name) if name else ""
        return int(self.builder.vector(whole, length, factor).ctypes.data)

    def turned(self, name: str, rows: int, columns: int) -> int:
        """The address of a weight's columns, one behind the other."""
        return int(self.builder.turned(self.prefix + complete(name), rows, columns).ctypes.data)

    def state(self, operation: Recurrent) -> int:
        """Where the state of an operation of the layer begins in the windowed part of a page."""
        return self._states[self.layer, operation]

    def number(self, name: str) -> float:
        """A weight of one value."""
        return float(self.builder.vector(self.prefix + complete(name), 1)[0])

    def record(
        self, kernel: Kernel, tag: str, values: dict[int, int], *, barrier: bool = True,
        rows: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        """Append one record."""
        row = np.zeros(slots.SLOTS, np.int64)
        row[slots.KERNEL] = self.builder.address(kernel, tag)
        row[slots.BARRIER] = barrier
        row[slots.ROWS] = (self.step.tokens if rows is None else rows).ctypes.data
        for slot, value in values.items():
            row[slot] = value
        self.records.append(row)
