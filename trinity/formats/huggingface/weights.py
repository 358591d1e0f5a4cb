"""How a checkpoint stores weights: floats, blocks of MXFP4, ternary codes or master weights."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.packed.weight import CHUNK_ELEMENTS, Packed
from trinity.formats.huggingface.quantization import TernaryPacking
from trinity.formats.huggingface.stored import BLOCK, Change, HFTensor, Stored, View, as_it_is
from trinity.formats.huggingface.tensors import SCALE_SUFFIX
from trinity.formats.made_tensor import rows_of
from trinity.formats.safetensors import SafeTensor
from trinity.formats.ternary_tensor import TernaryMatrix

ROWS_PER_BYTE = 4
_NO_NUMBER = 255  # the code of NaN as a scale of MXFP4


def check_stored(
    needed: HFTensor, ternary: TernaryPacking | None, checkpoint: LogicalCheckpoint
) -> None:
    """Raise FormatError if the checkpoint's tensor cannot hold the required one.

    This checks form, shape and dtype without reading weights. ``ternary``: how layers' weights are
    stored in a ternary model. Raises UnsupportedError for another dtype.
    """
    known = checkpoint.packed
    packed = [known[name] for name in needed.stored.names if name in known]
    for weight in packed:
        _check_views(weight, needed)
    if len(packed) == len(needed.stored.names):
        return
    if ternary is not None and ternary.packed and needed.linear:
        _check_packed(needed, ternary, checkpoint)
        return
    if needed.stored.blocks:
        _check_blocks(needed, checkpoint)
        return
    for name in needed.stored.names:
        if name in known:
            continue
        stored = checkpoint.tensor(name)
        _check_views(stored, needed)
        if stored.dtype == "U8":
            raise FormatError(
                f"{stored.source}: tensor {stored.name!r} is stored as U8, which is how packed "
                "ternary weights are; config.json has no quantization_config that says so"
            )
        stored.floats(stored.elements().reshape(-1)[:0])  # refuses dtypes that are no floats


def _check_blocks(needed: HFTensor, checkpoint: LogicalCheckpoint) -> None:
    *rows, columns = needed.shape
    scales = (*rows, columns // BLOCK)
    for name, shape in zip(needed.stored.names, ((*scales, BLOCK // 2), scales), strict=True):
        stored = checkpoint.tensor(name)
        if columns % BLOCK or stored.dtype != "U8":
            raise FormatError(
                f"{stored.source}: tensor {stored.name!r} is {stored.dtype} of shape "
                f"{stored.shape}; expected a part of MXFP4, U8 for rows of {columns} weights in "
                f"blocks of {BLOCK}"
            )
        if seen_shape(needed.stored.view, stored.shape) != shape:
            raise _misfit(stored, shape)


def _check_packed(needed: HFTensor, ternary: TernaryPacking, checkpoint: LogicalCheckpoint) -> None:
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


def _check_shape(stored: SafeTensor | Packed, shape: tuple[int, ...]) -> None:
    """Raise FormatError if the tensor's shape is not the one that config.json implies."""
    if stored.shape != shape:
        raise _misfit(stored, shape)


def _check_views(stored: SafeTensor | Packed, needed: HFTensor) -> None:
    """Raise FormatError if the views of the tensor do not give the required values."""
    shape = needed.shape
    if needed.stored.is_divided:
        shape = shape[1:]
    if not is_seen(needed.stored, stored.shape, shape):
        raise _misfit(stored, shape)


