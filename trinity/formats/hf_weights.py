"""How a checkpoint stores weights: floats, packed ternary codes, master weights to be rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.hf_config import Ternary
from trinity.formats.hf_tensors import SCALE_SUFFIX, HFTensor
from trinity.formats.safetensors import SafeTensor

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


def check_stored(needed: HFTensor, ternary: Ternary | None, checkpoint: Checkpoint) -> None:
    """Raises FormatError where the checkpoint's tensor cannot hold the one that is needed.

    Form, shape and dtype are looked at, no weights. ``ternary``: how layers' weights are stored
    in a ternary model. Raises UnsupportedError for a dtype that is not read.
    """
    if ternary is not None and ternary.packed and needed.kind == "linear":
        _check_packed(needed, ternary, checkpoint)
        return
    stored = checkpoint.tensor(needed.source)
    _check_shape(stored, needed.shape)
    if stored.dtype == "U8":
        raise FormatError(
            f"{stored.source}: tensor {stored.name!r} is stored as U8, which is how packed ternary "
            "weights are; config.json has no quantization_config that says so"
        )
    stored.floats(stored.data[:0].reshape(1, 0))  # refuses dtypes that are no floats


def _check_packed(needed: HFTensor, ternary: Ternary, checkpoint: Checkpoint) -> None:
    stored = checkpoint.tensor(needed.source)
    rows, columns = needed.shape
    if stored.dtype != "U8" or rows % ROWS_PER_BYTE:
        raise FormatError(
            f"{stored.source}: tensor {stored.name!r} is {stored.dtype} of shape {stored.shape}; "
            f"expected the packed form, U8 of shape {(rows // ROWS_PER_BYTE, columns)}: does "
            "quantization_config in config.json belong to this checkpoint?"
        )
    _check_shape(stored, (rows // ROWS_PER_BYTE, columns))
    weight_scale(needed, ternary, checkpoint)


def _check_shape(stored: SafeTensor, shape: tuple[int, ...]) -> None:
    """Raises FormatError where the tensor has another shape than config.json implies."""
    if stored.shape != shape:
        raise FormatError(
            f"{stored.source}: tensor {stored.name!r} has shape {stored.shape}, but config.json "
            f"implies {shape}; it belongs to another checkpoint"
        )


def weight_scale(needed: HFTensor, ternary: Ternary, checkpoint: Checkpoint) -> np.float32:
    """What the codes of a packed weight are multiplied with.

    Source: transformers integrations/bitnet.py: AutoBitLinear multiplies by weight_scale,
    BitLinear divides by it.
    """
    stored = checkpoint.tensor(needed.source + SCALE_SUFFIX)
    if stored.data.nbytes == 0 or np.prod(stored.shape) != 1:
        raise FormatError(
            f"{stored.source}: tensor {stored.name!r} has shape {stored.shape}; one scale for the "
            "whole weight is expected"
        )
    value = stored.all_floats().reshape(-1)[0]
    with np.errstate(all="ignore"):
        scale = np.float32(1) / value if ternary.divides else value
    if not np.isfinite(scale) or scale <= 0:
        raise FormatError(
            f"{stored.source}: tensor {stored.name!r} is {value}; expected a finite number above "
            "0: the checkpoint is damaged"
        )
    return np.float32(scale)


def read_ternary(needed: HFTensor, ternary: Ternary, checkpoint: Checkpoint) -> TernaryMatrix:
    """The whole matrix. Raises FormatError for a code that means nothing, or values not finite."""
    stored = checkpoint.tensor(needed.source)
    if ternary.packed:
        codes = _unpacked(stored)
        return TernaryMatrix(codes, weight_scale(needed, ternary, checkpoint))
    return _rounded(stored)


def _unpacked(stored: SafeTensor) -> NDArray[np.uint8]:
    """Four blocks of rows from each byte, the first in the lowest two bits.

    Source: transformers integrations/bitnet.py, pack_weights.
    """
    packed = stored.data.reshape(stored.shape)
    quarter, columns = stored.shape
    codes = np.empty((ROWS_PER_BYTE * quarter, columns), np.uint8)
    for block in range(ROWS_PER_BYTE):
        part = codes[block * quarter : (block + 1) * quarter]
        np.right_shift(packed, 2 * block, out=part)
        part &= 3
    if (codes == 3).any():
        row, column = np.argwhere(codes == 3)[0].tolist()
        raise FormatError(
            f"{stored.source}: tensor {stored.name!r}: the weight in row {row}, column {column} "
            "has the code 3; only 0, 1 and 2 mean anything: the checkpoint is damaged"
        )
    return codes


def _rounded(stored: SafeTensor) -> TernaryMatrix:
    """Master weights, rounded in units of their mean magnitude.

    Source: transformers integrations/bitnet.py, WeightQuant: s = 1 / max(mean |w|, 1e-5),
    w = clamp(round half to even (w * s), -1, 1) / s, in float32.
    """
    rows, columns = stored.shape
    step = max(1, _CHUNK_ELEMENTS // columns)
    starts = range(0, rows, step)
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # the mean shows what is not finite
        for first in starts:
            values = stored.floats(stored.rows(first, first + step))
            total += float(np.abs(values).sum(dtype=np.float64))
        mean = np.float32(total / (rows * columns))
    if not np.isfinite(mean):
        raise FormatError(
            f"{stored.source}: tensor {stored.name!r} has weights that are not finite numbers; "
            "the checkpoint is damaged"
        )
    inverse = np.float32(1) / max(mean, np.float32(1e-5))
    codes = np.empty((rows, columns), np.uint8)
    for first in starts:
        values = stored.floats(stored.rows(first, first + step))
        values *= inverse
        np.rint(values, out=values)
        np.clip(values, -1, 1, out=values)
        codes[first : first + step] = values + np.float32(1)
    return TernaryMatrix(codes, np.float32(1) / inverse)
