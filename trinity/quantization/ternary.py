"""Exact conversions of ternary matrices between I2_S, TQ1_0 and TQ2_0.

An I2_S file has one float32 scale per matrix. TQ1_0 and TQ2_0 have a half-precision scale per 256
weights. A scale that half precision would round is stored in a separate tensor called .scale
instead, as in `trinity convert` and llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial

import numpy as np

from trinity.errors import UnsupportedError
from trinity.formats.provider import Tensor
from trinity.quantization.rows import (
    I2_S_BLOCK,
    Bytes,
    Floats,
    encode_rows,
    i2_s_codes,
    i2_s_scale,
    in_order,
    read_rows,
    row_steps,
)
from trinity_kernels.quants.i2_s import pack_codes

TERNARY_BLOCKS = ("TQ1_0", "TQ2_0")


def is_exact(source_type: str, target_type: str) -> bool:
    """Whether the conversion is exact: always to I2_S; to TQ1_0 and TQ2_0 from ternary types."""
    return target_type == "I2_S" or (
        target_type in TERNARY_BLOCKS and source_type in ("I2_S", *TERNARY_BLOCKS)
    )


def rounds_in_half(tensor: Tensor) -> bool:
    """Whether half precision would change the scale of an I2_S tensor."""
    scale = i2_s_scale(tensor)
    with np.errstate(over="ignore"):
        return bool(np.float32(np.float16(scale)) != scale)


def bare_rows(tensor: Tensor, type_name: str, first: int, last: int) -> Bytes:
    """Convert rows of an I2_S tensor to TQ1_0 or TQ2_0 as -1, 0, 1, without the scale."""
    values: Floats = i2_s_codes(tensor, first, last).astype(np.float32)
    values -= np.float32(1)
    return encode_rows(tensor, values, type_name)


def i2_s_chunks(
    tensor: Tensor, factor: float, pool: Executor, ahead: int
) -> Iterator[Bytes | Floats]:
    """Yield the bytes of a ternary matrix in I2_S; ``factor`` multiplies its scale.

    The matrix is read twice: for its scale, then for its codes. Raises UnsupportedError if it is
    not ternary.
    """
    scale = common_scale(
        in_order(pool, partial(_magnitude, tensor), row_steps(tensor.shape), ahead), tensor
    )
    packed: Callable[[int, int], Bytes] = partial(_packed, tensor)
    yield from in_order(pool, packed, row_steps(tensor.shape), ahead)
    tail = np.zeros(8, "<f4")
    tail[0] = (scale or np.float32(1)) * np.float32(factor)
    yield tail


def check_start(tensor: Tensor) -> None:
    """Raise UnsupportedError if the first rows are not ternary; reads only these."""
    common_scale(iter([_magnitude(tensor, *row_steps(tensor.shape)[0])]), tensor)


def common_scale(magnitudes: Iterator[np.float32], tensor: Tensor) -> np.float32:
    """Return the common magnitude of all weights that are not 0, or 0 if all are."""
    scale = np.float32(0)
    for magnitude in magnitudes:
        if scale and magnitude and magnitude != scale:
            raise _not_ternary(tensor, scale, magnitude)
        scale = scale or magnitude
    return scale


def is_ternary(values: Floats) -> bool:
    """Whether each block of 256 weights has only the values -d, 0, d."""
    magnitudes = np.abs(values.reshape(-1, 256))
    largest = magnitudes.max(axis=1, keepdims=True)
    return bool(((magnitudes == 0) | (magnitudes == largest)).all())


def _magnitude(tensor: Tensor, first: int, last: int) -> np.float32:
    magnitudes = np.abs(read_rows(tensor, first, last))
    largest: np.float32 = magnitudes.max()
    others = magnitudes[(magnitudes != 0) & (magnitudes != largest)]
    if len(others):
        raise _not_ternary(tensor, others[0], largest)
    return largest


def _packed(tensor: Tensor, first: int, last: int) -> Bytes:
    signs = np.sign(read_rows(tensor, first, last)).astype(np.int8)
    codes = (signs + np.int8(1)).view(np.uint8)
    return pack_codes(codes.reshape(-1, I2_S_BLOCK))


def _not_ternary(tensor: Tensor, first: np.float32, second: np.float32) -> UnsupportedError:
    return UnsupportedError(
        f"{tensor.source}: tensor {tensor.name!r} is not ternary: it has weights of magnitude "
        f"{first:.9g} and {second:.9g}, and I2_S stores -s, 0 and s with one s for the tensor; "
        "convert the Hugging Face directory of a BitNet model with `trinity convert`, "
        "or use a type like Q4_K_M for other models"
    )
