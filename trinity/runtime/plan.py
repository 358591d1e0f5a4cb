"""A forward step as data: an array of records that name compiled kernels and their operands.

Building it is Python, once per model and kind of step; walking it is one compiled loop that all
threads run. The step's own numbers (how many tokens, where they stand, whose caches) lie in
``Step``, so a plan is built once and serves every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.models.decoder import Decoder
from trinity.models.operations import Attention, Gated, Linear, Norm, Operation, Rope, Rotation
from trinity.runtime.channel_squares import ChannelSquares
from trinity.runtime.pages import layer_offsets
from trinity.runtime.rotation import RopeTable
from trinity.runtime.weights import Weight, Weights
from trinity_kernels import record as slots
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import (
    activation,
    attention,
    rmsnorm,
    rope,
    squares,
)
from trinity_kernels.ops.matmul import activation_tiles, operands, quantize, variants
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles

Address = Callable[[Kernel, str], int]


class Step:
    """What changes from step to step; kernels read it through addresses in their records."""

    def __init__(self, rows: int) -> None:
        self.tokens = np.zeros(1, np.int64)
        self.positions = np.zeros(rows, np.int32)
        self.caches = np.zeros(rows, np.int64)
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
        self._arrays = {name: _aligned(rows * stride) for name, stride in self.stride.items()}
        self.x: NDArray[np.float32] = (
            self._arrays["x"].view(np.float32).reshape(rows, -1)[:, : config.hidden_size]
        )
        codes = max((activation_bytes(w.form, w.k) for w in weights if w.form != "f32"), default=64)
        self.codes = _aligned(rows * codes)
        # Activations as tiles, and what a thread unpacks weights into.
        packed = [w for w in weights if variants.serves(kernel, w.type)]
        scratch = max((variants.scratch_bytes(kernel, w.type, w.k) for w in packed), default=0)
        tiles = packed if kernel is matmul_tiles else []
        self.tiles = _aligned(max((tile_bytes(w.form, w.k, rows) for w in tiles), default=0))
        self.scratch_stride = -(-scratch // 64) * 64
        self.scratch = _aligned(self.scratch_stride * threads)

    def address(self, name: str) -> int:
        """Where a named buffer begins."""
        return int(self._arrays[name].ctypes.data)


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class PlanBuilder:
    """Turns a decoder's operations into records over one model's weights and buffers."""

    def __init__(
        self, decoder: Decoder, weights: Weights, context_length: int, threads: int,
        interleaved: bool, address: Address,
    ) -> None:  # fmt: skip
        self.decoder = decoder
        self.config = decoder.config
        self.weights = weights
        self.context_length = context_length
        self.threads = threads
        self.address = address
        self.interleaved = interleaved
        self.kernel = matmul
        self.squares: ChannelSquares | None = None
        self.vectors: list[NDArray[np.float32]] = []
        self.layers = [
            self._bound(f"blk.{index}.", layer) for index, layer in enumerate(decoder.layers)
        ]
        self.tables = {rotation: self._table(rotation) for rotation in decoder.rotations}

    def _bound(self, prefix: str, layer: list[Operation]) -> dict[tuple[str, int], Weight]:
        """The weights of a layer's products, by tensor and first row."""
        bound = {}
        for operation in layer:
            if isinstance(operation, Linear):
                for name, shape in operation.weights().items():
                    whole = self.weights.linear(prefix + name, *shape)
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
        writer = _Writer(self, buffers, step, kv_type, few, exact)
        for index, layer in enumerate(self.decoder.layers):
            writer.layer = index
            for operation in layer:
                writer.write(operation)
        return writer.records

    def head(
        self, buffers: Buffers, step: Step, output: Weight, exact: bool = False
    ) -> list[NDArray[np.int64]]:
        """The records from the residual stream to logits, for the rows that ``step`` names.

        The last one is the product; the caller sets where its logits go.
        """
        # A head of plain numbers is exact: ternary models have the same bits in every batch.
        writer = _Writer(self, buffers, step, exact=exact or output.form == "f32")
        writer.norm("x", self.vector("output_norm.weight", output.k), "h", output.k,
                    rows=step.outputs, index=step.output_rows)  # fmt: skip
        writer.linear("h", [(output, 0, 4 * output.n)], False, rows=step.outputs)
        return writer.records


