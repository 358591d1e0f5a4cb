"""Rows of MLX's quantized weights as blocks of trinity's types.

A row's codes are packed from the lowest bit of the first byte upwards, lowest bit of a code first.
A byte of 4-bit codes thus has two adjacent elements, as in trinity's AFFINE4; in its MXFP4 and
NVFP4 the two elements are half a block apart. A scale, and a minimum, apply to adjacent columns.
Source: MLX, mlx/backend/cpu/quantized.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.formats.huggingface.packed.weight import Bytes, Part
from trinity.formats.safetensors import SafeTensor

# Bits of a code to the fewest codes that fill bytes, and the number of these bytes.
_RUNS = {2: (4, 1), 3: (8, 3), 5: (8, 5), 6: (4, 3)}
# The exponents' bits of the numbers that scales are.
_EXPONENTS = {
    "BF16": (np.uint16, 0x7F80),
    "F16": (np.uint16, 0x7C00),
    "F32": (np.uint32, 0x7F800000),
}
Floats = NDArray[np.float32]
_DAMAGED = "the checkpoint is damaged: download it again"


def affine_type(bits: int, group: int, stored: str) -> str:
    """Return the type for codes of ``bits`` with scales of type ``stored`` per ``group``."""
    if bits > 4:
        return f"AFFINE8_{stored}"
    return f"AFFINE4_{stored}" if group % 64 == 0 else f"AFFINE4_32_{stored}"


def affine(
    bits: int, scales: SafeTensor, minima: SafeTensor, codes: Bytes, d: Part, m: Part
) -> Bytes:
    """Encode blocks of ``affine_type``: ``codes`` (rows, bytes), ``d`` and ``m`` (rows, groups).

    Raises FormatError for a scale or minimum that is not finite.
    """
    for tensor, numbers in ((scales, d), (minima, m)):
        kind, exponent = _EXPONENTS[tensor.dtype]
        patterns = np.ascontiguousarray(numbers).view(kind)
        if ((patterns & kind(exponent)) == exponent).any():
            raise FormatError(
                f"{tensor.source}: tensor {tensor.name!r} has numbers that are infinite or NaN; "
                f"{_DAMAGED}"
            )
    return affine_blocks(bits, scales.dtype, codes, d, m)


def affine_blocks(bits: int, stored: str, codes: Bytes, d: Part, m: Part) -> Bytes:
    """As ``affine``, without checks; ``stored`` is the type of ``d`` and ``m``."""
    from trinity_kernels.quants import TYPES

    rows, groups = d.shape
    columns = codes.shape[1] * 8 // bits
    kind = TYPES[affine_type(bits, columns // groups, stored)]
    blocks = np.empty((rows, columns // kind.block_size), kind.block)
    for name, numbers in (("d", d), ("m", m)):
        blocks[name].reshape(rows, groups, -1)[:] = numbers[:, :, None]
    if bits not in (4, 8):
        codes = _unpacked(bits, codes).reshape(rows, -1)
        if bits < 4:
            codes = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    # A block's codes are moved as one item: a loop over its bytes takes several times as long.
    item = f"V{kind.block['qs'].itemsize}"
    whole = np.dtype([*((name, kind.block[name]) for name in ("d", "m")), ("qs", item)])
    blocks.view(whole)["qs"] = np.ascontiguousarray(codes).view(item).reshape(blocks.shape)
    return _bytes(blocks)


def mxfp4(scales: SafeTensor, codes: Bytes, exponents: Bytes) -> Bytes:
    """Encode blocks of MXFP4. Raises FormatError for an exponent outside the type."""
    from trinity_kernels.quants import TYPES

    kind = TYPES["MXFP4"]
    rows, count = exponents.shape
    blocks = np.empty((rows, count), kind.block)
    blocks["e"] = exponents
    blocks["qs"] = _halves(codes, 8).reshape(rows, count, -1)
    _refuse_unused(scales, kind.name, blocks)
    return _bytes(blocks)


def nvfp4(scales: SafeTensor, codes: Bytes, d: Bytes) -> Bytes:
    """Encode blocks of NVFP4, of four groups of 16. Raises FormatError for an invalid scale."""
    from trinity_kernels.quants import TYPES

    kind = TYPES["NVFP4"]
    rows, groups = d.shape
    blocks = np.empty((rows, groups // 4), kind.block)
    blocks["scales"] = d.reshape(rows, -1, 4)
    blocks["qs"] = _halves(codes, 4).reshape(rows, groups // 4, -1)
    _refuse_unused(scales, kind.name, blocks)
    return _bytes(blocks)


def nvfp4_floats(scales: SafeTensor, codes: Bytes, d: Bytes, factors: Floats) -> Bytes:
    """Return float32 rows for weights that fill no blocks or whose rows have factors."""
    from trinity_kernels.quants import dequantize

    (rows, groups), group = d.shape, 16
    fill = -groups % 4
    padded = nvfp4(
        scales, np.pad(codes, ((0, 0), (0, fill * group // 2))), np.pad(d, ((0, 0), (0, fill)))
    )
    values = dequantize("NVFP4", padded.reshape(-1), (rows, (groups + fill) * group))
    values *= factors
    return np.ascontiguousarray(values[:, : groups * group]).view(np.uint8)


def mxfp8(tensor: SafeTensor, scales: SafeTensor, codes: Bytes, exponents: Bytes) -> Bytes:
    """Encode blocks of FP8. Raises FormatError for codes and exponents that are NaN."""
    from trinity_kernels.quants import TYPES

    for of, is_nan in ((tensor, (codes & np.uint8(0x7F)) == 0x7F), (scales, exponents == 255)):
        if is_nan.any():
            raise FormatError(
                f"{of.source}: tensor {of.name!r} has values that are NaN; {_DAMAGED}"
            )
    rows, count = exponents.shape
    blocks = np.empty((rows, count), TYPES["FP8"].block)
    blocks["d"] = np.ldexp(np.float32(1), exponents.astype(np.int32) - 127)
    blocks["qs"] = codes.reshape(rows, count, -1)
    return _bytes(blocks)


def _refuse_unused(scales: SafeTensor, kind: str, blocks: NDArray[np.void]) -> None:
    from trinity_kernels.quants import TYPES

    unused = TYPES[kind].unused
    assert unused is not None
    if unused.found(blocks.reshape(-1)).any():
        raise FormatError(
            f"{scales.source}: tensor {scales.name!r} has {unused.what}; expected "
            f"{unused.expected}: {_DAMAGED}"
        )


def _halves(codes: Bytes, half: int) -> Bytes:
    """Move neighbouring nibbles ``half`` bytes apart, within each 2 * ``half`` bytes."""
    words = np.ascontiguousarray(codes).view(f"<u{half}").reshape(-1, 2)
    low = words.dtype.type(int.from_bytes(b"\x0f" * half, "little"))
    four = words.dtype.type(4)
    first, second = words[:, 0], words[:, 1]
    even = first & low | (second & low) << four
    odd = first >> four & low | second & ~low
    halves = np.empty((len(words), half, 2), np.uint8)
    halves[:, :, 0] = even.view(np.uint8).reshape(-1, half)
    halves[:, :, 1] = odd.view(np.uint8).reshape(-1, half)
    return halves.reshape(-1)


def _unpacked(bits: int, codes: Bytes) -> Bytes:
    """Return one code per byte."""
    count, nbytes = _RUNS[bits]
    runs = codes.reshape(-1, nbytes)
    kind: Any = np.uint8 if nbytes == 1 else np.uint32 if nbytes == 3 else np.uint64
    words = np.zeros(len(runs), kind)
    for i in range(nbytes):
        words |= runs[:, i].astype(kind) << kind(8 * i)
    unpacked = np.empty((len(runs), count), np.uint8)
    for i in range(count):
        unpacked[:, i] = words >> kind(bits * i) & kind((1 << bits) - 1)
    return unpacked


def _bytes(blocks: NDArray[np.void]) -> Bytes:
    return blocks.view(np.uint8).reshape(len(blocks), -1)
