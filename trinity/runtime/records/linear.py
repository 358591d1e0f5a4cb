"""Linears: activations in the form that weights take, then the products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Linear
from trinity.runtime.records.writer import RecordWriter
from trinity.runtime.rounding import Rounding
from trinity.runtime.weights import Weight
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import squares
from trinity_kernels.ops.matmul import activation_tiles, quantize, variants
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.activations import activation_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import float_bits


class BufferView(NamedTuple):
    """Where rows lie: the address of the first, and bytes from one to the next."""

    address: int
    stride: int


def write(writer: RecordWriter, linear: Linear) -> None:
    """The products of one linear of a layer."""
    bound, buffers = writer.builder.bound[writer.prefix], writer.buffers
    outputs = [
        (
            bound[product.weight, product.first],
            buffers.view(product.out),
        )
        for product in linear.products
    ]
    write_products(writer, linear.x, outputs, add=linear.add)


def write_products(
    writer: RecordWriter, x: str, outputs: list[tuple[Weight, BufferView]], *, add: bool = False,
    rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Weights that share an input: it is brought to each form once, then all multiply.

    ``outputs``: each weight, and where its results go.
    """
    buffers = writer.buffers
    _write_squares(writer, x, [weight for weight, _ in outputs], rows)
    for form in sorted({weight.form for weight, _ in outputs}):
        group = [output for output in outputs if output[0].form == form]
        weights = [weight for weight, _ in group]
        source = operand = buffers.view(x)
        kernel = kernel_for(writer, weights)
        if form != "f32":
            operand = BufferView(
                int(buffers.codes.ctypes.data), activation_bytes(form, weights[0].k)
            )
            write_codes(writer, weights, kernel, source, operand, rows=rows)
        write_tiles(writer, weights, kernel, source, operand, rows=rows)
        for weight, out in group:
            last = weight is weights[-1]
            write_product(writer, weight, kernel, operand, out, add=add, barrier=last, rows=rows)


def kernel_for(writer: RecordWriter, weights: list[Weight]) -> Kernel:
    """What multiplies weights that share an input."""
    kernel = writer.builder.kernel
    exact = writer.rounding is Rounding.SINGLE
    if all(variants.serves(kernel, weight.type, exact) for weight in weights):
        return kernel
    return matmul


def write_codes(
    writer: RecordWriter,
    weights: list[Weight],
    kernel: Kernel,
    source: BufferView,
    operand: BufferView,
    *,
    barrier: bool = True,
    rows: NDArray[np.int64] | None = None,
) -> None:
    """Bring rows of float32 to the codes that ``weights``, all of one form, multiply."""
    # Rows that fill no tile go by dot products, which need the codes; so do the int8 tiles
    # of few tokens.
    limit = 1 if writer.rounding is Rounding.PROMPT else op.TILE_ROWS + 1
    if kernel is not matmul_tiles or any(weight.n % 16 for weight in weights):
        limit = 0
    writer.record(quantize.quantizer_of(weights[0].form), "none", {
        quantize.X: source.address, quantize.X_STRIDE: source.stride, quantize.K: weights[0].k,
        quantize.OUT: operand.address, quantize.OUT_STRIDE: operand.stride,
        quantize.FEWER_THAN: limit,
    }, barrier=barrier, rows=rows)  # fmt: skip


def write_tiles(
    writer: RecordWriter,
    weights: list[Weight],
    kernel: Kernel,
    source: BufferView,
    operand: BufferView,
    offset: int = 0,
    *,
    barrier: bool = True,
    rows: NDArray[np.int64] | None = None,
) -> None:
    """Where ``kernel`` takes tiles, make those of activations, ``offset`` bytes into theirs."""
    if kernel is not matmul_tiles:
        return
    form = weights[0].form
    first = operand if form == "ternary" else source
    writer.record(activation_tiles.tiles_of(form), "none", {
        op.X: first.address, op.X_STRIDE: first.stride, op.K: weights[0].k,
        op.CODES: operand.address, op.CODES_STRIDE: operand.stride, **packed(writer, offset),
        op.FLOATS: any(weight.type not in int8_tile_types() for weight in weights),
    }, barrier=barrier, rows=rows)  # fmt: skip


def write_product(
    writer: RecordWriter, weight: Weight, kernel: Kernel, operand: BufferView, out: BufferView,
    offset: int = 0, *, add: bool = False, barrier: bool = True,
    rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """One product, of tiles ``offset`` bytes into theirs where it takes tiles."""
    values = {
        op.X: operand.address, op.X_STRIDE: operand.stride,
        op.W: weight.data.ctypes.data, op.W_STRIDE: weight.stride,
        op.N: weight.n, op.K: weight.k, op.OUT: out.address, op.OUT_STRIDE: out.stride,
        op.ADD: add, op.SCALE: float_bits(weight.scale),
        op.BIAS: 0 if weight.bias is None else weight.bias.ctypes.data,
    }  # fmt: skip
    if kernel is not matmul:
        values |= packed(writer, offset)
    writer.record(kernel, weight.type, values, barrier=barrier, rows=rows)


def packed(writer: RecordWriter, offset: int = 0) -> dict[int, int]:
    """What kernels that pack weights and activations need."""
    buffers = writer.buffers
    return {
        op.TILES: buffers.tiles.ctypes.data + offset,
        op.SCRATCH: buffers.scratch.ctypes.data,
        op.SCRATCH_STRIDE: buffers.scratch_stride,
        op.MANY: writer.rounding is Rounding.PROMPT,
    }


def _write_squares(
    writer: RecordWriter, x: str, weights: list[Weight], rows: NDArray[np.int64] | None
) -> None:
    """Gathering, where it was asked for; the next records only read x, so nobody waits."""
    gathered, buffers = writer.builder.squares, writer.buffers
    sums = None if gathered is None else gathered.buffer(weights)
    if sums is not None:
        writer.record(squares.add_squares, "none", {
            squares.X: buffers.address(x), squares.X_STRIDE: buffers.stride[x],
            squares.SUMS: sums.ctypes.data, squares.K: weights[0].k,
        }, barrier=False, rows=rows)  # fmt: skip