def is_seen(stored: Stored, stored_shape: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether the views give values of ``shape``; ``stored_shape`` is the checkpoint tensor's.

    A view may split an axis, but the first or the last one remains; of a stack, two axes remain.
    """
    if stored.views == (as_it_is,):
        return stored_shape == shape
    seen = [seen_shape(view, stored_shape) for view in stored.views]
    known = [known_shape for known_shape in seen if known_shape]
    if len(known) < len(seen) or sum(map(prod, known)) != prod(shape):
        return False
    return len(shape) < 2 or all(_keeps_axes(known_shape, shape) for known_shape in known)


def _keeps_axes(seen: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether two axes of a stack, or otherwise the first or the last axis, are equal."""
    if len(seen) == len(shape) == 3:
        return sum(a == b for a, b in zip(seen, shape, strict=True)) >= 2
    return seen[-1] == shape[-1] or seen[0] == shape[0]


def seen_shape(view: View, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape that a view gives an array, or None if it cannot be taken."""
    try:
        return view(np.broadcast_to(np.uint8(0), shape)).shape
    except (IndexError, ValueError, ZeroDivisionError):
        return None


def _misfit(stored: SafeTensor | Packed, shape: tuple[int, ...]) -> FormatError:
    return FormatError(
        f"{stored.source}: tensor {stored.name!r} has shape {stored.shape}, but config.json "
        f"implies {shape}; it belongs to another checkpoint"
    )


def weight_scale(
    needed: HFTensor, ternary: TernaryPacking, checkpoint: LogicalCheckpoint
) -> np.float32:
    """Return the factor of the codes of a packed weight.

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


def read_ternary(
    needed: HFTensor, ternary: TernaryPacking, checkpoint: LogicalCheckpoint
) -> TernaryMatrix:
    """Read the whole matrix. Raises FormatError for an invalid code or a non-finite value."""
    stored = checkpoint.tensor(needed.source)
    if ternary.packed:
        return TernaryMatrix(_unpacked(stored), weight_scale(needed, ternary, checkpoint))
    return _rounded(stored)


def read_floats(
    stored: SafeTensor, elements: NDArray[np.generic], change: Change | None
) -> Iterator[NDArray[np.float32]]:
    """Yield ``elements`` of ``stored`` as float32 in chunks, each changed by ``change``."""
    for piece in rows_of(elements, CHUNK_ELEMENTS):
        values = stored.floats(piece)
        if change is not None:
            with np.errstate(all="ignore"):  # damaged weights; the logits show it
                values = change(values)
        yield values


def read_blocks(needed: HFTensor, checkpoint: LogicalCheckpoint) -> Iterator[NDArray[np.uint8]]:
    """Blocks of MXFP4 as GGUF has them: one piece, (blocks, 17) bytes, after the other.

    A block is its scale and 16 bytes. Here byte k holds the elements 2k and 2k + 1, in GGUF k and
    k + 16; the first in the lower bits. Source: llama.cpp conversion/gpt_oss.py.
    Raises FormatError for a scale that is not a number.
    """
    codes, scales = (checkpoint.tensor(name) for name in needed.stored.names)
    pairs, exponents = (needed.stored.view(tensor.elements()) for tensor in (codes, scales))
    step = max(1, CHUNK_ELEMENTS // (pairs.shape[-1] * pairs.shape[-2]))
    for index in np.ndindex(pairs.shape[:-3]):
        for first in range(0, pairs.shape[-3], step):
            packed = pairs[index][first : first + step].reshape(-1, BLOCK // 2)
            nibbles = np.empty((len(packed), BLOCK), np.uint8)
            nibbles[:, 0::2], nibbles[:, 1::2] = packed & 15, packed >> 4
            blocks = np.empty((len(packed), 1 + BLOCK // 2), np.uint8)
            blocks[:, 0] = exponents[index][first : first + step].reshape(-1)
            if (blocks[:, 0] == _NO_NUMBER).any():
                raise FormatError(
                    f"{scales.source}: tensor {scales.name!r} has the scale {_NO_NUMBER}, which is "
                    "not a number; the checkpoint is damaged"
                )
            blocks[:, 1:] = nibbles[:, : BLOCK // 2] | nibbles[:, BLOCK // 2 :] << 4
            yield blocks


def _unpacked(stored: SafeTensor) -> NDArray[np.uint8]:
    """Unpack four blocks of rows from each byte, the first in the lowest two bits.

    Source: transformers integrations/bitnet.py, pack_weights.
    """
    packed = stored.elements()
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
    """Round master weights in units of their mean magnitude.

    Source: transformers integrations/bitnet.py, WeightQuant: s = 1 / max(mean |w|, 1e-5),
    w = clamp(round half to even (w * s), -1, 1) / s, in float32.
    """
    rows, columns = stored.shape
    elements = stored.elements()
    step = max(1, CHUNK_ELEMENTS // columns)
    starts = range(0, rows, step)
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # the mean is not finite if a value is not
        for first in starts:
            values = stored.floats(elements[first : first + step])
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
        values = stored.floats(elements[first : first + step])
        values *= inverse
        np.rint(values, out=values)
        np.clip(values, -1, 1, out=values)
        codes[first : first + step] = values + np.float32(1)
    return TernaryMatrix(codes, np.float32(1) / inverse)
