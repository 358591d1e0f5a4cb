"""Norms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Norm
from trinity.runtime.records.writer import Writer
from trinity_kernels.ops import rmsnorm as op
from trinity_kernels.record import float_bits


def write(
    writer: Writer, norm: Norm, rows: NDArray[np.int64] | None = None,
    index: NDArray[np.int32] | None = None,
) -> None:  # fmt: skip
    """A norm; the thread that has a token also quantizes it next, so nobody waits here."""
    buffers = writer.buffers
    writer.record(op.rmsnorm, "none", {
        op.X: buffers.address(norm.x), op.X_STRIDE: buffers.stride[norm.x],
        op.WEIGHT: writer.vector(norm.weight, norm.width),
        op.OUT: buffers.address(norm.out), op.OUT_STRIDE: buffers.stride[norm.out],
        op.K: norm.width, op.EPS: float_bits(writer.config.rms_norm_eps), op.GROUPS: norm.groups,
        op.INDEX: 0 if index is None else index.ctypes.data, op.ADD: norm.add,
    }, rows=rows)  # fmt: skip
