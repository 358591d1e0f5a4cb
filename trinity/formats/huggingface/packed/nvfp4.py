"""NVFP4 as compressed-tensors and ModelOpt have it: codes, scales of groups, one scale of all.

Codes are U8, (rows, columns / 2); the first of two neighbours is in the lower half of a byte.
Scales are F8_E4M3, (rows, columns / 16).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.huggingface.packed import mlx_blocks
from trinity.formats.huggingface.packed.fp8 import scale_values
from trinity.formats.huggingface.packed.integers import expect
from trinity.formats.huggingface.packed.weight import Packed, Part
from trinity.formats.safetensors import SafeTensor

GROUP, _BLOCK = 16, 64


def nvfp4_weight(
    name: str, codes: SafeTensor, scales: SafeTensor, whole: SafeTensor, *, divides: bool
) -> Packed:
    """Return the weight ``name``, multiplied, or divided, by the number of ``whole``.

    Raises FormatError for tensors that do not fit together, or an invalid number.
    """
    if codes.dtype != "U8" or len(codes.shape) != 2 or 0 in codes.shape:
        raise FormatError(
            f"{codes.source}: tensor {codes.name!r} is {codes.dtype} of shape {codes.shape}; "
            "expected U8, two codes of NVFP4 to a byte: the files are damaged"
        )
    rows, columns = codes.shape[0], 2 * codes.shape[1]
    if columns % GROUP:
        raise FormatError(
            f"{codes.source}: tensor {codes.name!r} has rows of {columns} weights; expected groups "
            f"of {GROUP}: the files are damaged"
        )
    expect(scales, ("F8_E4M3",), (rows, columns // GROUP))
    if columns % _BLOCK:
        raise UnsupportedError(
            f"{codes.source}: tensor {codes.name!r} has rows of {columns} weights; trinity "
            f"multiplies NVFP4 in blocks of {_BLOCK}: use the unquantized model"
        )
    return Packed(
        name, (rows, columns), "NVFP4", codes.source, partial(_parts, codes, scales),
        partial(mlx_blocks.nvfp4, scales), _factor(whole, divides),
    )  # fmt: skip


def _parts(codes: SafeTensor, scales: SafeTensor) -> tuple[Part, ...]:
    return codes.elements(), scales.elements()


def _factor(tensor: SafeTensor, divides: bool) -> np.ndarray[tuple[()], np.dtype[np.float32]]:
    if int(np.prod(tensor.shape)) != 1:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has shape {tensor.shape}; expected one "
            "number: the files are damaged"
        )
    value = scale_values(tensor, tensor.elements()).reshape(())
    with np.errstate(divide="ignore", over="ignore"):
        factor = np.float32(1) / value if divides else value
    if not np.isfinite(factor):
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} is {float(value)}, which weights are divided "
            "by; the checkpoint is damaged: download it again"
        )
    return np.asarray(factor, np.float32)
