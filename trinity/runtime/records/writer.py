"""Writes the records of a decoder: addresses of buffers, weights, and arrays of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trinity.formats.tensor_names import complete
from trinity.models.recurrent_operations import Recurrent
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.memory import aligned
from trinity.runtime.records.record_list import RecordList, RowsView
from trinity.runtime.rounding import Rounding
from trinity.runtime.weights import Weight
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import attention
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.activations import activation_bytes
from trinity_kernels.ops.matmul.rows import matmul

if TYPE_CHECKING:
    from trinity.runtime.adapters import AdapterSet
    from trinity.runtime.plan import Buffers, PlanBuilder
    from trinity.runtime.step import Step


class RecordWriter(RecordList):
    """Appends the records of a decoder's operations, which belong to ``layer``.

    ``few``: the most rows of a step whose attention is divided among threads by blocks of
    positions; 0: it is divided by rows. ``rounding`` selects the kernels of products. ``adapters``:
    the LoRA adapters that the plan applies.
    """

    def __init__(
        self, builder: PlanBuilder, buffers: Buffers, step: Step, kv_type: str = "", few: int = 0,
        rounding: Rounding = Rounding.FASTEST, adapters: AdapterSet | None = None,
    ) -> None:  # fmt: skip
        super().__init__(builder.address, step.tokens)
        self.builder = builder
        self.adapters = adapters
        self.kv_type = kv_type
        self.config = builder.config
        self.buffers = buffers
        self.step = step
        self.few = few
        self.rounding = rounding
        self.always_tiles = rounding is Rounding.PROMPT
        self.prefix = ""
        self.layer = 0
        layers = builder.decoder.attention
        # By layer: its offset in its part of a page, and the address of the tables of those parts.
        layout, indices = builder.layout, builder.decoder.attention_layers
        starts = layout.offsets(kv_type) if kv_type else []
        self.offsets = dict(zip(indices, starts, strict=False))
        tables = step.caches, step.window_caches
        addresses = [int(tables[w].ctypes.data) for w in layout.windowed]
        self.caches = dict(zip(indices, addresses, strict=True))
        self._states = dict(zip(builder.decoder.states, layout.state_offsets(), strict=True))
        # The operation that rounds, for steps with rows of prompts.
        self.prompt_attention = builder.prompt_attention(kv_type) if self.always_tiles else None
        of_attention = self.prompt_attention or attention
        scratch = [of_attention.scratch_bytes(a.head_dim, a.width_of_values) for a in layers]
        self.scratch_stride = -(-max(scratch, default=0) // 64) * 64
        self.scratch = aligned(self.scratch_stride * builder.threads)
        # The records contain addresses of these, so they must live as long as the builder.
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
        """The address of a weight of ``length`` values times ``factor``, or of ``factor`` without a
        name.
        """
        whole = self.prefix + complete(name) if name else ""
        return int(self.builder.vector(whole, length, factor).ctypes.data)

    def transposed(self, name: str, rows: int, columns: int) -> int:
        """The address of a transposed weight."""
        return int(self.builder.transposed(self.prefix + complete(name), rows, columns).ctypes.data)

    def state(self, operation: Recurrent) -> int:
        """The offset of an operation's state in the windowed part of a page."""
        return self._states[self.layer, operation]

    def number(self, name: str) -> float:
        """The value of a weight with one value."""
        return float(self.builder.vector(self.prefix + complete(name), 1)[0])

    def kernel_for(self, weights: Sequence[Weight | ExpertWeight]) -> Kernel:
        """The kernel that multiplies weights which share an input."""
        kernel, exact = self.builder.kernel, self.rounding is Rounding.SINGLE
        serves = all(variants.serves(kernel, weight.type, exact) for weight in weights)
        return kernel if serves else matmul

    def codes(self, form: str, k: int) -> RowsView:
        """Memory for rows of ``k`` activations in a form other than "f32"."""
        return RowsView(int(self.buffers.codes.ctypes.data), activation_bytes(form, k))

    def packed(self, kernel: Kernel, weights: Sequence[Weight]) -> dict[int, int]:
        """The slots of a kernel that packs weights and activations; none for other kernels."""
        if kernel is matmul:
            return {}
        return {
            op.TILES: self.buffers.tiles.ctypes.data,
            **self.buffers.scratch_view.slots(op.SCRATCH, op.SCRATCH_STRIDE),
            op.MANY: self.always_tiles,
        }
