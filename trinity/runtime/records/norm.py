"""Norms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.formats.tensor_names import beside
from trinity.models.operations import Norm
from trinity.runtime.records.writer import RecordWriter
from trinity_kernels.ops import norm as op
from trinity_kernels.record import float_bits


def write(
    writer: RecordWriter,
    norm: Norm,
    rows: NDArray[np.int64] | None = None,
    index: NDArray[np.int32] | None = None,
) -> None:
    """A norm; ``index`` names the rows of its input, by default all."""
    buffers = writer.buffers
    values = norm.width * (norm.groups if norm.per_group else 1)
    bias = 0
    if norm.kind == "layer" and norm.weight and writer.has(beside(norm.weight, "bias")):
        bias = writer.vector(beside(norm.weight, "bias"), values)
    writer.record(op.norm, norm.kind, {
        **buffers.view(norm.x).slots(op.X, op.X_STRIDE),
        op.WEIGHT: writer.vector(norm.weight, values, norm.factor), op.BIAS: bias,
        op.WEIGHT_STEP: 4 * norm.width if norm.per_group else 0,
        **buffers.view(norm.out).slots(op.OUT, op.OUT_STRIDE),
        op.K: norm.width, op.GROUPS: norm.groups,
        op.EPS: float_bits(norm.eps or writer.config.rms_norm_eps),
        op.INDEX: 0 if index is None else index.ctypes.data, op.ADD: norm.add,
    }, rows=rows)  # fmt: skip
