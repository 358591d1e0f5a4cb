"""Operations on one value after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Gated
from trinity.runtime.records.writer import Writer
from trinity_kernels.ops import activation as op


def write_gated(writer: Writer, gated: Gated, rows: NDArray[np.int64] | None = None) -> None:
    """The feed-forward's activation."""
    buffers = writer.buffers
    writer.record(op.gated, gated.activation, {
        op.GATE: buffers.address(gated.gate), op.UP: buffers.address(gated.up),
        op.OUT: buffers.address(gated.gate), op.STRIDE: buffers.stride[gated.gate],
        op.K: gated.width,
    }, rows=rows)  # fmt: skip
