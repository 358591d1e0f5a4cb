"""A matrix for each head: products whose inputs and results are parts of a row."""

from __future__ import annotations

from trinity.models.operations import HeadLinear
from trinity.runtime.records import products
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import squares
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes


def views(writer: RecordWriter, linear: HeadLinear) -> tuple[list[RowsView], list[RowsView]]:
    """The input and the output of each head."""
    x, out = writer.buffers.view(linear.x), writer.buffers.view(linear.out)
    return x.heads(linear.heads, 4 * linear.x_step), out.heads(linear.heads, 4 * linear.out_step)


def write(writer: RecordWriter, linear: HeadLinear) -> None:
    """The products of all heads, which run side by side.

    Each head has its own memory for its converted input.
    """
    buffers, bound = writer.buffers, writer.builder.bound[writer.prefix]
    heads = range(linear.heads)
    weights = [bound[linear.weight, head] for head in heads]
    form, k, last = weights[0].form, linear.width, linear.heads - 1
    kernel = writer.kernel_for(weights)
    sources, outs = views(writer, linear)
    operands = sources
    gathered = writer.builder.squares
    if gathered is not None:
        sums = gathered.head_buffer(weights[0])
        for source, own in zip(sources, sums, strict=True):
            writer.record(squares.add_squares, "none", {
                **source.slots(squares.X, squares.X_STRIDE),
                squares.SUMS: own.ctypes.data, squares.K: k,
            }, barrier=False)  # fmt: skip
    if form != "f32":
        size = activation_bytes(form, k)
        codes = RowsView(int(buffers.codes.ctypes.data), size * linear.heads)
        operands = codes.heads(linear.heads, size)
        for head in heads:
            products.write_codes(
                writer, weights, kernel, sources[head], operands[head], barrier=head == last
            )
    packed = [writer.packed(kernel, weights) for _ in heads]
    for head, slots in enumerate(packed):
        if slots:
            slots[op.TILES] += tile_bytes(form, k, len(writer.step.positions)) * head
        products.write_tiles(
            writer, weights, kernel, sources[head], operands[head], slots, barrier=head == last
        )
    for head, weight in enumerate(weights):
        products.write_product(
            writer, weight, kernel, operands[head], outs[head], packed[head], barrier=head == last
        )
