"""Operations with a recurrent state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trinity.formats.tensor_names import beside
from trinity.models.operations import Operation
from trinity.models.recurrent_operations import (
    CausalConv,
    ChannelDecay,
    ChannelDeltaRule,
    ChannelScan,
    DeltaRule,
    Recurrent,
    SelectiveScan,
)
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import (
    causal_conv,
    channel_delta_rule,
    channel_scan,
    delta_rule,
    selective_scan,
)
from trinity_kernels.record import float_bits


def _addresses(writer: RecordWriter, operation: Recurrent) -> tuple[int, int, int]:
    """The addresses of positions and state tables, and the state's offset in its page part."""
    step = writer.step
    tables = int(step.state_tables.ctypes.data)
    return int(step.positions.ctypes.data), tables, writer.state(operation)


def write_conv(writer: RecordWriter, conv: CausalConv) -> None:
    """A convolution over the last tokens."""
    op, bias = causal_conv, beside(conv.weight, "bias")
    positions, tables, offset = _addresses(writer, conv)
    writer.record(op.causal_conv, conv.activation or "none", {
        **writer.buffers.view(conv.x).slots(op.X, op.STRIDE),
        op.WEIGHT: writer.transposed(conv.weight, conv.width, conv.taps),
        op.BIAS: writer.vector(bias, conv.width) if writer.has(bias) else 0,
        op.K: conv.width, op.TAPS: conv.taps,
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
    })  # fmt: skip


def write_delta_rule(writer: RecordWriter, rule: DeltaRule) -> None:
    """The gated delta rule."""
    op, buffers = delta_rule, writer.buffers
    positions, tables, offset = _addresses(writer, rule)
    x, keys = buffers.view(rule.x), 4 * rule.key_heads * rule.key_dim
    writer.record(op.delta_rule, "none", {
        **x.slots(op.QUERY, op.STRIDE), op.KEY: x.address + keys, op.VALUE: x.address + 2 * keys,
        **buffers.view(rule.beta).slots(op.BETA, op.BETA_STRIDE),
        **buffers.view(rule.alpha).slots(op.ALPHA, op.ALPHA_STRIDE),
        op.A: writer.vector(rule.a, rule.heads), op.DT_BIAS: writer.vector(rule.bias, rule.heads),
        **buffers.view(rule.out).slots(op.OUT, op.OUT_STRIDE),
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
        op.SCALE: float_bits(rule.scale), op.HEADS: rule.heads, op.KEY_HEADS: rule.key_heads,
        op.KEYS: rule.key_dim, op.VALUES: rule.value_dim, op.TILED: rule.tiled,
    })  # fmt: skip


def write_channel_decay(writer: RecordWriter, decay: ChannelDecay) -> None:
    """The decays of each head's keys."""
    op = channel_delta_rule
    writer.record(op.channel_decay, "none", {
        **writer.buffers.view(decay.x).slots(op.ALPHA, op.ALPHA_STRIDE),
        op.HEADS: decay.heads, op.KEYS: decay.keys,
        op.A: writer.vector(decay.a, decay.heads),
        op.DT_BIAS: writer.vector(decay.bias, decay.heads * decay.keys),
    })  # fmt: skip


def write_channel_delta_rule(writer: RecordWriter, rule: ChannelDeltaRule) -> None:
    """The delta rule with a decay for each key."""
    op, view = channel_delta_rule, writer.buffers.view
    positions, tables, offset = _addresses(writer, rule)
    writer.record(op.channel_delta_rule, "none", {
        **view(rule.q).slots(op.QUERY, op.QUERY_STRIDE),
        **view(rule.k).slots(op.KEY, op.KEY_STRIDE),
        **view(rule.v).slots(op.VALUE, op.VALUE_STRIDE),
        **view(rule.beta).slots(op.BETA, op.BETA_STRIDE),
        **view(rule.decay).slots(op.ALPHA, op.ALPHA_STRIDE),
        **view(rule.out).slots(op.OUT, op.OUT_STRIDE),
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
        op.SCALE: float_bits(rule.scale), op.HEADS: rule.heads, op.KEYS: rule.key_dim,
        op.VALUES: rule.value_dim,
    })  # fmt: skip


def write_scan(writer: RecordWriter, scan: SelectiveScan) -> None:
    """Mamba-2's selective scan."""
    op, buffers = selective_scan, writer.buffers
    positions, tables, offset = _addresses(writer, scan)
    x = buffers.view(scan.x)
    b = x.address + 4 * scan.heads * scan.head_dim
    writer.record(op.selective_scan, "none", {
        **x.slots(op.X, op.STRIDE), op.B: b, op.C: b + 4 * scan.groups * scan.key_dim,
        **buffers.view(scan.dt).slots(op.DT, op.DT_STRIDE),
        op.A: writer.vector(scan.a, scan.heads), op.D: writer.vector(scan.d, scan.heads),
        op.DT_BIAS: writer.vector(scan.bias, scan.heads),
        **buffers.view(scan.out).slots(op.OUT, op.OUT_STRIDE),
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
        op.HEADS: scan.heads, op.GROUPS: scan.groups, op.KEYS: scan.key_dim,
        op.VALUES: scan.head_dim,
    })  # fmt: skip


def write_channel_scan(writer: RecordWriter, scan: ChannelScan) -> None:
    """Mamba-1's selective scan."""
    op, buffers = channel_scan, writer.buffers
    positions, tables, offset = _addresses(writer, scan)
    writer.record(op.channel_scan, "none", {
        **buffers.view(scan.x).slots(op.X, op.STRIDE),
        **buffers.view(scan.b).slots(op.B, op.B_STRIDE),
        **buffers.view(scan.c).slots(op.C, op.C_STRIDE),
        **buffers.view(scan.dt).slots(op.DT, op.DT_STRIDE),
        op.A: writer.transposed(scan.a, scan.width, scan.key_dim),
        op.D: writer.vector(scan.d, scan.width),
        **buffers.view(scan.out).slots(op.OUT, op.OUT_STRIDE),
        op.POSITIONS: positions, op.TABLES: tables, op.LAYER_OFFSET: offset,
        op.KEYS: scan.key_dim, op.WIDTH: scan.width,
    })  # fmt: skip


WRITE: Mapping[type[Operation], Callable[[RecordWriter, Any], None]] = {
    CausalConv: write_conv,
    ChannelDecay: write_channel_decay,
    ChannelDeltaRule: write_channel_delta_rule,
    ChannelScan: write_channel_scan,
    DeltaRule: write_delta_rule,
    SelectiveScan: write_scan,
}
