"""Activations that few families have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trinity.models.activation_operations import XIELU, Clamp, GaussianTop, HeadGate, Softcap
from trinity.models.operations import Operation
from trinity.runtime.records import elementwise, experts
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import clamp, gaussian_top, head_gate, xielu
from trinity_kernels.record import float_bits


def write_xielu(writer: RecordWriter, activation: XIELU) -> None:
    """The activation xIELU."""
    op = xielu
    writer.record(op.xielu, "none", {
        **writer.buffers.view(activation.x).slots(op.X, op.STRIDE), op.K: activation.width,
        op.ALPHA_P: float_bits(activation.alpha_p), op.ALPHA_N: float_bits(activation.alpha_n),
        op.BETA: float_bits(activation.beta), op.EPS: float_bits(activation.eps),
    })  # fmt: skip


def write_gaussian_top(writer: RecordWriter, top: GaussianTop) -> None:
    """The part of values above a threshold of their row."""
    op = gaussian_top
    writer.record(op.gaussian_top, "none", {
        **writer.buffers.view(top.x).slots(op.X, op.STRIDE), op.K: top.width,
        op.FACTOR: float_bits(top.factor),
    })  # fmt: skip


def write_clamp(writer: RecordWriter, clamped: Clamp) -> None:
    """Values limited to a range."""
    op, x = clamp, writer.buffers.view(clamped.x)
    writer.record(op.clamp, "none", {
        **x.slots(op.X, op.X_STRIDE), **x.slots(op.OUT, op.OUT_STRIDE), op.K: clamped.width,
        op.LOW: float_bits(clamped.low), op.HIGH: float_bits(clamped.high),
    }, rows=experts.buffers_of(writer).rows if clamped.of_experts else None)  # fmt: skip


def write_head_gate(writer: RecordWriter, gated: HeadGate) -> None:
    """Heads multiplied by their gates."""
    op, buffers = head_gate, writer.buffers
    writer.record(op.head_gate, gated.activation, {
        **buffers.view(gated.x).slots(op.X, op.X_STRIDE),
        **buffers.view(gated.gate).slots(op.GATE, op.GATE_STRIDE),
        op.HEADS: gated.heads, op.WIDTH: gated.width,
    })  # fmt: skip


def write_softcap(writer: RecordWriter, capped: Softcap) -> None:
    """Values limited by tanh."""
    x = writer.buffers.view(capped.x)
    elementwise.write_softcap(writer, x, capped.width, capped.cap, writer.step.tokens)


WRITE: Mapping[type[Operation], Callable[[RecordWriter, Any], None]] = {
    Clamp: write_clamp,
    GaussianTop: write_gaussian_top,
    HeadGate: write_head_gate,
    Softcap: write_softcap,
    XIELU: write_xielu,
}
