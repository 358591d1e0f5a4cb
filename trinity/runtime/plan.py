"""A forward step as data: an array of records that name compiled kernels and their operands.

Building it is Python, once per model and kind of step; walking it is one compiled loop that all
threads run. The step's own numbers (how many tokens, where they stand, whose caches) lie in
``Step``, so a plan is built once and serves every step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trinity.models.decoder import Decoder
from trinity.models.operations import Linear, Norm, Operation, Rotation
from trinity.runtime import records
from trinity.runtime.channel_squares import ChannelSquares
from trinity.runtime.memory import aligned
from trinity.runtime.page_layout import PageLayout
from trinity.runtime.records import linear, norm
from trinity.runtime.records.writer import Writer
from trinity.runtime.rotation import RopeTable
from trinity.runtime.weights import Weight, Weights
from trinity_kernels._jit import Kernel
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tiles import matmul_tiles

Address = Callable[[Kernel, str], int]


class Step:
    """What changes from step to step; kernels read it through addresses in their records."""

    def __init__(self, rows: int) -> None:
        self.tokens = np.zeros(1, np.int64)
        self.positions = np.zeros(rows, np.int32)
        self.caches = np.zeros(rows, np.int64)
        self.window_caches = np.zeros(rows, np.int64)
        self.wanted = 0
        self.wanted_rows = np.zeros(rows, np.int32)
        # Those of them that the head works on at once.
        self.outputs = np.zeros(1, np.int64)
        self.output_rows = np.zeros(rows, np.int32)


class Buffers:
    """Every activation of a step, allocated once: ``rows`` tokens of each, 64-byte aligned."""

    def __init__(
        self, decoder: Decoder, weights: list[Weight], rows: int, threads: int, kernel: Kernel,
    ) -> None:  # fmt: skip
        config = decoder.config
        self.stride = {name: -(-width * 4 // 64) * 64 for name, width in decoder.widths.items()}
        self._arrays = {name: aligned(rows * stride) for name, stride in self.stride.items()}
        self.x: NDArray[np.float32] = (
            self._arrays["x"].view(np.float32).reshape(rows, -1)[:, : config.hidden_size]
        )
        codes = max((activation_bytes(w.form, w.k) for w in weights if w.form != "f32"), default=64)
        self.codes = aligned(rows * codes)
        # Activations as tiles, and what a thread unpacks weights into.
        packed = [w for w in weights if variants.serves(kernel, w.type)]
        scratch = max((variants.scratch_bytes(kernel, w.type, w.k) for w in packed), default=0)
        tiles = packed if kernel is matmul_tiles else []
        self.tiles = aligned(max((tile_bytes(w.form, w.k, rows) for w in tiles), default=0))
        self.scratch_stride = -(-scratch // 64) * 64
        self.scratch = aligned(self.scratch_stride * threads)

    def address(self, name: str) -> int:
        """Where a named buffer begins."""
        return int(self._arrays[name].ctypes.data)


class PlanBuilder:
    """Turns a decoder's operations into records over one model's weights and buffers."""

    def __init__(
        self, decoder: Decoder, layout: PageLayout, weights: Weights, context_length: int,
        threads: int, interleaved: bool, address: Address,
    ) -> None:  # fmt: skip
        self.decoder = decoder
        self.layout = layout
        self.config = decoder.config
        self.weights = weights
        self.context_length = context_length
        self.threads = threads
        self.address = address
        self.interleaved = interleaved
        self.kernel = matmul
        self.squares: ChannelSquares | None = None
        self.vectors: list[NDArray[np.float32]] = []
        # The weights of products, by what is before their names, then by name and first row.
        self.bound = {"": self._bound("", decoder.prologue)}
        for index, layer in enumerate(decoder.layers):
            self.bound[f"blk.{index}."] = self._bound(f"blk.{index}.", layer)
        self.tables = {rotation: self._table(rotation) for rotation in decoder.rotations}

    def _bound(self, prefix: str, operations: list[Operation]) -> dict[tuple[str, int], Weight]:
        """The weights of some operations' products, by tensor and first row."""
        bound = {}
        for operation in operations:
            if isinstance(operation, Linear):
                for name, shape in operation.weights().items():
                    whole = self.weights.linear(prefix + name, *shape).scaled(operation.scale)
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
            factors = self.weights.frequency_factors(name, rotation.dim // 2)
        return RopeTable(rotation, self.context_length, factors)

    def reach(self, positions: int) -> None:
        """Make sure that the tables of rotations hold the first ``positions``."""
        for table in self.tables.values():
            table.reach(positions)

    def vector(self, name: str, length: int) -> int:
        """The address of a norm's weight, kept alive by the builder."""
        self.vectors.append(self.weights.vector(name, length))
        return int(self.vectors[-1].ctypes.data)

    def steps(
        self, buffers: Buffers, step: Step, kv_type: str, few: int, exact: bool = False
    ) -> list[NDArray[np.int64]]:
        """The records of all layers. ``few``: of so few tokens attention is shared out; 0: of many.

        ``exact``: whatever their number, each token gets the bits that it gets alone.
        """
        writer = Writer(self, buffers, step, kv_type, few, exact)
        for operation in self.decoder.prologue:
            records.write(writer, operation)
        for index, layer in enumerate(self.decoder.layers):
            writer.layer, writer.prefix = index, f"blk.{index}."
            for operation in layer:
                records.write(writer, operation)
        return writer.records

    def head(
        self, buffers: Buffers, step: Step, output: Weight, exact: bool = False
    ) -> list[NDArray[np.int64]]:
        """The records from the residual stream to logits, for the rows that ``step`` names.

        The last one is the product; the caller sets where its logits go.
        """
        # A head of plain numbers is exact: ternary models have the same bits in every batch.
        writer = Writer(self, buffers, step, exact=exact or output.form == "f32")
        last = Norm("x", "output_norm", "h", output.k, kind=self.decoder.architecture.norm)
        norm.write(writer, last, rows=step.outputs, index=step.output_rows)
        linear.write_products(writer, "h", [(output, 0, 4 * output.n)], rows=step.outputs)
        return writer.records
