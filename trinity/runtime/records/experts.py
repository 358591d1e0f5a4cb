"""Experts: the choice, their products, their activation, their sum."""

from __future__ import annotations

from trinity.models.operations import ExpertGated, ExpertLinear, Gated, Mix, Route
from trinity.runtime.expert_buffers import ExpertBuffers, pair_bytes
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.records import elementwise
from trinity.runtime.records.linear import BufferView
from trinity.runtime.records.writer import RecordWriter
from trinity.runtime.rounding import Rounding
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import expert_rows, mix, route, squares
from trinity_kernels.ops.matmul import activation_tiles, experts, quantize, variants
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.activations import activation_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import float_bits


def write_route(writer: RecordWriter, choice: Route) -> None:
    """Each token's experts and weights, then the rows of all of them."""
    buffers, own = writer.buffers, buffers_of(writer)
    bias = 0
    if choice.bias:
        bias = writer.vector(choice.bias, choice.num_experts)
    writer.record(route.route, choice.gating, {
        route.SCORES: buffers.address(choice.scores),
        route.SCORES_STRIDE: buffers.stride[choice.scores],
        route.EXPERTS: choice.num_experts, route.PER_TOKEN: choice.per_token, route.BIAS: bias,
        route.CHOSEN: own.chosen.ctypes.data, route.WEIGHTS: own.weights.ctypes.data,
        route.NORMALIZE: choice.normalize, route.LEAST_SUM: float_bits(choice.least_sum),
        route.SCALE: float_bits(choice.scale), route.NUM_GROUPS: choice.num_groups,
        route.GROUPS_USED: choice.groups_used, route.GROUP_BEST: choice.group_best,
        route.SCRATCH: own.scratch.ctypes.data,
        route.SCRATCH_STRIDE: own.scratch_stride,
    })  # fmt: skip
    writer.record(expert_rows.group_by_expert, "none", {
        **rows_of(own, choice.per_token), expert_rows.CHOSEN: own.chosen.ctypes.data,
        expert_rows.EXPERTS: choice.num_experts, expert_rows.COUNTS: own.counts.ctypes.data,
    })  # fmt: skip


def write_linear(writer: RecordWriter, linear: ExpertLinear) -> None:
    """The products of one linear of experts, whose weights share an input."""
    bound = writer.builder.experts[writer.prefix]
    outputs = [(bound[product.weight, product.first], product.out) for product in linear.products]
    _write_squares(writer, linear, [weight for weight, _ in outputs])
    for form in sorted({weight.form for weight, _ in outputs}):
        group = [output for output in outputs if output[0].form == form]
        weights = [weight for weight, _ in group]
        kernel = writer.builder.kernel
        exact = writer.rounding is Rounding.SINGLE
        if not all(variants.serves(kernel, weight.type, exact) for weight in weights):
            kernel = matmul
        operand = _write_activations(writer, linear, weights)
        if kernel is matmul_tiles:
            _write_tiles(writer, linear, weights, operand)
        for weight, out in group:
            last = weight is weights[-1]
            place = writer.buffers.view(out)
            write_product(writer, weight, kernel, operand, place, barrier=last)


def _write_activations(
    writer: RecordWriter, linear: ExpertLinear, weights: list[ExpertWeight]
) -> tuple[int, int]:
    """Address and stride of a row for each token and expert, in the form that weights take."""
    buffers, own = writer.buffers, buffers_of(writer)
    form, k = weights[0].form, linear.width
    found = buffers.address(linear.x), buffers.stride[linear.x]
    codes = int(own.codes.ctypes.data), activation_bytes(form, k)
    if form != "f32":
        to = codes
        if linear.spread:
            to = int(buffers.codes.ctypes.data), codes[1]
        writer.record(quantize.quantizer_of(form), "none", {
            quantize.X: found[0], quantize.X_STRIDE: found[1], quantize.K: k,
            quantize.OUT: to[0], quantize.OUT_STRIDE: to[1],
        }, rows=None if linear.spread else own.rows)  # fmt: skip
        found = to
    if not linear.spread:
        return found
    writer.record(expert_rows.spread, "none", {
        **rows_of(own, linear.per_token),
        expert_rows.X: found[0], expert_rows.X_STRIDE: found[1],
        expert_rows.OUT: codes[0], expert_rows.OUT_STRIDE: codes[1],
        expert_rows.NBYTES: 4 * k if form == "f32" else codes[1],
    })  # fmt: skip
    return codes


