"""Ternary matrices of BitNet checkpoints, packed or as float master weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.hf_config import Ternary
from trinity.formats.safetensors import SafeTensor
from trinity.tools.convert.plan import SCALE_SUFFIX, Planned

ROWS_PER_BYTE = 4
_CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class TernaryMatrix:
    """Weights (codes - 1) * scale; ``codes`` is (rows, columns) of 0, 1, 2."""

    codes: NDArray[np.uint8]
    scale: np.float32

    def floats(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """The values of some rows."""
        values: NDArray[np.float32] = self.codes[rows].astype(np.float32)
        values -= np.float32(1)
        values *= self.scale
        return values


def check_form(planned: Planned, ternary: Ternary, checkpoint: Checkpoint) -> None:
    """Raises FormatError where the tensor cannot hold such a matrix; reads no weights."""
    tensor = checkpoint.tensor(planned.source)
    rows, columns = planned.shape
    if not ternary.packed:
        check_shape(tensor, planned.shape)
        return
    if tensor.dtype != "U8" or rows % ROWS_PER_BYTE:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}; "
            f"expected the packed form, U8 of shape {(rows // ROWS_PER_BYTE, columns)}: does "
            "quantization_config in config.json belong to this checkpoint?"
        )
    check_shape(tensor, (rows // ROWS_PER_BYTE, columns))
    weight_scale(planned, ternary, checkpoint)


def check_shape(tensor: SafeTensor, shape: tuple[int, ...]) -> None:
    """Raises FormatError where the tensor has another shape than config.json implies."""
    if tensor.shape != shape:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has shape {tensor.shape}, but config.json "
            f"implies {shape}; it belongs to another checkpoint"
        )


def weight_scale(planned: Planned, ternary: Ternary, checkpoint: Checkpoint) -> np.float32:
    """What the codes of a packed weight are multiplied with.

    Source: transformers integrations/bitnet.py: AutoBitLinear multiplies by weight_scale,
    BitLinear divides by it.
    """
    tensor = checkpoint.tensor(planned.source + SCALE_SUFFIX)
    if tensor.data.nbytes == 0 or np.prod(tensor.shape) != 1:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has shape {tensor.shape}; one scale for the "
            "whole weight is expected"
        )
    stored = tensor.all_floats().reshape(-1)[0]
    with np.errstate(all="ignore"):
        scale = np.float32(1) / stored if ternary.divides else stored
    if not np.isfinite(scale) or scale <= 0:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} is {stored}; expected a finite number above "
            "0: the checkpoint is damaged"
        )
    return np.float32(scale)


def read_ternary(planned: Planned, ternary: Ternary, checkpoint: Checkpoint) -> TernaryMatrix:
    """The whole matrix. Raises FormatError for a code that means nothing, or values not finite."""
    tensor = checkpoint.tensor(planned.source)
    if ternary.packed:
        codes = _unpacked(tensor)
        return TernaryMatrix(codes, weight_scale(planned, ternary, checkpoint))
    return _rounded(tensor)


def _unpacked(tensor: SafeTensor) -> NDArray[np.uint8]:
    """Four blocks of rows from each byte, the first in the lowest two bits.

    Source: transformers integrations/bitnet.py, pack_weights.
    """
    packed = tensor.data.reshape(tensor.shape)
    quarter, columns = tensor.shape
    codes = np.empty((ROWS_PER_BYTE * quarter, columns), np.uint8)
    for block in range(ROWS_PER_BYTE):
        part = codes[block * quarter : (block + 1) * quarter]
        np.right_shift(packed, 2 * block, out=part)
        part &= 3
    if (codes == 3).any():
        row, column = np.argwhere(codes == 3)[0].tolist()
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r}: the weight in row {row}, column {column} "
            "has the code 3; only 0, 1 and 2 mean anything: the checkpoint is damaged"
        )
    return codes


def _rounded(tensor: SafeTensor) -> TernaryMatrix:
    """Master weights, rounded in units of their mean magnitude.

    Source: transformers integrations/bitnet.py, WeightQuant: s = 1 / max(mean |w|, 1e-5),
    w = clamp(round half to even (w * s), -1, 1) / s, in float32.
    """
    rows, columns = tensor.shape
    step = max(1, _CHUNK_ELEMENTS // columns)
    starts = range(0, rows, step)
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # the mean shows what is not finite
        for first in starts:
            values = tensor.floats(tensor.rows(first, first + step))
            total += float(np.abs(values).sum(dtype=np.float64))
        mean = np.float32(total / (rows * columns))
    if not np.isfinite(mean):
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has weights that are not finite numbers; "
            "the checkpoint is damaged"
        )
    inverse = np.float32(1) / max(mean, np.float32(1e-5))
    codes = np.empty((rows, columns), np.uint8)
    for first in starts:
        values = tensor.floats(tensor.rows(first, first + step))
        values *= inverse
        np.rint(values, out=values)
        np.clip(values, -1, 1, out=values)
        codes[first : first + step] = values + np.float32(1)
    return TernaryMatrix(codes, np.float32(1) / inverse)
