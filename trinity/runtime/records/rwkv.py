"""RWKV 7's operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trinity.models.operations import Operation
from trinity.models.recurrent_operations import (
    Recurrent,
    RwkvKeys,
    RwkvOutput,
    RwkvRule,
    TokenShift,
)
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import rwkv as op
from trinity_kernels.record import float_bits


def state_of(writer: RecordWriter, operation: Recurrent) -> dict[int, int]:
    """The slots of a state."""
    step = writer.step
    return {
        op.POSITIONS: int(step.positions.ctypes.data),
        op.TABLES: int(step.state_tables.ctypes.data),
        op.LAYER_OFFSET: writer.state(operation),
    }


def rows_of(writer: RecordWriter, buffers: Mapping[str, int]) -> dict[int, int]:
    """The slots of buffers by name: an address, and a stride in the next slot."""
    view = writer.buffers.view
    slots: dict[int, int] = {}
    for name, slot in buffers.items():
        slots |= view(name).slots(slot, slot + 1)
    return slots


def write_shift(writer: RecordWriter, shift: TokenShift) -> None:
    """A token mixed with the one before it."""
    parts = len(shift.outs)
    outs = {name: op.OUTS + 2 * part for part, name in enumerate(shift.outs)}
    writer.record(op.token_shift, "none", {
        **rows_of(writer, {shift.x: op.X, **outs}), **state_of(writer, shift),
        op.MU: writer.vector(shift.weight, parts * shift.width), op.PARTS: parts,
        op.SIZE: shift.width,
    })  # fmt: skip


def write_keys(writer: RecordWriter, keys: RwkvKeys) -> None:
    """The decays, keys and values of each head."""
    buffers = {
        "w": op.W, "k": op.K, "v": op.V, "a": op.A, "keys": op.KEYS, "v_first": op.FIRST,
    }  # fmt: skip
    names = {"w0": op.W0, "a0": op.A0, "k_k": op.K_K, "k_a": op.K_A}
    if not keys.first:
        buffers["v_mix"], names["v0"] = op.MIX, op.V0
    width = keys.heads * keys.size
    writer.record(op.rwkv_keys, "none", {
        **rows_of(writer, buffers), op.HEADS: keys.heads, op.SIZE: keys.size,
        **{slot: writer.vector(f"time_mix_{name}", width) for name, slot in names.items()},
    })  # fmt: skip


def write_rule(writer: RecordWriter, rule: RwkvRule) -> None:
    """The update of the state."""
    buffers = {
        "r": op.R, "w": op.W, "k": op.K, "v": op.V, "a": op.A, "keys": op.KEYS, "o": op.OUT,
    }  # fmt: skip
    writer.record(op.rwkv_rule, "none", {
        **rows_of(writer, buffers), **state_of(writer, rule), op.HEADS: rule.heads,
        op.SIZE: rule.size,
    })  # fmt: skip


def write_output(writer: RecordWriter, output: RwkvOutput) -> None:
    """The norm of each head's result, and its gate."""
    buffers = {"r": op.R, "k": op.K, "v": op.V, "o": op.OUT}
    if output.gated:
        buffers["g"] = op.G
    width = output.heads * output.size
    writer.record(op.rwkv_output, "none", {
        **rows_of(writer, buffers), op.HEADS: output.heads, op.SIZE: output.size,
        op.R_K: writer.vector("time_mix_r_k", width), op.NORM: writer.vector("time_mix_ln", width),
        op.NORM_BIAS: writer.vector("time_mix_ln.bias", width), op.EPS: float_bits(output.eps),
    })  # fmt: skip


WRITE: Mapping[type[Operation], Callable[[RecordWriter, Any], None]] = {
    RwkvKeys: write_keys,
    RwkvOutput: write_output,
    RwkvRule: write_rule,
    TokenShift: write_shift,
}
