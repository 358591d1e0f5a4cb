"""Convert ternary tensors to rows for the kernels: I2_S in any order, TL1, TL2, STQ1_0."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.errors import UnsupportedError
from trinity.formats.provider import Tensor
from trinity_kernels.quants import TYPES
from trinity_kernels.quants.i2_s import pack_codes, unpack_codes
from trinity_kernels.quants.tl import AMBIGUOUS, TILINGS, TL_TYPES, TLError, to_i2_s

STQ_TYPE = "STQ1_0"


class KernelRows(NamedTuple):
    """A tensor's rows in a form that kernels read."""

    type: str
    data: NDArray[np.uint8]
    scale: float
    """A factor of all values."""


def kernel_type(type_name: str) -> str:
    """The type whose kernels read a tensor of this type after ``kernel_rows``."""
    return "I2_S" if type_name == "I2_S_ARM" else type_name


def kernel_rows(tensor: Tensor, n: int, k: int) -> KernelRows:
    """A tensor's ``n`` rows of ``k`` values; all dimensions but the last are rows.

    The data are the tensor's own memory, except for ternary tensors whose codes are in another
    order than the kernels'. Raises UnsupportedError for a scale of 0 or infinity.
    """
    if not TYPES[tensor.type].tensor_scale:
        return KernelRows(tensor.type, tensor.data, 1.0)
    return KernelRows(kernel_type(tensor.type), row_codes(tensor, n, k), tensor_scale(tensor))


def from_layouts(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy: of TL1 or TL2 as I2_S, of STQ1_0 as PQ2_0.

    Raises UnsupportedError.
    """
    if tensor.type == STQ_TYPE:
        from trinity.formats.stq import to_pq2_0

        return to_pq2_0(tensor)
    if tensor.type not in TL_TYPES:
        return tensor
    if len(tensor.shape) != 2:
        raise UnsupportedError(
            f"{tensor.source}: tensor {tensor.name!r} of type {tensor.type} has shape "
            f"{tensor.shape}, but only matrices can have this type: use a file of another type"
        )
    m, k = tensor.shape
    tiling = tensor.tiling or TILINGS[tensor.type].get((m, k))
    where = f"{tensor.source}: tensor {tensor.name!r} of type {tensor.type} and shape {(m, k)}"
    hint = "give the kernel_config.ini that the file was converted with (--tl-config FILE)"
    if tiling is None and tensor.type == "TL1" and (m, k) in AMBIGUOUS:
        first, second = AMBIGUOUS[m, k]
        raise UnsupportedError(
            f"{where} may have tiles of {first} or of {second}, which the bytes do not show; "
            f"{hint}, or use an I2_S file of the model"
        )
    if tiling is None:
        known = ", ".join(f"{a} x {b}" for a, b in TILINGS[tensor.type])
        raise UnsupportedError(
            f"{where}: only tiles of {known} are known; {hint}, or use an I2_S file of the model"
        )
    try:
        data = to_i2_s(tensor.type, tensor.data, (m, k), tiling)
    except TLError as error:
        raise UnsupportedError(f"{where}: {error}: the file has other tiles; {hint}") from error
    return Tensor(tensor.name, (m, k), "I2_S", data, tensor.source)


def tensor_scale(tensor: Tensor) -> float:
    """Return the scale of an I2_S tensor, which follows its codes. Raises UnsupportedError."""
    end_of_codes = prod(tensor.shape) // 4
    scale: np.float32 = tensor.data[end_of_codes : end_of_codes + 4].view("<f4")[0]
    if not np.isfinite(scale) or scale == 0:
        raise UnsupportedError(
            f"{tensor.source}: tensor {tensor.name!r} has the scale {scale}; "
            "expected a finite number other than 0: the file is damaged"
        )
    return float(scale)


def row_codes(tensor: Tensor, n: int, k: int) -> NDArray[np.uint8]:
    """Return the codes of an I2_S tensor in x86 order, each row in whole blocks of 32 bytes.

    They are copied if rows begin within a block, or if the codes are in ARM's order.
    """
    codes = tensor.data[: n * k // 4]
    if tensor.type != "I2_S_ARM" and k % 128 == 0:
        return codes
    block = 16 if tensor.type == "I2_S_ARM" else 32
    rows = np.ones((n, -(-k // 128) * 128), np.uint8)
    rows[:, :k] = unpack_codes(codes.reshape(-1, block)).reshape(n, k)
    return np.ascontiguousarray(pack_codes(rows.reshape(-1, 128)).reshape(-1))
