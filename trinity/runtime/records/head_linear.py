"""A matrix for each head: products whose inputs and results lie side by side in a row."""

from __future__ import annotations

from trinity.models.operations import HeadLinear
from trinity.runtime.records import linear
from trinity.runtime.records.linear import BufferView
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import squares
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul


def write(writer: RecordWriter, heads: HeadLinear) -> None:
    """The products of all heads, of which none waits for another.

    Every head's input has its own place in the form that the weights take.
    """
    buffers, bound = writer.buffers, writer.builder.bound[writer.prefix]
    weights = [bound[heads.weight, head] for head in range(heads.heads)]
    form, k, last = weights[0].form, heads.width, heads.heads - 1
    kernel = linear.kernel_for(writer, weights)
    x, x_stride = buffers.address(heads.x), buffers.stride[heads.x]
    sources = [BufferView(x + 4 * heads.x_step * head, x_stride) for head in range(heads.heads)]
    operands = sources
    gathered = writer.builder.squares
    if gathered is not None:
        sums = gathered.head_buffer(weights[0])
        for source, own in zip(sources, sums, strict=True):
            writer.record(squares.add_squares, "none", {
                squares.X: source.address, squares.X_STRIDE: source.stride,
                squares.SUMS: own.ctypes.data, squares.K: k,
            }, barrier=False)  # fmt: skip
    if form != "f32":
        size = activation_bytes(form, k)
        codes = int(buffers.codes.ctypes.data)
        operands = [BufferView(codes + size * h, size * heads.heads) for h in range(heads.heads)]
        for head, (source, operand) in enumerate(zip(sources, operands, strict=True)):
            linear.write_codes(writer, weights, kernel, source, operand, barrier=head == last)
    tiles = [0] * heads.heads
    if kernel is not matmul:
        step = tile_bytes(form, k, len(writer.step.positions))
        tiles = [step * head for head in range(heads.heads)]
        for head, (source, operand) in enumerate(zip(sources, operands, strict=True)):
            linear.write_tiles(
                writer, weights, kernel, source, operand, tiles[head], barrier=head == last
            )
    out, out_stride = buffers.address(heads.out), buffers.stride[heads.out]
    for head, weight in enumerate(weights):
        to = BufferView(out + 4 * heads.out_step * head, out_stride)
        linear.write_product(
            writer, weight, kernel, operands[head], to, tiles[head], barrier=head == last
        )
