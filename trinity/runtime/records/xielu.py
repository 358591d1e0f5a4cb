"""The activation xIELU."""

from __future__ import annotations

from trinity.models.operations import XIELU
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import xielu as op
from trinity_kernels.record import float_bits


def write(writer: RecordWriter, activation: XIELU) -> None:
    """Apply the activation to a buffer."""
    writer.record(op.xielu, "none", {
        **writer.buffers.view(activation.x).slots(op.X, op.STRIDE), op.K: activation.width,
        op.ALPHA_P: float_bits(activation.alpha_p), op.ALPHA_N: float_bits(activation.alpha_n),
        op.BETA: float_bits(activation.beta), op.EPS: float_bits(activation.eps),
    })  # fmt: skip
