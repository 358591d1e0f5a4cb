"""Elementwise operations: activations, scales, soft-caps, gated sums and copies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Add, Copy, Gated, GatedAdd, Scale
from trinity.runtime.records.record_list import RowsView
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import activation, add, copy, gated_add, scale, softcap
from trinity_kernels.record import float_bits


def write_gated(writer: RecordWriter, gated: Gated, rows: NDArray[np.int64] | None = None) -> None:
    """The activation of a feed-forward."""
    buffers, op = writer.buffers, activation
    gate, up = buffers.view(gated.gate), dict[int, int]()
    if gated.up:
        up = buffers.view(gated.up).after(4 * gated.first).slots(op.UP, op.UP_STRIDE)
    writer.record(op.gated, gated.activation, {
        op.GATE: gate.address, **up, **gate.slots(op.OUT, op.STRIDE), op.K: gated.width,
    }, rows=rows)  # fmt: skip


def write_scale(writer: RecordWriter, scaled: Scale) -> None:
    """Multiply a buffer by a number."""
    buffers, op, factor = writer.buffers, scale, scaled.factor
    if scaled.weight:
        factor *= writer.number(scaled.weight)
    writer.record(op.scale, "none", {
        **buffers.view(scaled.x).slots(op.X, op.STRIDE),
        op.K: scaled.width, op.FACTOR: float_bits(factor),
    })  # fmt: skip


def write_softcap(
    writer: RecordWriter, x: RowsView, width: int, cap: float, rows: NDArray[np.int64]
) -> int:
    """Soft-cap rows of ``width`` values to -cap...cap; return the slot of their address."""
    op = softcap
    writer.record(op.softcap, "none", {
        **x.slots(op.X, op.STRIDE), op.K: width, op.CAP: float_bits(cap),
    }, rows=rows)  # fmt: skip
    return op.X


def write_gated_add(writer: RecordWriter, added: GatedAdd) -> None:
    """Add a buffer to another, multiplied by each token's gate."""
    buffers, op = writer.buffers, gated_add
    writer.record(op.gated_add, "none", {
        **buffers.view(added.gate).slots(op.GATE, op.GATE_STRIDE),
        **buffers.view(added.x).slots(op.X, op.X_STRIDE),
        **buffers.view(added.out).slots(op.OUT, op.OUT_STRIDE),
        op.K: added.width,
    })  # fmt: skip


def write_add(writer: RecordWriter, added: Add) -> None:
    """Add a buffer to parts of another, and scale the sums."""
    buffers, op = writer.buffers, add
    writer.record(op.add, "none", {
        **buffers.view(added.x).after(4 * added.x_first).slots(op.X, op.X_STRIDE),
        **buffers.view(added.out).after(4 * added.out_first).slots(op.OUT, op.OUT_STRIDE),
        op.K: added.width, op.GROUPS: added.groups, op.FACTOR: float_bits(added.factor),
    })  # fmt: skip


def write_copy(writer: RecordWriter, copied: Copy) -> None:
    """Copy parts of the rows of one buffer to another."""
    buffers, op = writer.buffers, copy
    x = buffers.view(copied.x).after(4 * copied.x_first)
    out = buffers.view(copied.out).after(4 * copied.out_first)
    writer.record(op.copy, "none", {
        **x.slots(op.X, op.X_STRIDE), op.X_STEP: 4 * copied.x_step,
        **out.slots(op.OUT, op.OUT_STRIDE), op.OUT_STEP: 4 * copied.out_step,
        op.GROUPS: copied.groups, op.WIDTH: copied.width,
    })  # fmt: skip
