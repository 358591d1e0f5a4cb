"""A forward step as data: an array of records with the addresses of kernels and their operands.

Python writes the records, once per model and kind of step. One compiled loop, which all threads
run, executes them. The numbers of a single step (token count, positions, KV caches) are in
``step.Step``, so a plan is built once and serves every step of its kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.models.decoder import Decoder
from trinity.models.expert_operations import ExpertLinear
from trinity.models.operations import Hadamard, HeadLinear, Linear, Norm, Operation, Rotation
from trinity.models.rotated_inputs import factors_of
from trinity.runtime import records
from trinity.runtime.expert_buffers import ExpertBuffers
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.image_positions import axes_of_pairs
from trinity.runtime.memory import aligned, row_bytes
from trinity.runtime.pages.page_layout import PageLayout
from trinity.runtime.records import elementwise, hadamard, linear, norm
from trinity.runtime.records.record_list import Address, RowsView
from trinity.runtime.records.writer import RecordWriter
from trinity.runtime.rotation import RopeTable, TemperatureTable
from trinity.runtime.rounding import Rounding
from trinity.runtime.step import Step
from trinity.runtime.weights import Weight, Weights
from trinity_kernels._jit import Kernel
from trinity_kernels.ops.matmul import operands, variants
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tiles import matmul_tiles

if TYPE_CHECKING:
    from trinity.runtime.adapters import AdapterSet
    from trinity.runtime.channel_squares import ChannelSquares


class Buffers:
    """The activations of a step, allocated once: ``rows`` rows of each buffer, 64-byte aligned."""

    def __init__(
        self, decoder: Decoder, weights: list[Weight], experts: list[ExpertWeight], rows: int,
        threads: int, kernel: Kernel,
    ) -> None:  # fmt: skip
        self._stride = {name: row_bytes(width) for name, width in decoder.widths.items()}
        self._arrays = {name: aligned(rows * stride) for name, stride in self._stride.items()}
        for name, width in decoder.expert_widths.items():
            self._stride[name] = row_bytes(width)
            count = rows * max(choice.per_token for choice in decoder.routes)
            self._arrays[name] = aligned(count * self._stride[name])
        self.experts = ExpertBuffers(decoder, experts, rows, threads, kernel) if experts else None
        # The matrices of one tensor (one per head) need their converted inputs at the same time.
        sizes = [(w.matrices, w.form, w.k) for w in weights]
        sizes += [(1, w.form, w.k) for w in experts]
        codes = (n * activation_bytes(form, k) for n, form, k in sizes if form != "f32")
        self.codes = aligned(rows * max(codes, default=64))
        # Activations as tiles, and memory in which each thread unpacks weights.
        packed = [w for w in weights if variants.serves(kernel, w.type)]
        unpacked = [(w.type, w.k) for w in packed]
        unpacked += [(w.type, w.k) for w in experts if variants.serves(kernel, w.type)]
        scratch = max(
            (variants.scratch_bytes(kernel, *type_and_width) for type_and_width in unpacked),
            default=0,
        )
        tiles = packed if kernel is matmul_tiles else []
        self.tiles = aligned(
            max((w.matrices * tile_bytes(w.form, w.k, rows) for w in tiles), default=0)
        )
        stride = -(-scratch // 64) * 64
        self._scratch = aligned(stride * threads)
        self.scratch_view = RowsView(int(self._scratch.ctypes.data), stride)  # a row per thread

    def view(self, name: str) -> RowsView:
        """The rows of a named buffer."""
        return RowsView(int(self._arrays[name].ctypes.data), self._stride[name])

    def rows(self, name: str, width: int) -> NDArray[np.float32]:
        """The first ``width`` values of every row of a named buffer, (rows, width)."""
        array = self._arrays[name].view(np.float32)
        return array.reshape(-1, self._stride[name] // 4)[:, :width]


@dataclass(eq=False, repr=False)
class PlanBuilder:
    """Writes a decoder's operations as records, with one model's weights and buffers."""

    decoder: Decoder
    weights: Weights
    context_length: int
    threads: int
    interleaved: bool
    address: Address

    def __post_init__(self) -> None:
        decoder = self.decoder
        self.config = decoder.config
        self.kernel = matmul
        # Whether a kernel of prompts' attention works for types; None if it may not round.
        self.works: Callable[[Kernel, Iterable[str]], bool] | None = None
        self.layout = PageLayout(
            decoder.attention, self.context_length, self.context_length,
            [operation.state_width for _, operation in decoder.states],
        )  # fmt: skip
        self.reached = 0.0  # positions that all tables contain
        self.squares: ChannelSquares | None = None
        self.kept: list[NDArray[np.uint8]] = []  # memory whose addresses are in records
        self._vectors: dict[tuple[str, int, float], NDArray[np.float32]] = {}
        self._read_apart = decoder.tensors().keys()
        # The weights of products by layer prefix, then by name and first row.
        self.bound = {"": self._bound("", [*decoder.prologue, *decoder.epilogue])}
        self.experts: dict[str, dict[tuple[str, int], ExpertWeight]] = {}
        for index, layer in enumerate(decoder.layers):
            self.bound[f"blk.{index}."] = self._bound(f"blk.{index}.", layer)
            self.experts[f"blk.{index}."] = self._bound_experts(f"blk.{index}.", layer)
        prefix = decoder.drafting_prefix
        self.bound[prefix] = self._bound(prefix, decoder.drafting)
        self.experts[prefix] = self._bound_experts(prefix, decoder.drafting)
        # The axis by which each pair of a head rotates, where images have positions in three.
        order, sections = decoder.architecture.axes, self.config.rope_sections
        self.axes = np.zeros(0, np.int64)
        if order and sections:
            self.axes = axes_of_pairs(sections, order)
        self.rotations = {rotation: self._table(rotation) for rotation in decoder.rotations}
        self.temperatures = {
            temperature: TemperatureTable(temperature, self.context_length)
            for temperature in decoder.temperatures
        }

    def _bound(self, prefix: str, operations: list[Operation]) -> dict[tuple[str, int], Weight]:
        """The weights of the operations' products, by tensor and first row."""
        bound = {}
        for operation in operations:
            if isinstance(operation, Linear):
                for name, (rows, width) in operation.weights().items():
                    whole = self.weights.linear(
                        prefix + name, rows, width, self._read_apart,
                        scales_bias=operation.scales_bias,
                    )  # fmt: skip
                    whole = whole.scaled(operation.scale)
                    for product in operation.products:
                        if product.weight == name:
                            part = whole.part(product.first, product.rows)
                            bound[name, product.first] = part
            if isinstance(operation, HeadLinear):
                for name, (heads, rows, width) in operation.weights().items():
                    parts = self.weights.heads(prefix + name, heads, rows, width)
                    bound.update({(name, head): part for head, part in enumerate(parts)})
        return bound

    def _bound_experts(
        self, prefix: str, operations: list[Operation]
    ) -> dict[tuple[str, int], ExpertWeight]:
        """As ``_bound``, for weights of experts."""
        bound = {}
        for operation in operations:
            if isinstance(operation, ExpertLinear):
                for name, shape in operation.weights().items():
                    whole = self.weights.experts(prefix + name, *shape)
                    for product in operation.products:
                        if product.weight == name:
                            part = whole.part(product.first, product.rows)
                            bound[name, product.first] = part
        return bound

    def _table(self, rotation: Rotation) -> RopeTable:
        factors, name = None, rotation.factors
        original = rotation.scaling.original_context_length
        if rotation.long_factors and self.context_length > original:
            name = rotation.long_factors
        if name and self.weights.has(name):
            count = rotation.dim // 2
            factors = self.weights.frequency_factors(name, rotation.stored_factors or count)[:count]
        return RopeTable(
            rotation, self.context_length, factors, self.context_length if len(self.axes) else 0
        )

    def reach(self, positions: int) -> None:
        """Make the tables that depend on positions contain the first ``positions``."""
        if positions > self.reached:
            reached = [table.reach(positions) for table in self.rotations.values()]
            reached += [table.reach(positions) for table in self.temperatures.values()]
            self.reached = min(reached, default=math.inf)

    def mix(self, places: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
        """Set the spare rows of the rotary tables to the places of images."""
        for rows, positions in places:
            chosen = positions[:, self.axes]
            for table in self.rotations.values():
                table.mix(rows, chosen)

    def vector(self, name: str, length: int, factor: float = 1.0) -> NDArray[np.float32]:
        """A weight's values times ``factor``, or ``factor`` without a name; kept alive here."""
        key = name, length, factor
        if key not in self._vectors:
            values = self.weights.vector(name, length) if name else np.ones(length, np.float32)
            with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
                self._vectors[key] = values * np.float32(factor)
        return self._vectors[key]

    def transposed(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        """A weight with ``rows`` rows, transposed; kept alive here."""
        key = name, -rows, 1.0
        if key not in self._vectors:
            values = self.weights.vector(name, rows * columns)
            self._vectors[key] = np.ascontiguousarray(values.reshape(rows, columns).T)
        return self._vectors[key]

    def rotation(self, width: int) -> NDArray[np.float32]:
        """The factors of a Hadamard transform of rows of ``width``; kept alive here."""
        key = "rotation of the weights", width, 1.0
        if key not in self._vectors:
            assert self.config.rotation is not None, width
            self._vectors[key] = factors_of(self.config.rotation, width)
        return self._vectors[key]

    def prompt_attention(self, kv_type: str) -> ModuleType | None:
        """The operation that rounds the attention of prompts; None if attention does not round."""
        if self.works is None:
            return None
        # Imported here because most models and machines do not need it.
        from trinity_kernels.ops import prompt_attention

        works = kv_type in prompt_attention.TYPES and self.works(
            prompt_attention.prompt_attention, [kv_type]
        )
        return prompt_attention if works else None

    def steps(
        self, buffers: Buffers, step: Step, kv_type: str, few: int, rounding: Rounding,
        adapters: AdapterSet | None = None,
    ) -> tuple[list[NDArray[np.int64]], list[int]]:  # fmt: skip
        """The records of all layers, and the number of records up to each layer's end.

        ``few``: the most rows of a step whose attention is divided among threads by blocks of
        positions; 0: it is divided by rows. ``adapters``: the LoRA adapters to apply.
        """
        writer = RecordWriter(self, buffers, step, kv_type, few, rounding, adapters)
        if adapters is not None:
            from trinity.runtime.records.adapters import write_embeddings

            write_embeddings(writer)
        records.write_all(writer, self.decoder.prologue)
        ends = []
        for index, layer in enumerate(self.decoder.layers):
            writer.layer, writer.prefix = index, f"blk.{index}."
            records.write_all(writer, layer)
            ends.append(len(writer.records))
        writer.prefix = ""
        records.write_all(writer, self.decoder.epilogue)
        return writer.records, ends

    def head(
        self, buffers: Buffers, step: Step, output: Weight, rounding: Rounding,
        adapters: AdapterSet | None = None,
    ) -> tuple[list[NDArray[np.int64]], list[tuple[int, int]]]:  # fmt: skip
        """The records from the residual stream to logits, for the rows that ``step`` names.

        Also returns the (record, slot) pairs that must contain the address of the logits.
        """
        # The last row of a prompt is always a single row. An unquantized head gives the bits of a
        # single row, so ternary models have the same bits in every batch.
        single = rounding is Rounding.SINGLE or output.form == "f32"
        rounding = Rounding.SINGLE if single else Rounding.FASTEST
        writer = RecordWriter(self, buffers, step, rounding=rounding, adapters=adapters)
        self._write_output_norm(writer, step)
        if self.decoder.rotates_head:
            transform = Hadamard("h", "h", self.config.hidden_size)
            hadamard.write(writer, transform, rows=step.outputs)
        logits = RowsView(0, 4 * output.n)
        deltas = adapters.head if adapters else []
        if deltas:
            from trinity.runtime.records.adapters import write_inner

            write_inner(writer, deltas, [buffers.view("h")], head=True)
        linear.write_outputs(writer, "h", [(output, logits)], rows=step.outputs)
        logits_slots = [(len(writer.records) - 1, operands.OUT)]
        if deltas:
            from trinity.runtime.records.adapters import write_outer

            added = write_outer(writer, deltas, [logits], head=True)
            logits_slots += [(record, operands.OUT) for record in added]
        cap = self.decoder.architecture.logit_softcap(self.config)
        if cap:
            slot = elementwise.write_softcap(writer, logits, output.n, cap, rows=step.outputs)
            logits_slots.append((len(writer.records) - 1, slot))
        return writer.records, logits_slots

    def states(self, buffers: Buffers, step: Step) -> list[NDArray[np.int64]]:
        """The record that writes hidden states after the output norm into "h".

        It writes the rows that ``step`` names, packed.
        """
        writer = RecordWriter(self, buffers, step)
        self._write_output_norm(writer, step)
        return writer.records

    def _write_output_norm(self, writer: RecordWriter, step: Step) -> None:
        architecture = self.decoder.architecture
        name, width, kind = architecture.output_norm, self.config.hidden_size, architecture.norm
        if kind != "none":
            last = Norm("x", name, "h", width, kind=kind)
            norm.write(writer, last, rows=step.outputs, index=step.output_rows)
