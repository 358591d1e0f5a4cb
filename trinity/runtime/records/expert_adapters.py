"""Wraps operations of experts with those of LoRA adapters, which have matrices for each expert."""

from __future__ import annotations

from trinity.models.expert_operations import ExpertLinear, Route
from trinity.runtime.adapters import AdapterSet
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.records import experts
from trinity.runtime.records.adapters import deltas_of
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import expert_rows, mix
from trinity_kernels.ops.matmul.rows import matmul


def write_route(writer: RecordWriter, choice: Route) -> None:
    """The routing, then the adapters' scales for each expert's rows."""
    experts.write_route(writer, choice)
    adapters = writer.adapters
    if adapters is None or not adapters.has_experts:
        return
    own = experts.buffers_of(writer)
    for number, weights in enumerate(adapters.row_weights):
        # Copies each token's scale, a row of one value, to the rows of its experts.
        writer.record(mix.mix, "none", {
            mix.X: adapters.weights[number].ctypes.data, mix.X_STRIDE: 4,
            mix.OUT: weights.ctypes.data, mix.OUT_STRIDE: 4, mix.K: 1, mix.PER_TOKEN: 1,
            mix.PLACES: own.tokens.ctypes.data, mix.WEIGHTS: adapters.ones.ctypes.data,
        }, rows=own.rows)  # fmt: skip


def write_linear(writer: RecordWriter, linear: ExpertLinear) -> None:
    """A linear of experts, with the products of adapters after its own."""
    deltas, adapters, buffers = deltas_of(writer, linear), writer.adapters, writer.buffers
    if adapters is None or not deltas:
        experts.write_linear(writer, linear)
        return
    buffers_of_experts = experts.buffers_of(writer)
    x = buffers.view(linear.x)
    if linear.spread:
        spread = RowsView(int(adapters.spread.ctypes.data), adapters.spread_stride)
        writer.record(expert_rows.spread, "none", {
            **experts.rows_of(buffers_of_experts, linear.per_token),
            **x.slots(expert_rows.X, expert_rows.X_STRIDE),
            **spread.slots(expert_rows.OUT, expert_rows.OUT_STRIDE),
            expert_rows.NBYTES: 4 * linear.width,
        }, barrier=False)  # fmt: skip
        x = spread
    experts.write_linear(writer, linear)
    for delta in deltas:
        (inner,) = delta.inner
        assert isinstance(inner, ExpertWeight)
        out = _at(adapters, delta.column)
        experts.write_product(writer, inner, matmul, x, out, barrier=delta is deltas[-1])
    for delta in deltas:
        values = _at(adapters, delta.column)
        writer.record(mix.mix, "none", {
            **values.slots(mix.X, mix.X_STRIDE),
            **values.slots(mix.OUT, mix.OUT_STRIDE),
            mix.K: delta.width, mix.PER_TOKEN: 1, mix.PLACES: adapters.places.ctypes.data,
            mix.WEIGHTS: adapters.row_weights[delta.adapter].ctypes.data,
        }, barrier=delta is deltas[-1], rows=buffers_of_experts.rows)  # fmt: skip
    last = deltas[-1].outer[-1]
    for delta in deltas:
        for outer in delta.outer:
            assert isinstance(outer.weight, ExpertWeight)
            name = linear.products[outer.product].out
            out = buffers.view(name)
            experts.write_product(
                writer, outer.weight, matmul, _at(adapters, outer.column), out, add=True,
                barrier=outer is last,
            )  # fmt: skip


def _at(adapters: AdapterSet, column: int) -> RowsView:
    return RowsView(int(adapters.expert_buffer.ctypes.data) + 4 * column, adapters.expert_stride)
