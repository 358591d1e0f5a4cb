"""Walsh-Hadamard transforms of the inputs of rotated weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Hadamard
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import hadamard as op


def write(writer: RecordWriter, transform: Hadamard, rows: NDArray[np.int64] | None = None) -> None:
    """The transform of all rows, or of ``rows``."""
    rotation = writer.config.rotation
    assert rotation is not None, transform
    writer.record(op.hadamard, "none", {
        **writer.buffers.view(transform.x).slots(op.X, op.STRIDE),
        **writer.buffers.view(transform.out).slots(op.OUT, op.OUT_STRIDE),
        op.FACTORS: writer.builder.rotation(transform.width).ctypes.data,
        op.K: transform.width, op.BLOCK: rotation.block_size, op.AFTER: transform.inverse,
    }, rows=rows)  # fmt: skip
