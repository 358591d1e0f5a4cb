"""Wraps products with those of LoRA adapters, for rows whose adapter scale is not 0.

The first matrix maps an operation's input to a few values per row, which are multiplied by the
row's scale. The product with the second matrix is added to the operation's result. All matrices are
unquantized, so a row's sums depend on that row alone and do not change with other rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.models.expert_operations import ExpertLinear
from trinity.models.operations import HeadLinear, Linear
from trinity.runtime.adapters import AdapterSet, LoraDelta
from trinity.runtime.records import head_linear, linear, products
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.writer import RecordWriter
from trinity.runtime.weights import Weight
from trinity_kernels.ops import mix


def write_linear(writer: RecordWriter, operation: Linear) -> None:
    """A linear, with the products of adapters before and after its own.

    No thread waits after the first matrices: the linear's own products only read that input, too.
    """
    deltas, buffers = deltas_of(writer, operation), writer.buffers
    write_inner(writer, deltas, [buffers.view(operation.x)])
    linear.write(writer, operation)
    write_outer(writer, deltas, [buffers.view(product.out) for product in operation.products])


def write_heads(writer: RecordWriter, operation: HeadLinear) -> None:
    """As ``write_linear``, for a linear with a matrix for each head."""
    deltas = deltas_of(writer, operation)
    sources, outs = head_linear.views(writer, operation)
    write_inner(writer, deltas, sources)
    head_linear.write(writer, operation)
    write_outer(writer, deltas, outs)


def deltas_of(
    writer: RecordWriter, operation: Linear | HeadLinear | ExpertLinear
) -> list[LoraDelta]:
    """The products that adapters add to an operation of the writer's layer."""
    return _own(writer).deltas.get((writer.prefix, operation), [])


def write_embeddings(writer: RecordWriter) -> None:
    """Add the adapters' embeddings, before the first layer."""
    adapters = writer.adapters
    if adapters is None:
        return
    for lookup in adapters.lookups:
        x = RowsView(int(lookup.rows.ctypes.data), lookup.rows.strides[0])
        out = writer.buffers.view(lookup.buffer)
        rows = adapters.tokens[lookup.adapter : lookup.adapter + 1]
        products.write_plain(writer, lookup.outer, x, out, add=True, rows=rows)


def write_inner(
    writer: RecordWriter,
    deltas: Sequence[LoraDelta],
    sources: Sequence[RowsView],
    *,
    head: bool = False,
) -> None:
    """The products of the inputs ``sources`` with the first matrices.

    ``head``: for the rows that the output head computes.
    """
    for delta in deltas:
        adapters = _own(writer)
        column = delta.column
        for weight, x in zip(delta.inner, sources, strict=True):
            assert isinstance(weight, Weight)
            out, rows = _values(adapters, column), _rows(adapters, delta, head)
            products.write_plain(writer, weight, x, out, barrier=False, rows=rows)
            column += weight.n


def write_outer(
    writer: RecordWriter,
    deltas: Sequence[LoraDelta],
    outs: Sequence[RowsView],
    *,
    head: bool = False,
) -> list[int]:
    """Scale the first products by row, then add the products with the second matrices.

    Returns the indices of the records that write to ``outs``. Several adapters may add to one value
    without a barrier, because a thread has the same rows in all their matrices.
    """
    adapters = writer.adapters
    if adapters is None or not deltas:
        return []
    for delta in deltas:
        weights = adapters.output_weights if head else adapters.weights
        values = _values(adapters, delta.column)
        writer.record(mix.mix, "none", {
            **values.slots(mix.X, mix.X_STRIDE), **values.slots(mix.OUT, mix.OUT_STRIDE),
            mix.K: delta.width, mix.PER_TOKEN: 1, mix.PLACES: adapters.places.ctypes.data,
            mix.WEIGHTS: weights[delta.adapter].ctypes.data,
        }, barrier=delta is deltas[-1], rows=_rows(adapters, delta, head))  # fmt: skip
    written = []
    last = deltas[-1].outer[-1]
    for delta in deltas:
        for outer in delta.outer:
            assert isinstance(outer.weight, Weight)
            products.write_plain(
                writer, outer.weight, _values(adapters, outer.column), outs[outer.product],
                add=True, barrier=outer is last, rows=_rows(adapters, delta, head),
            )  # fmt: skip
            written.append(len(writer.records) - 1)
    return written


def _own(writer: RecordWriter) -> AdapterSet:
    assert writer.adapters is not None
    return writer.adapters


def _values(adapters: AdapterSet, column: int) -> RowsView:
    """The rows of first matrices' results, from ``column`` on."""
    return RowsView(int(adapters.buffer.ctypes.data) + 4 * column, adapters.stride)


def _rows(adapters: AdapterSet, delta: LoraDelta, head: bool) -> NDArray[np.int64]:
    """The number of rows that an adapter is computed for: 0 if no row of the step uses it."""
    counts = adapters.outputs if head else adapters.tokens
    return counts[delta.adapter : delta.adapter + 1]
