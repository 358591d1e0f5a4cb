"""Rows of a tensor as float32, and float32 rows as the bytes of another type."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from math import gcd, prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, InputError
from trinity.formats.provider import Tensor
from trinity.quantization.mixes import PLAIN
from trinity_kernels.quantizers import quantize_rows
from trinity_kernels.quants import TYPES
from trinity_kernels.quants.i2_s import unpack_codes
from trinity_kernels.quants.quant_type import QuantType

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
T = TypeVar("T")

# Weights of one step: 2 MB as float32. A thread holds them and their result.
STEP_WEIGHTS = 1 << 19
# The limit of a step if rows are long: 32 MB as float32.
LARGEST_STEP = 1 << 23
I2_S_BLOCK = 128
_LARGEST_HALF = 65504.0
_LARGEST_BFLOAT16 = 3.3895313892515355e38
_EXPONENTS = {"F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80), "F32": ("<u4", 0x7F800000)}


def row_steps(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Yield the first and last row of each step; steps begin at whole blocks of I2_S.

    A stack of matrices counts as one matrix with the rows of all.
    """
    rows, columns = prod(shape[:-1]), shape[-1]
    whole = I2_S_BLOCK // gcd(I2_S_BLOCK, columns)
    step = max(1, STEP_WEIGHTS // (columns * whole)) * whole
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


def in_order(
    pool: Executor, function: Callable[[int, int], T], steps: Iterable[tuple[int, int]], ahead: int
) -> Iterator[T]:
    """Yield ``function`` of each step, computed by the pool; at most ``ahead`` results wait."""
    waiting: deque[Future[T]] = deque()
    try:
        for first, last in steps:
            waiting.append(pool.submit(function, first, last))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def whole_chunks(tensor: Tensor, nbytes: int) -> Iterator[Bytes]:
    """Yield the bytes of a tensor unchanged, about ``nbytes`` at a time.

    Raises FormatError for values or scales that are not finite.
    """
    if tensor.type == "I2_S":
        i2_s_scale(tensor)
    quant = TYPES.get(tensor.type)
    block_bytes = 1 if quant is None else quant.type_size
    step = nbytes // block_bytes * block_bytes
    for first in range(0, tensor.nbytes, step):
        chunk = tensor.data[first : first + step]
        # In I2_S the scale follows the last block; it may be shorter than a block.
        whole = len(chunk) // block_bytes * block_bytes
        if quant is not None and not _is_finite(quant, chunk[:whole]):
            raise _not_finite(tensor)
        yield chunk


def _is_finite(quant: QuantType, raw: Bytes) -> bool:
    """Whether the values or scales of blocks are finite."""
    if quant.name in _EXPONENTS:
        integers, mask = _EXPONENTS[quant.name]
        return not len(raw) or bool((raw.view(integers) & mask).max() != mask)
    blocks = raw.view(quant.block)
    fields = [blocks[name] for name in quant.block.names or ()]
    return all(bool(np.isfinite(field).all()) for field in fields if field.dtype.kind == "f")


def _not_finite(tensor: Tensor) -> FormatError:
    return FormatError(
        f"{tensor.source}: tensor {tensor.name!r} has values that are not finite numbers; "
        "the file is damaged"
    )


def read_rows(tensor: Tensor, first: int, last: int) -> Floats:
    """Return rows of a matrix as float32 (last - first, columns).

    Raises FormatError for values that are not finite.
    """
    columns = tensor.shape[-1]
    if tensor.type == "I2_S":
        values = i2_s_codes(tensor, first, last).astype(np.float32)
        values -= np.float32(1)
        values *= i2_s_scale(tensor)
    else:
        quant = TYPES[tensor.type]
        row_bytes = columns // quant.block_size * quant.type_size
        raw = tensor.data[first * row_bytes : last * row_bytes]
        values = quant.dequantize(raw, (last - first, columns))
    if not (np.isfinite(values.max()) and np.isfinite(values.min())):
        raise _not_finite(tensor)
    return values


def i2_s_codes(tensor: Tensor, first: int, last: int) -> Bytes:
    """Return the codes 0, 1, 2 of rows of whole blocks. Raises FormatError for a code 3."""
    columns = tensor.shape[-1]
    packed = tensor.data[first * columns // 4 : last * columns // 4]
    codes = unpack_codes(packed.reshape(-1, I2_S_BLOCK // 4))
    if codes.max() == 3:
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has the code 3 in rows {first} to {last}; "
            "only 0, 1 and 2 are valid: the file is damaged"
        )
    return codes.reshape(last - first, columns)


def i2_s_scale(tensor: Tensor) -> np.float32:
    """Return the scale of an I2_S tensor, which follows its codes. Raises FormatError."""
    at = prod(tensor.shape) // 4
    return finite(tensor, tensor.data[at : at + 4].view("<f4")[0])


def finite(tensor: Tensor, scale: np.float32) -> np.float32:
    """Return ``scale``. Raises FormatError unless it is finite."""
    if not np.isfinite(scale):
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has the scale {scale}; the file is damaged"
        )
    return scale


def encode_rows(
    tensor: Tensor,
    values: Floats,
    type_name: str,
    importance: Sequence[Floats | None] = (),
    first: int = 0,
) -> Bytes:
    """Quantize ``values``, rows of ``tensor`` from ``first`` on, row by row.

    ``importance`` has the importance of the columns of each matrix in a stack. Raises InputError
    for values beyond the type's range.
    """
    if type_name not in ("F32", "MXFP4"):
        largest = float(max(values.max(), -values.min()))
        limit, of, others = _LARGEST_HALF, f"the half precision of {type_name}", "BF16 and F32 hold"
        if type_name == "BF16":
            limit, of, others = _LARGEST_BFLOAT16, "the largest of BF16", "F32 holds"
        if largest > limit:
            raise InputError(
                f"{tensor.source}: tensor {tensor.name!r} has values up to {largest:.3g}, beyond "
                f"{of}; {others} them"
            )
    if type_name in PLAIN:
        return TYPES[type_name].quantize(values)
    if len(importance) < 2:
        return quantize_rows(type_name, values, *importance)
    rows, last, pieces = tensor.shape[-2], first + len(values), []
    for number in range(first // rows, -(-last // rows)):
        start, end = max(first, number * rows) - first, min(last, (number + 1) * rows) - first
        pieces.append(quantize_rows(type_name, values[start:end], importance[number]))
    return np.concatenate(pieces)
