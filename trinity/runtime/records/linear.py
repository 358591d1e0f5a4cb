"""Linears: the products of one input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Linear
from trinity.runtime.records import products
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.weights import Weight
from trinity_kernels.ops import squares

if TYPE_CHECKING:
    from trinity.runtime.records.writer import RecordWriter


def write(writer: RecordWriter, linear: Linear) -> None:
    """The products of a linear of the writer's layer."""
    bound, buffers = writer.builder.bound[writer.prefix], writer.buffers
    outputs = [
        (bound[product.weight, product.first], buffers.view(product.out))
        for product in linear.products
    ]
    write_outputs(writer, linear.x, outputs, add=linear.add)


def write_outputs(
    writer: RecordWriter, x: str, outputs: list[tuple[Weight, RowsView]], *, add: bool = False,
    rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """The products of the buffer ``x`` with each weight, into its view."""
    source, gathered = writer.buffers.view(x), writer.builder.squares
    sums = None if gathered is None else gathered.buffer([weight for weight, _ in outputs])
    if sums is not None:
        # The next records only read x, so no thread waits.
        writer.record(squares.add_squares, "none", {
            **source.slots(squares.X, squares.X_STRIDE),
            squares.SUMS: sums.ctypes.data, squares.K: outputs[0][0].k,
        }, barrier=False, rows=rows)  # fmt: skip
    products.write(writer, source, outputs, add=add, rows=rows)
