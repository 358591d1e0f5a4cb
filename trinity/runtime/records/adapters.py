"""What adapters add to products: two small ones, of rows whose weight is not 0.

The first matrices bring an operation's input to a few values a row, which are multiplied by the
row's weight; the second ones' results are added onto the operation's. All of them are products of
plain numbers, whose sums depend on their own row alone: what other rows use changes no bit of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import ExpertLinear, HeadLinear, Linear
from trinity.runtime.adapters import AdapterSet, LoraDelta
from trinity.runtime.records import head_linear, linear
from trinity.runtime.records.linear import BufferView, write_product
from trinity.runtime.records.writer import RecordWriter
from trinity.runtime.weights import Weight
from trinity_kernels.ops import mix
from trinity_kernels.ops.matmul.rows import matmul


def write_linear(writer: RecordWriter, products: Linear) -> None:
    """A linear with what adapters add to it.

    Nobody waits for the first matrices: the linear's own products of that input follow.
    """
    deltas, buffers = deltas_of(writer, products), writer.buffers
    write_inner(writer, deltas, [buffers.view(products.x)])
    linear.write(writer, products)
    outs = [buffers.view(p.out) for p in products.products]
    write_outer(writer, deltas, outs)


def write_heads(writer: RecordWriter, heads: HeadLinear) -> None:
    """As ``write_linear``, of a matrix for each head."""
    deltas, buffers = deltas_of(writer, heads), writer.buffers
    x, out = buffers.address(heads.x), buffers.address(heads.out)
    sources = [
        BufferView(x + 4 * heads.x_step * head, buffers.stride[heads.x])
        for head in range(heads.heads)
    ]
    outs = [
        BufferView(out + 4 * heads.out_step * head, buffers.stride[heads.out])
        for head in range(heads.heads)
    ]
    write_inner(writer, deltas, sources)
    head_linear.write(writer, heads)
    write_outer(writer, deltas, outs)


def deltas_of(
    writer: RecordWriter, operation: Linear | HeadLinear | ExpertLinear
) -> list[LoraDelta]:
    """What adapters add to an operation of the writer's layer, in a plan with adapters."""
    if writer.adapters is None:
        return []
    return writer.adapters.deltas.get((writer.prefix, operation), [])


def write_embeddings(writer: RecordWriter) -> None:
    """What adapters add to embeddings, before the first layer."""
    adapters = writer.adapters
    if adapters is None:
        return
    for found in adapters.lookups:
        buffers = writer.buffers
        x = BufferView(int(found.rows.ctypes.data), found.rows.strides[0])
        out = buffers.view(found.buffer)
        rows = adapters.tokens[found.adapter : found.adapter + 1]
        write_product(writer, found.outer, matmul, x, out, add=True, rows=rows)


def write_inner(
    writer: RecordWriter,
    deltas: Sequence[LoraDelta],
    sources: Sequence[BufferView],
    *,
    head: bool = False,
) -> None:
    """The first matrices of the inputs at ``sources``. ``head``: of the rows of the output."""
    for delta in deltas:
        adapters = _own(writer)
        column = delta.column
        for weight, x in zip(delta.inner, sources, strict=True):
            assert isinstance(weight, Weight)
            out = BufferView(_at(adapters, column), adapters.stride)
            rows = _rows(adapters, delta, head)
            write_product(writer, weight, matmul, x, out, barrier=False, rows=rows)
            column += weight.n


def write_outer(
    writer: RecordWriter,
    deltas: Sequence[LoraDelta],
    outs: Sequence[BufferView],
    *,
    head: bool = False,
) -> list[int]:
    """The weights of rows, then the second matrices; which records these are.

    Adapters add to a value in turn: each thread has the same rows of all their matrices.
    """
    adapters = writer.adapters
    if adapters is None or not deltas:
        return []
    for delta in deltas:
        weights = adapters.output_weights if head else adapters.weights
        x = _at(adapters, delta.column)
        writer.record(mix.mix, "none", {
            mix.X: x, mix.X_STRIDE: adapters.stride, mix.OUT: x, mix.OUT_STRIDE: adapters.stride,
            mix.K: delta.width, mix.PER_TOKEN: 1, mix.PLACES: adapters.places.ctypes.data,
            mix.WEIGHTS: weights[delta.adapter].ctypes.data,
        }, barrier=delta is deltas[-1], rows=_rows(adapters, delta, head))  # fmt: skip
    written = []
    last = deltas[-1].outer[-1]
    for delta in deltas:
        for outer in delta.outer:
            assert isinstance(outer.weight, Weight)
            x_place = BufferView(_at(adapters, outer.column), adapters.stride)
            write_product(
                writer, outer.weight, matmul, x_place, outs[outer.product], add=True,
                barrier=outer is last, rows=_rows(adapters, delta, head),
            )  # fmt: skip
            written.append(len(writer.records) - 1)
    return written


def _own(writer: RecordWriter) -> AdapterSet:
    assert writer.adapters is not None
    return writer.adapters


def _at(adapters: AdapterSet, column: int) -> int:
    return int(adapters.buffer.ctypes.data) + 4 * column


def _rows(adapters: AdapterSet, delta: LoraDelta, head: bool) -> NDArray[np.int64]:
    """How many rows an adapter works on: none where no row of the step uses it."""
    counts = adapters.outputs if head else adapters.tokens
    return counts[delta.adapter : delta.adapter + 1]
