"""Integer codes under a scale and a zero point: (code - zero) * scale, as blocks of AFFINE types.

The zero point becomes a minimum, -zero * scale. With scales of 16 bits all of it is exact in
float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.huggingface.packed.fp8 import scale_values
from trinity.formats.huggingface.packed.mlx_blocks import affine_blocks, affine_type
from trinity.formats.huggingface.packed.weight import Bytes, Part
from trinity.formats.safetensors import SafeTensor

BITS = (2, 4, 8)
FLOATS = ("F32", "F16", "BF16")
_BLOCK = 32
_MISMATCH = "config.json and the files belong to different models, or the files are damaged"
Words = NDArray[np.uint32]


def type_of(bits: int, columns: int, groups: int) -> str:
    """Return the type for rows of ``columns`` codes of ``bits`` in ``groups``."""
    return affine_type(bits, columns // groups, "F32")


def rows_of_blocks(
    bits: int, scales: SafeTensor, codes: Bytes, d: Part, zeros: Part | int
) -> Bytes:
    """Encode rows of blocks.

    Shapes: codes (rows, bytes), lowest bits first; d and zeros (rows, groups).
    Raises FormatError for a scale that is not finite or too large.
    """
    scale = scale_values(scales, d)
    minima = np.asarray(zeros, np.float32) * -scale
    if not np.isfinite(minima).all():
        largest = float(np.abs(scale).max())
        raise FormatError(
            f"{scales.source}: tensor {scales.name!r} has the scale {largest:g}, too large for "
            "a zero point; the checkpoint is damaged: download it again"
        )
    return affine_blocks(bits, "F32", codes, scale, minima)


def words(tensor: SafeTensor) -> Words:
    """Return the 32-bit elements in the tensor's shape, as a view of the mapping."""
    return tensor.data.view("<u4").reshape(tensor.shape)


def expect(tensor: SafeTensor, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    """Raise FormatError if the tensor has another dtype or shape."""
    if tensor.dtype not in dtypes or tensor.shape != shape:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}; "
            f"expected {' or '.join(dtypes)} of shape {shape}: {_MISMATCH}"
        )


def check_groups(tensor: SafeTensor, columns: int, groups: int) -> None:
    """Raise FormatError if rows are not whole groups, UnsupportedError for uneven ones."""
    if groups == 0 or columns == 0 or columns % groups:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has {groups} groups for {columns} weights of "
            f"a row; expected groups of equal size: {_MISMATCH}"
        )
    if columns // groups % _BLOCK:
        raise UnsupportedError(
            f"{tensor.source}: tensor {tensor.name!r} has a scale for each {columns // groups} "
            f"weights; trinity multiplies blocks of {_BLOCK}: use the unquantized model"
        )


def check_order(tensor: SafeTensor, columns: int, groups: int) -> None:
    """Raise UnsupportedError if a group of ``g_idx`` does not consist of neighbours.

    A ``g_idx`` of -1 only is compressed-tensors' way to say that it does.
    """
    expect(tensor, ("I32",), (columns,))
    index = tensor.data.view("<i4")
    if (index == -1).all() or (index == np.arange(columns) // (columns // groups)).all():
        return
    raise UnsupportedError(
        f"{tensor.source}: tensor {tensor.name!r} gives neighbouring weights scales of different "
        "groups (act-order, desc_act), which trinity cannot run; use a checkpoint quantized "
        "without it, or the unquantized model"
    )