def _write_tiles(
    writer: RecordWriter,
    linear: ExpertLinear,
    weights: list[ExpertWeight],
    operand: tuple[int, int],
) -> None:
    buffers, own = writer.buffers, buffers_of(writer)
    form, source, index = weights[0].form, operand, 0
    if form in ("q8", "q19"):
        source = buffers.address(linear.x), buffers.stride[linear.x]
        index = int(own.tokens.ctypes.data) if linear.spread else 0
    inner = activation_tiles.tiles_of(form)
    writer.record(experts.expert_tiles, "none", {
        op.X: source[0], op.X_STRIDE: source[1], op.K: linear.width, op.INDEX: index,
        op.CODES: operand[0], op.CODES_STRIDE: operand[1], **_packed(writer, weights[0]),
        op.FLOATS: any(weight.type not in int8_tile_types() for weight in weights),
        **_of_experts(writer, inner, "none"),
    })  # fmt: skip


def write_product(
    writer: RecordWriter,
    weight: ExpertWeight,
    kernel: Kernel,
    operand: tuple[int, int],
    out: BufferView,
    *,
    barrier: bool,
    add: bool = False,
) -> None:
    """One product of each expert's rows."""
    values = {
        op.X: operand[0], op.X_STRIDE: operand[1], op.W: weight.addresses.ctypes.data,
        op.W_STRIDE: weight.stride, op.N: weight.n, op.K: weight.k,
        op.OUT: out.address, op.OUT_STRIDE: out.stride, op.ADD: add,
        op.SCALE: weight.scales.ctypes.data, **_of_experts(writer, kernel, weight.type),
    }  # fmt: skip
    if weight.biases is not None:
        values[op.BIAS] = weight.biases.ctypes.data
        values[experts.BIAS_STEP] = weight.biases.strides[0]
    if kernel is not matmul:
        values |= _packed(writer, weight)
    writer.record(experts.expert_products, "none", values, barrier=barrier)


def _packed(writer: RecordWriter, weight: ExpertWeight) -> dict[int, int]:
    """What kernels that pack weights and activations need."""
    buffers, own = writer.buffers, buffers_of(writer)
    return {
        op.TILES: own.tiles.ctypes.data,
        experts.TILE_STEP: pair_bytes(weight),
        op.SCRATCH: buffers.scratch.ctypes.data,
        op.SCRATCH_STRIDE: buffers.scratch_stride,
        op.MANY: writer.rounding is Rounding.PROMPT,
    }


def _of_experts(writer: RecordWriter, inner: Kernel, tag: str) -> dict[int, int]:
    """What stands in the record of a kernel that calls ``inner`` for each expert."""
    return {
        experts.INNER: writer.builder.address(inner, tag),
        experts.GROUPS: buffers_of(writer).groups.ctypes.data,
    }


def write_gated(writer: RecordWriter, gated: ExpertGated) -> None:
    """The activation of each expert's feed-forward."""
    operation = Gated(gated.activation, gated.width, gated.gate, gated.up)
    elementwise.write_gated(writer, operation, rows=buffers_of(writer).rows)


def write_mix(writer: RecordWriter, mixed: Mix) -> None:
    """The weighted sum of each token's experts."""
    buffers, own = writer.buffers, buffers_of(writer)
    writer.record(mix.mix, "none", {
        mix.X: buffers.address(mixed.x), mix.X_STRIDE: buffers.stride[mixed.x],
        mix.OUT: buffers.address(mixed.out), mix.OUT_STRIDE: buffers.stride[mixed.out],
        mix.K: mixed.width, mix.PER_TOKEN: mixed.per_token, mix.ADD: mixed.add,
        mix.PLACES: own.places.ctypes.data, mix.WEIGHTS: own.weights.ctypes.data,
    })  # fmt: skip


def buffers_of(writer: RecordWriter) -> ExpertBuffers:
    """What a step's experts need in memory."""
    if writer.buffers.experts is None:
        raise TypeError("the operations have experts, the weights have none")
    return writer.buffers.experts


def rows_of(own: ExpertBuffers, per_token: int) -> dict[int, int]:
    """Where each token's rows are."""
    return {
        expert_rows.PER_TOKEN: per_token,
        expert_rows.PLACES: own.places.ctypes.data,
        expert_rows.TOKENS: own.tokens.ctypes.data,
        expert_rows.GROUPS: own.groups.ctypes.data,
    }


def _write_squares(writer: RecordWriter, linear: ExpertLinear, weights: list[ExpertWeight]) -> None:
    """Gathering, where it was asked for; the next records only read x, so nobody waits."""
    gathered, buffers, own = writer.builder.squares, writer.buffers, buffers_of(writer)
    if gathered is not None:
        sums = gathered.expert_buffer(weights)
        writer.record(squares.add_expert_squares, "none", {
            squares.X: buffers.address(linear.x), squares.X_STRIDE: buffers.stride[linear.x],
            squares.SUMS: sums.ctypes.data, squares.K: linear.width,
            squares.GROUPS: own.groups.ctypes.data,
            squares.INDEX: own.tokens.ctypes.data if linear.spread else 0,
        }, barrier=False)  # fmt: skip
