"""Matrix products: activations are converted to the form that weights need, then multiplied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.records.record_list import RowsView
from trinity.runtime.weights import Weight
from trinity_kernels._jit import Kernel
from trinity_kernels.ops.matmul import activation_tiles, quantize
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import float_bits


class ProductWriter(Protocol):
    """A list of records with the memory that products use while they run."""

    always_tiles: bool
    """Tiles are used for every number of rows, so that a row's bits do not depend on it."""

    def record(
        self, kernel: Kernel, tag: str, values: dict[int, int], *, barrier: bool = True,
        rows: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        """Append one record."""
        ...

    def kernel_for(self, weights: Sequence[Weight]) -> Kernel:
        """The kernel that multiplies weights which share an input."""
        ...

    def codes(self, form: str, k: int) -> RowsView:
        """Memory for rows of ``k`` activations in a form other than "f32"."""
        ...

    def packed(self, kernel: Kernel, weights: Sequence[Weight]) -> dict[int, int]:
        """The slots of a kernel that packs weights and activations; none for other kernels."""
        ...


def write(
    writer: ProductWriter, source: RowsView, outputs: Sequence[tuple[Weight, RowsView]], *,
    add: bool = False, rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Products of the rows of ``source``, float32, with each weight, into its view.

    The rows are converted once per form, for all weights that need it. ``add`` adds the results to
    the values in the views.
    """
    for form in sorted({weight.form for weight, _ in outputs}):
        group = [output for output in outputs if output[0].form == form]
        weights = [weight for weight, _ in group]
        operand, kernel = source, writer.kernel_for(weights)
        if form != "f32":
            operand = writer.codes(form, weights[0].k)
            write_codes(writer, weights, kernel, source, operand, rows=rows)
        packed = writer.packed(kernel, weights)
        write_tiles(writer, weights, kernel, source, operand, packed, rows=rows)
        for weight, out in group:
            write_product(
                writer, weight, kernel, operand, out, packed,
                add=add, barrier=weight is weights[-1], rows=rows,
            )  # fmt: skip


def write_codes(
    writer: ProductWriter, weights: Sequence[Weight], kernel: Kernel, source: RowsView,
    operand: RowsView, *, barrier: bool = True, rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Quantize rows of float32 to the codes that ``weights``, all of one form, multiply."""
    # Rows that do not fill a tile are multiplied as dot products, which need the codes. The int8
    # tiles of few tokens need them, too.
    limit = 1 if writer.always_tiles else op.TILE_ROWS + 1
    if kernel is not matmul_tiles or any(weight.n % 16 for weight in weights):
        limit = 0
    writer.record(quantize.quantizer_of(weights[0].form), "none", {
        **source.slots(quantize.X, quantize.X_STRIDE), quantize.K: weights[0].k,
        **operand.slots(quantize.OUT, quantize.OUT_STRIDE), quantize.FEWER_THAN: limit,
    }, barrier=barrier, rows=rows)  # fmt: skip


def write_tiles(
    writer: ProductWriter, weights: Sequence[Weight], kernel: Kernel, source: RowsView,
    operand: RowsView, packed: dict[int, int], *, barrier: bool = True,
    rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """If ``kernel`` multiplies tiles, arrange the activations as tiles."""
    if kernel is not matmul_tiles:
        return
    form = weights[0].form
    writer.record(activation_tiles.tiles_of(form), "none", {
        **(operand if form == "ternary" else source).slots(op.X, op.X_STRIDE),
        op.K: weights[0].k, **operand.slots(op.CODES, op.CODES_STRIDE), **packed,
        op.FLOATS: any(weight.type not in int8_tile_types() for weight in weights),
    }, barrier=barrier, rows=rows)  # fmt: skip


def write_product(
    writer: ProductWriter, weight: Weight, kernel: Kernel, operand: RowsView, out: RowsView,
    packed: dict[int, int], *, add: bool = False, barrier: bool = True,
    rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """One product of activations that are in the weight's form. ``packed``: see the writer."""
    writer.record(kernel, weight.type, {
        **operand.slots(op.X, op.X_STRIDE),
        op.W: weight.data.ctypes.data, op.W_STRIDE: weight.stride,
        op.N: weight.n, op.K: weight.k, **out.slots(op.OUT, op.OUT_STRIDE),
        op.ADD: add, op.SCALE: float_bits(weight.scale),
        op.BIAS: 0 if weight.bias is None else weight.bias.ctypes.data, **packed,
    }, barrier=barrier, rows=rows)  # fmt: skip


def write_plain(
    writer: ProductWriter, weight: Weight, source: RowsView, out: RowsView, *, add: bool = False,
    barrier: bool = True, rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Write one product with the kernel whose sums depend only on their own row."""
    write_product(writer, weight, matmul, source, out, {}, add=add, barrier=barrier, rows=rows)
