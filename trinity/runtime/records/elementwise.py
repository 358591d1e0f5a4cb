"""Operations on one value after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Copy, Gated, GatedAdd, Scale
from trinity.runtime.records.linear import BufferView
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import activation, copy, gated_add, scale, softcap
from trinity_kernels.record import float_bits


def write_gated(writer: RecordWriter, gated: Gated, rows: NDArray[np.int64] | None = None) -> None:
    """The feed-forward's activation."""
    buffers, op = writer.buffers, activation
    up = up_stride = 0
    if gated.up:
        up, up_stride = buffers.address(gated.up) + 4 * gated.first, buffers.stride[gated.up]
    writer.record(op.gated, gated.activation, {
        op.GATE: buffers.address(gated.gate), op.UP: up, op.UP_STRIDE: up_stride,
        op.OUT: buffers.address(gated.gate), op.STRIDE: buffers.stride[gated.gate],
        op.K: gated.width,
    }, rows=rows)  # fmt: skip


def write_scale(writer: RecordWriter, scaled: Scale) -> None:
    """A buffer times one number."""
    buffers, op, factor = writer.buffers, scale, scaled.factor
    if scaled.weight:
        factor *= writer.number(scaled.weight)
    writer.record(op.scale, "none", {
        op.X: buffers.address(scaled.x), op.STRIDE: buffers.stride[scaled.x],
        op.K: scaled.width, op.FACTOR: float_bits(factor),
    })  # fmt: skip


def write_softcap(
    writer: RecordWriter, x: BufferView, width: int, cap: float, rows: NDArray[np.int64]
) -> int:
    """Rows of ``width`` values kept within -cap and cap; the slot that holds their address."""
    op = softcap
    writer.record(op.softcap, "none", {
        op.X: x.address, op.STRIDE: x.stride, op.K: width, op.CAP: float_bits(cap),
    }, rows=rows)  # fmt: skip
    return op.X


def write_gated_add(writer: RecordWriter, added: GatedAdd) -> None:
    """A buffer times each token's gate, onto another."""
    buffers, op = writer.buffers, gated_add
    writer.record(op.gated_add, "none", {
        op.GATE: buffers.address(added.gate), op.GATE_STRIDE: buffers.stride[added.gate],
        op.X: buffers.address(added.x), op.X_STRIDE: buffers.stride[added.x],
        op.OUT: buffers.address(added.out), op.OUT_STRIDE: buffers.stride[added.out],
        op.K: added.width,
    })  # fmt: skip


def write_copy(writer: RecordWriter, copied: Copy) -> None:
    """Pieces of one buffer to another."""
    buffers, op = writer.buffers, copy
    writer.record(op.copy, "none", {
        op.X: buffers.address(copied.x) + 4 * copied.x_first,
        op.X_STRIDE: buffers.stride[copied.x], op.X_STEP: 4 * copied.x_step,
        op.OUT: buffers.address(copied.out) + 4 * copied.out_first,
        op.OUT_STRIDE: buffers.stride[copied.out], op.OUT_STEP: 4 * copied.out_step,
        op.GROUPS: copied.groups, op.WIDTH: copied.width,
    })  # fmt: skip
