"""Linears: activations in the form that weights take, then the products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Linear
from trinity.runtime.records.writer import Writer
from trinity.runtime.weights import Weight
from trinity_kernels.ops import squares
from trinity_kernels.ops.matmul import activation_tiles, quantize, variants
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.activations import activation_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import float_bits


def write(writer: Writer, linear: Linear) -> None:
    """The products of one linear of a layer."""
    bound, buffers = writer.builder.bound[writer.prefix], writer.buffers
    outputs = [
        (
            bound[product.weight, product.first], buffers.address(product.out),
            buffers.stride[product.out],
        )
        for product in linear.products
    ]  # fmt: skip
    write_products(writer, linear.x, outputs, add=linear.add)


def write_products(
    writer: Writer, x: str, outputs: list[tuple[Weight, int, int]], *, add: bool = False,
    rows: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Weights that share an input: it is brought to each form once, then all multiply.

    ``outputs``: weight, address and stride of each result.
    """
    buffers = writer.buffers
    _write_squares(writer, x, [weight for weight, _, _ in outputs], rows)
    for form in sorted({weight.form for weight, _, _ in outputs}):
        group = [output for output in outputs if output[0].form == form]
        k = group[0][0].k
        source = buffers.address(x), buffers.stride[x]
        operand = source
        kernel = writer.builder.kernel
        if not all(variants.serves(kernel, w.type, writer.exact) for w, _, _ in group):
            kernel = matmul
        tiled = kernel is matmul_tiles
        # Rows that fill no tile go by dot products, which need the codes; so do the int8 tiles
        # of few tokens.
        limit = op.TILE_ROWS + 1
        if not tiled or any(w.n % 16 for w, _, _ in group):
            limit = 0
        if form != "f32":
            operand = int(buffers.codes.ctypes.data), activation_bytes(form, k)
            quantizer = quantize.quantize_ternary if form == "ternary" else quantize.quantize_q8
            writer.record(quantizer, "none", {
                quantize.X: source[0], quantize.X_STRIDE: source[1], quantize.K: k,
                quantize.OUT: operand[0], quantize.OUT_STRIDE: operand[1],
                quantize.FEWER_THAN: limit,
            }, rows=rows)  # fmt: skip
        if tiled:
            first = operand if form == "ternary" else source
            writer.record(activation_tiles.tiles_of(form), "none", {
                op.X: first[0], op.X_STRIDE: first[1], op.K: k,
                op.CODES: operand[0], op.CODES_STRIDE: operand[1], **packed(writer),
                op.FLOATS: any(w.type not in int8_tile_types() for w, _, _ in group),
            }, rows=rows)  # fmt: skip
        for weight, out, out_stride in group:
            values = {
                op.X: operand[0], op.X_STRIDE: operand[1],
                op.W: weight.data.ctypes.data, op.W_STRIDE: weight.stride,
                op.N: weight.n, op.K: k, op.OUT: out, op.OUT_STRIDE: out_stride, op.ADD: add,
                op.SCALE: float_bits(weight.scale),
                op.BIAS: 0 if weight.bias is None else weight.bias.ctypes.data,
            }  # fmt: skip
            if kernel is not matmul:
                values |= packed(writer)
            writer.record(kernel, weight.type, values, barrier=weight is group[-1][0], rows=rows)


def packed(writer: Writer) -> dict[int, int]:
    """What kernels that pack weights and activations need."""
    buffers = writer.buffers
    return {
        op.TILES: buffers.tiles.ctypes.data, op.SCRATCH: buffers.scratch.ctypes.data,
        op.SCRATCH_STRIDE: buffers.scratch_stride,
    }  # fmt: skip


def _write_squares(
    writer: Writer, x: str, weights: list[Weight], rows: NDArray[np.int64] | None
) -> None:
    """Gathering, where it was asked for; the next records only read x, so nobody waits."""
    gathered, buffers = writer.builder.squares, writer.buffers
    sums = None if gathered is None else gathered.buffer(weights)
    if sums is not None:
        writer.record(squares.add_squares, "none", {
            squares.X: buffers.address(x), squares.X_STRIDE: buffers.stride[x],
            squares.SUMS: sums.ctypes.data, squares.K: weights[0].k,
        }, barrier=False, rows=rows)  # fmt: skip
