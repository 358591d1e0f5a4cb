"""RWKV 6's operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trinity.models.operations import Operation
from trinity.models.recurrent_operations import ShiftBy, Wkv6Decay, Wkv6Norm, Wkv6Rule
from trinity.runtime.records.rwkv import rows_of, state_of
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import rwkv6 as op
from trinity_kernels.record import float_bits


def write_shift(writer: RecordWriter, shift: ShiftBy) -> None:
    """A token mixed with the one before it, by numbers of its own."""
    parts = len(shift.outs)
    outs = {name: op.OUTS + 2 * part for part, name in enumerate(shift.outs)}
    rows = rows_of(writer, {shift.x: op.X, shift.delta: op.DELTA, **outs})
    rows[op.DELTA] += 4 * shift.first * shift.width
    writer.record(op.shift_by, "none", {
        **rows, **state_of(writer, shift), op.MU: writer.vector(shift.weight, parts * shift.width),
        op.PARTS: parts, op.SIZE: shift.width,
    })  # fmt: skip


def write_decay(writer: RecordWriter, decay: Wkv6Decay) -> None:
    """The decay of each key."""
    writer.record(op.wkv6_decay, "none", {
        **rows_of(writer, {"w": op.W}), op.HEADS: decay.heads, op.SIZE: decay.size,
        op.W0: writer.vector("time_mix_decay", decay.heads * decay.size),
    })  # fmt: skip


def write_rule(writer: RecordWriter, rule: Wkv6Rule) -> None:
    """What is read of the state, and its update."""
    buffers = {"r": op.R, "w": op.W, "k": op.K, "v": op.V, "o": op.OUT}
    writer.record(op.wkv6_rule, "none", {
        **rows_of(writer, buffers), **state_of(writer, rule), op.HEADS: rule.heads,
        op.SIZE: rule.size, op.U: writer.vector("time_mix_first", rule.heads * rule.size),
    })  # fmt: skip


def write_norm(writer: RecordWriter, norm: Wkv6Norm) -> None:
    """The norm of each head."""
    width = norm.heads * norm.size
    writer.record(op.wkv6_norm, "none", {
        **rows_of(writer, {"o": op.OUT}), op.HEADS: norm.heads, op.SIZE: norm.size,
        op.NORM: writer.vector("time_mix_ln", width),
        op.NORM_BIAS: writer.vector("time_mix_ln.bias", width), op.EPS: float_bits(norm.eps),
    })  # fmt: skip


WRITE: Mapping[type[Operation], Callable[[RecordWriter, Any], None]] = {
    ShiftBy: write_shift,
    Wkv6Decay: write_decay,
    Wkv6Norm: write_norm,
    Wkv6Rule: write_rule,
}