class _Writer:
    """Appends records; each method writes one operation."""

    def __init__(
        self, builder: PlanBuilder, buffers: Buffers, step: Step, kv_type: str = "", few: int = 0,
        exact: bool = False,
    ) -> None:  # fmt: skip
        self.builder = builder
        self.kv_type = kv_type
        self.config = builder.config
        self.buffers = buffers
        self.step = step
        self.few = few
        self.exact = exact
        self.layer = 0
        self.records: list[NDArray[np.int64]] = []
        layers = builder.decoder.attention
        self.offsets = layer_offsets(layers, kv_type) if kv_type else []
        self.scratch_stride = max(
            -(-attention.scratch_bytes(a.head_dim, a.num_heads // a.num_kv_heads) // 64) * 64
            for a in layers
        )
        self.scratch = _aligned(self.scratch_stride * builder.threads)
        # The records hold addresses into these: they live as long as the builder.
        builder.vectors.append(self.scratch.view(np.float32))
        if kv_type and few:
            self.max_blocks = -(-builder.context_length // attention.BLOCK)
            part = max(a.num_heads * attention.part_bytes(a.head_dim) for a in layers)
            self.parts = _aligned(len(step.positions) * self.max_blocks * part)
            builder.vectors.append(self.parts.view(np.float32))

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

    def write(self, operation: Operation) -> None:
        """One operation of the current layer."""
        prefix = f"blk.{self.layer}."
        match operation:
            case Norm(x, name, out, width, groups, add):
                weight = self.builder.vector(f"{prefix}{name}.weight", width)
                self.norm(x, weight, out, width, groups=groups, add=add)
            case Linear(x, _, products, add):
                bound = self.builder.layers[self.layer]
                outputs = [
                    (
                        bound[product.weight, product.first], self.buffers.address(product.out),
                        self.buffers.stride[product.out],
                    )
                    for product in products
                ]  # fmt: skip
                self.linear(x, outputs, add)
            case Rope():
                self.rope(operation)
            case Attention():
                self.attention(operation)
            case Gated(activation_name, width):
                self.gated(activation_name, width)
            case _:
                raise TypeError(f"the plan has no record for the operation {operation!r}")

    def norm(
        self, x: str, weight: int, out: str, k: int, *, groups: int = 1, add: bool = False,
        rows: NDArray[np.int64] | None = None, index: NDArray[np.int32] | None = None,
    ) -> None:  # fmt: skip
        """RMSNorm; the thread that has a token also quantizes it next, so nobody waits here."""
        op, buffers = rmsnorm, self.buffers
        self.record(op.rmsnorm, "none", {
            op.X: buffers.address(x), op.X_STRIDE: buffers.stride[x], op.WEIGHT: weight,
            op.OUT: buffers.address(out), op.OUT_STRIDE: buffers.stride[out], op.K: k,
            op.EPS: slots.float_bits(self.config.rms_norm_eps), op.GROUPS: groups,
            op.INDEX: 0 if index is None else index.ctypes.data, op.ADD: add,
        }, rows=rows)  # fmt: skip

    def linear(
        self, x: str, outputs: list[tuple[Weight, int, int]], add: bool,
        rows: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        """Weights that share an input: it is brought to each form once, then all multiply."""
        op = operands
        self.squares(x, [weight for weight, _, _ in outputs], rows)
        for form in sorted({weight.form for weight, _, _ in outputs}):
            group = [output for output in outputs if output[0].form == form]
            k = group[0][0].k
            source = self.buffers.address(x), self.buffers.stride[x]
            operand = source
            kernel = self.builder.kernel
            if not all(variants.serves(kernel, w.type, self.exact) for w, _, _ in group):
                kernel = matmul
            tiled = kernel is matmul_tiles
            # Rows that fill no tile go by dot products, which need the codes; so do the int8 tiles
            # of few tokens.
            limit = operands.TILE_ROWS + 1
            if not tiled or any(w.n % 16 for w, _, _ in group):
                limit = 0
            if form != "f32":
                operand = int(self.buffers.codes.ctypes.data), activation_bytes(form, k)
                quantizer = quantize.quantize_ternary if form == "ternary" else quantize.quantize_q8
                self.record(quantizer, "none", {
                    quantize.X: source[0], quantize.X_STRIDE: source[1], quantize.K: k,
                    quantize.OUT: operand[0], quantize.OUT_STRIDE: operand[1],
                    quantize.FEWER_THAN: limit,
                }, rows=rows)  # fmt: skip
            if tiled:
                first = operand if form == "ternary" else source
                self.record(activation_tiles.tiles_of(form), "none", {
                    op.X: first[0], op.X_STRIDE: first[1], op.K: k,
                    op.CODES: operand[0], op.CODES_STRIDE: operand[1], **self._packed(),
                    op.FLOATS: any(w.type not in int8_tile_types() for w, _, _ in group),
                }, rows=rows)  # fmt: skip
            for weight, out, out_stride in group:
                values = {
                    op.X: operand[0], op.X_STRIDE: operand[1],
                    op.W: weight.data.ctypes.data, op.W_STRIDE: weight.stride,
                    op.N: weight.n, op.K: k, op.OUT: out, op.OUT_STRIDE: out_stride, op.ADD: add,
                    op.SCALE: slots.float_bits(weight.scale),
                    op.BIAS: 0 if weight.bias is None else weight.bias.ctypes.data,
                }  # fmt: skip
                if kernel is not matmul:
                    values |= self._packed()
                self.record(kernel, weight.type, values, barrier=weight is group[-1][0], rows=rows)

    def squares(self, x: str, weights: list[Weight], rows: NDArray[np.int64] | None) -> None:
        """Gathering, where it was asked for; the next records only read x, so nobody waits."""
        gathered = self.builder.squares
        sums = None if gathered is None else gathered.buffer(weights)
        if sums is not None:
            op, buffers = squares, self.buffers
            self.record(op.add_squares, "none", {
                op.X: buffers.address(x), op.X_STRIDE: buffers.stride[x],
                op.SUMS: sums.ctypes.data, op.K: weights[0].k,
            }, barrier=False, rows=rows)  # fmt: skip

    def _packed(self) -> dict[int, int]:
        """What kernels that pack weights and activations need."""
        op, buffers = operands, self.buffers
        return {
            op.TILES: buffers.tiles.ctypes.data, op.SCRATCH: buffers.scratch.ctypes.data,
            op.SCRATCH_STRIDE: buffers.scratch_stride,
        }  # fmt: skip

    def rope(self, operation: Rope) -> None:
        """Rotation, and storing into the cache."""
        op, buffers, rotation = rope, self.buffers, operation.rotation
        table = 0
        if rotation is not None:
            table = int(self.builder.tables[rotation].values.ctypes.data)
        self.record(op.rope_store, self.kv_type, {
            op.Q: buffers.address("q"), op.Q_STRIDE: buffers.stride["q"],
            op.KEY: buffers.address("k"), op.VALUE: buffers.address("v"),
            op.KV_STRIDE: buffers.stride["k"], op.TABLE: table,
            op.ROPE_DIM: rotation.dim if rotation else 0, op.INTERLEAVED: self.builder.interleaved,
            op.POSITIONS: self.step.positions.ctypes.data,
            op.CACHES: self.step.caches.ctypes.data, **self._cache(op, operation),
        })  # fmt: skip

    def _cache(self, op: Any, operation: Rope | Attention) -> dict[int, int]:
        return {
            op.LAYER_OFFSET: self.offsets[self.layer], op.HEAD_DIM: operation.head_dim,
            op.HEADS: operation.num_heads, op.KV_HEADS: operation.num_kv_heads,
        }  # fmt: skip

    def attention(self, operation: Attention) -> None:
        """Attention: shared out by blocks for few tokens, by tokens for many."""
        op, buffers = attention, self.buffers
        sinks = 0
        if operation.sinks:
            name = f"blk.{self.layer}.{operation.sinks}.weight"
            sinks = self.builder.vector(name, operation.num_heads)
        values = {
            op.Q: buffers.address("q"), op.Q_STRIDE: buffers.stride["q"],
            op.POSITIONS: self.step.positions.ctypes.data,
            op.CACHES: self.step.caches.ctypes.data, **self._cache(op, operation),
            op.OUT: buffers.address("a"), op.OUT_STRIDE: buffers.stride["a"],
            op.SCALE: slots.float_bits(float(np.float32(operation.scale))),
            op.SCRATCH: self.scratch.ctypes.data, op.SCRATCH_STRIDE: self.scratch_stride,
            op.WINDOW: operation.window, op.SOFTCAP: slots.float_bits(operation.softcap),
            op.SINKS: sinks,
        }  # fmt: skip
        if self.few:
            values[op.PARTS] = self.parts.ctypes.data
            self.record(op.attention_parts, self.kv_type, values)
            self.record(op.attention_merge, "none", values)
        else:
            self.record(op.attention, self.kv_type, values)

    def gated(self, name: str, width: int) -> None:
        """The feed-forward's activation."""
        op, buffers = activation, self.buffers
        self.record(op.gated, name, {
            op.GATE: buffers.address("gate"), op.UP: buffers.address("up"),
            op.OUT: buffers.address("gate"), op.STRIDE: buffers.stride["gate"],
            op.K: width,
        })  # fmt: skip
