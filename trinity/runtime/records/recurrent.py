"""Operations that keep a state of each sequence."""

from __future__ import annotations

from trinity.formats.tensor_names import beside
from trinity.models.operations import CausalConv, DeltaRule, Recurrent, SelectiveScan
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import causal_conv, delta_rule, selective_scan
from trinity_kernels.record import float_bits


def _addresses(writer: RecordWriter, operation: Recurrent) -> tuple[int, int, int]:
    """Of the positions, of the tables of state, and where in their parts it begins."""
    step = writer.step
    tables = int(step.state_tables.ctypes.data)
    return int(step.positions.ctypes.data), tables, writer.state(operation)


def write_conv(writer: RecordWriter, conv: CausalConv) -> None:
    """A convolution over the last tokens."""
    op, bias = causal_conv, beside(conv.weight, "bias")
    positions, tables, offset = _addresses(writer, conv)
    writer.record(op.causal_conv, conv.activation or "none", {
        op.X: writer.buffers.address(conv.x), op.STRIDE: writer.buffers.stride[conv.x],
        op.WEIGHT: writer.turned(conv.weight, conv.width, conv.taps),
        op.BIAS: writer.vector(bias, conv.width) if writer.has(bias) else 0,
        op.K: conv.width, op.TAPS: conv.taps,
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
    })  # fmt: skip


def write_delta_rule(writer: RecordWriter, rule: DeltaRule) -> None:
    """The gated delta rule."""
    op, buffers = delta_rule, writer.buffers
    positions, tables, offset = _addresses(writer, rule)
    x, keys = buffers.address(rule.x), 4 * rule.key_heads * rule.key_dim
    writer.record(op.delta_rule, "none", {
        op.QUERY: x, op.KEY: x + keys, op.VALUE: x + 2 * keys, op.STRIDE: buffers.stride[rule.x],
        op.BETA: buffers.address(rule.beta), op.BETA_STRIDE: buffers.stride[rule.beta],
        op.ALPHA: buffers.address(rule.alpha), op.ALPHA_STRIDE: buffers.stride[rule.alpha],
        op.A: writer.vector(rule.a, rule.heads), op.DT_BIAS: writer.vector(rule.bias, rule.heads),
        op.OUT: buffers.address(rule.out), op.OUT_STRIDE: buffers.stride[rule.out],
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
        op.SCALE: float_bits(rule.scale), op.HEADS: rule.heads, op.KEY_HEADS: rule.key_heads,
        op.KEYS: rule.key_dim, op.VALUES: rule.value_dim, op.TILED: rule.tiled,
    })  # fmt: skip


def write_scan(writer: RecordWriter, scan: SelectiveScan) -> None:
    """Mamba-2's selective scan."""
    op, buffers = selective_scan, writer.buffers
    positions, tables, offset = _addresses(writer, scan)
    x = buffers.address(scan.x)
    b = x + 4 * scan.heads * scan.head_dim
    writer.record(op.selective_scan, "none", {
        op.X: x, op.B: b, op.C: b + 4 * scan.groups * scan.key_dim,
        op.STRIDE: buffers.stride[scan.x],
        op.DT: buffers.address(scan.dt), op.DT_STRIDE: buffers.stride[scan.dt],
        op.A: writer.vector(scan.a, scan.heads), op.D: writer.vector(scan.d, scan.heads),
        op.DT_BIAS: writer.vector(scan.bias, scan.heads),
        op.OUT: buffers.address(scan.out), op.OUT_STRIDE: buffers.stride[scan.out],
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
        op.HEADS: scan.heads, op.GROUPS: scan.groups, op.KEYS: scan.key_dim,
        op.VALUES: scan.head_dim,
    })  # fmt: skip
