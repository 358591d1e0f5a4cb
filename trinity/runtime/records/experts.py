"""Experts: routing, products, activation, weighted sum."""

from __future__ import annotations

from trinity.models.expert_operations import ExpertGated, ExpertInput, ExpertLinear, Mix, Route
from trinity.models.operations import Gated
from trinity.runtime.expert_buffers import ExpertBuffers, pair_bytes
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.records import elementwise
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import expert_rows, mix, route, squares
from trinity_kernels.ops.matmul import activation_tiles, experts, quantize
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.activations import activation_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import float_bits


def write_route(writer: RecordWriter, choice: Route) -> None:
    """Choose each token's experts and their weights, then list the rows of each expert."""
    buffers, own = writer.buffers, buffers_of(writer)
    bias = 0
    if choice.bias:
        bias = writer.vector(choice.bias, choice.num_experts)
    writer.record(route.route, choice.gating, {
        **buffers.view(choice.scores).slots(route.SCORES, route.SCORES_STRIDE),
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


def write_input(writer: RecordWriter, weighted: ExpertInput) -> None:
    """A row of inputs for each token and expert, times the expert's weight."""
    buffers, own, op = writer.buffers, buffers_of(writer), expert_rows
    writer.record(op.spread_weighted, "none", {
        **rows_of(own, weighted.per_token), op.WEIGHTS: own.weights.ctypes.data,
        **buffers.view(weighted.x).slots(op.X, op.X_STRIDE),
        **buffers.view(weighted.out).slots(op.OUT, op.OUT_STRIDE),
        op.NBYTES: 4 * weighted.width,
    })  # fmt: skip


def write_linear(writer: RecordWriter, linear: ExpertLinear) -> None:
    """The products of one linear of experts, whose weights share an input."""
    bound = writer.builder.experts[writer.prefix]
    outputs = [(bound[product.weight, product.first], product.out) for product in linear.products]
    _write_squares(writer, linear, [weight for weight, _ in outputs])
    for form in sorted({weight.form for weight, _ in outputs}):
        group = [output for output in outputs if output[0].form == form]
        weights = [weight for weight, _ in group]
        kernel = writer.kernel_for(weights)
        operand = _write_activations(writer, linear, weights)
        if kernel is matmul_tiles:
            _write_tiles(writer, linear, weights, operand)
        for weight, out in group:
            last = weight is weights[-1]
            view = writer.buffers.view(out)
            write_product(writer, weight, kernel, operand, view, barrier=last)


def _write_activations(
    writer: RecordWriter, linear: ExpertLinear, weights: list[ExpertWeight]
) -> RowsView:
    """A row of activations for each token and expert, in the form that the weights need."""
    buffers, own = writer.buffers, buffers_of(writer)
    form, k = weights[0].form, linear.width
    source = buffers.view(linear.x)
    codes = RowsView(int(own.codes.ctypes.data), activation_bytes(form, k))
    if form != "f32":
        to = writer.codes(form, k) if linear.spread else codes
        writer.record(quantize.quantizer_of(form), "none", {
            **source.slots(quantize.X, quantize.X_STRIDE), quantize.K: k,
            **to.slots(quantize.OUT, quantize.OUT_STRIDE),
        }, rows=None if linear.spread else own.rows)  # fmt: skip
        source = to
    if not linear.spread:
        return source
    writer.record(expert_rows.spread, "none", {
        **rows_of(own, linear.per_token),
        **source.slots(expert_rows.X, expert_rows.X_STRIDE),
        **codes.slots(expert_rows.OUT, expert_rows.OUT_STRIDE),
        expert_rows.NBYTES: 4 * k if form == "f32" else codes.stride,
    })  # fmt: skip
    return codes


def _write_tiles(
    writer: RecordWriter, linear: ExpertLinear, weights: list[ExpertWeight], operand: RowsView
) -> None:
    buffers, own = writer.buffers, buffers_of(writer)
    form, source, index = weights[0].form, operand, 0
    if form in ("q8", "q19"):
        source = buffers.view(linear.x)
        index = int(own.tokens.ctypes.data) if linear.spread else 0
    inner = activation_tiles.tiles_of(form)
    writer.record(experts.expert_tiles, "none", {
        **source.slots(op.X, op.X_STRIDE), op.K: linear.width, op.INDEX: index,
        **operand.slots(op.CODES, op.CODES_STRIDE), **_packed(writer, weights[0]),
        op.FLOATS: any(weight.type not in int8_tile_types() for weight in weights),
        **_of_experts(writer, inner, "none"),
    })  # fmt: skip


def write_product(
    writer: RecordWriter,
    weight: ExpertWeight,
    kernel: Kernel,
    operand: RowsView,
    out: RowsView,
    *,
    barrier: bool,
    add: bool = False,
) -> None:
    """The products of all experts' rows with one weight."""
    values = {
        **operand.slots(op.X, op.X_STRIDE), op.W: weight.addresses.ctypes.data,
        op.W_STRIDE: weight.stride, op.N: weight.n, op.K: weight.k,
        **out.slots(op.OUT, op.OUT_STRIDE), op.ADD: add,
        op.SCALE: weight.scales.ctypes.data, **_of_experts(writer, kernel, weight.type),
    }  # fmt: skip
    if weight.biases is not None:
        values[op.BIAS] = weight.biases.ctypes.data
        values[experts.BIAS_STEP] = weight.biases.strides[0]
    if kernel is not matmul:
        values |= _packed(writer, weight)
    writer.record(experts.expert_products, "none", values, barrier=barrier)


def _packed(writer: RecordWriter, weight: ExpertWeight) -> dict[int, int]:
    """The slots of kernels that pack weights and activations."""
    return {
        op.TILES: buffers_of(writer).tiles.ctypes.data,
        experts.TILE_STEP: pair_bytes(weight),
        **writer.buffers.scratch_view.slots(op.SCRATCH, op.SCRATCH_STRIDE),
        op.MANY: writer.always_tiles,
    }


def _of_experts(writer: RecordWriter, inner: Kernel, tag: str) -> dict[int, int]:
    """The slots of a kernel that calls ``inner`` for each expert."""
    return {
        experts.INNER: writer.builder.address(inner, tag),
        experts.GROUPS: buffers_of(writer).groups.ctypes.data,
    }


def write_gated(writer: RecordWriter, gated: ExpertGated) -> None:
    """The activation of each expert's feed-forward."""
    operation = Gated(gated.activation, gated.width, gated.gate, gated.up)
    elementwise.write_gated(writer, operation, rows=buffers_of(writer).rows)


def write_mix(writer: RecordWriter, mixed: Mix) -> None:
    """The weighted sum of the results of each token's experts."""
    buffers, own = writer.buffers, buffers_of(writer)
    weights = int(own.weights.ctypes.data)
    if not mixed.weighted:
        weights = writer.vector("", len(own.weights))
    writer.record(mix.mix, "none", {
        **buffers.view(mixed.x).slots(mix.X, mix.X_STRIDE),
        **buffers.view(mixed.out).slots(mix.OUT, mix.OUT_STRIDE),
        mix.K: mixed.width, mix.PER_TOKEN: mixed.per_token, mix.ADD: mixed.add,
        mix.PLACES: own.places.ctypes.data,
        mix.WEIGHTS: weights,
    })  # fmt: skip


def buffers_of(writer: RecordWriter) -> ExpertBuffers:
    """The buffers of a step's experts."""
    if writer.buffers.experts is None:
        raise TypeError("the operations have experts, the weights have none")
    return writer.buffers.experts


def rows_of(own: ExpertBuffers, per_token: int) -> dict[int, int]:
    """The slots that describe which rows belong to which token."""
    return {
        expert_rows.PER_TOKEN: per_token,
        expert_rows.PLACES: own.places.ctypes.data,
        expert_rows.TOKENS: own.tokens.ctypes.data,
        expert_rows.GROUPS: own.groups.ctypes.data,
    }


def _write_squares(writer: RecordWriter, linear: ExpertLinear, weights: list[ExpertWeight]) -> None:
    """If sums of squares are collected, add the input's; the next records only read x."""
    gathered, buffers, own = writer.builder.squares, writer.buffers, buffers_of(writer)
    if gathered is not None:
        sums = gathered.expert_buffer(weights)
        writer.record(squares.add_expert_squares, "none", {
            **buffers.view(linear.x).slots(squares.X, squares.X_STRIDE),
            squares.SUMS: sums.ctypes.data, squares.K: linear.width,
            squares.GROUPS: own.groups.ctypes.data,
            squares.INDEX: own.tokens.ctypes.data if linear.spread else 0,
        }, barrier=False)  # fmt: skip
