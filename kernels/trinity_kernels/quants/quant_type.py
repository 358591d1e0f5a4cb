"""Quantization types: the layout of blocks in files, and their conversion to and from float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Blocks = NDArray[np.void]

# Elements that are converted in one step: its temporaries stay in the second-level cache, and a
# tensor of any size needs no memory beyond its result.
_STEP = 1 << 16
# Bytes after the codes of a type that has one scale for the whole tensor.
_TAIL_BYTES = 32


@dataclass(frozen=True, slots=True)
class Unused:
    """Bytes that are valid in a block, but that no quantizer writes: a sign of damage."""

    # The name of these bytes, and their usual content, for messages.
    what: str
    expected: str
    # Which of blocks (n,) have them, (n,).
    found: Callable[[Blocks], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantType:
    """One quantization type: its block layout, decoder and encoder."""

    name: str
    # Elements of a block, and its layout.
    block_size: int
    block: np.dtype[np.void]
    # Blocks (n,) to float32 (n, block_size).
    decode_blocks: Callable[[Blocks], Floats]
    # The inverse; None if NumPy does not write the type.
    encode_blocks: Callable[[Floats], Blocks] | None
    # The largest root mean square error of a round trip of normally distributed values (of ternary
    # ones for ``ternary``), relative to that of the values.
    max_rmse: float
    # The specification or code that defines the type.
    source: str
    # Blocks have no scales and may cross rows. 32 bytes follow them, the first four of which are
    # the float32 scale of the tensor.
    tensor_scale: bool = False
    # Every value is -scale, 0 or +scale, and the encoder expects such values.
    ternary: bool = False
    unused: Unused | None = None

    @property
    def type_size(self) -> int:
        """Bytes of one block."""
        return self.block.itemsize

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes of a tensor of ``shape``. Raises: ValueError if rows are not whole blocks."""
        count = prod(shape)
        # With one scale for the tensor, codes are one sequence without rows.
        row = count if self.tensor_scale else (shape[-1] if shape else 1)
        if row % self.block_size:
            raise ValueError(
                f"{self.name} holds blocks of {self.block_size} elements; shape {tuple(shape)} "
                f"has {row} in {'all' if self.tensor_scale else 'a row'}, not a multiple of that"
            )
        tail = _TAIL_BYTES if self.tensor_scale else 0
        return count // self.block_size * self.type_size + tail

    def dequantize(self, data: Bytes, shape: Sequence[int]) -> Floats:
        """All values as a new float32 array of ``shape``.

        Shapes: data (nbytes(shape),), contiguous, of any alignment.
        Raises: ValueError if the length of the data does not fit the shape.
        """
        expected = self.nbytes(shape)
        if data.nbytes != expected:
            raise ValueError(
                f"{self.name}: {data.nbytes} bytes for a tensor of shape {tuple(shape)}, "
                f"expected {expected}"
            )
        flat = data.reshape(-1).view(np.uint8)
        count = prod(shape) // self.block_size
        blocks = flat[: count * self.type_size].view(self.block)
        scale = None
        if self.tensor_scale:
            tail = flat[count * self.type_size :]
            scale = np.float32(tail[:4].view("<f4")[0])
        out = np.empty((count, self.block_size), np.float32)
        step = max(1, _STEP // self.block_size)
        # Hostile files have infinite scales; the NaN of 0 * inf is a result, not a warning.
        with np.errstate(all="ignore"):
            for start in range(0, count, step):
                part = out[start : start + step]
                part[:] = self.decode_blocks(blocks[start : start + step])
                if scale is not None:
                    part *= scale
        return out.reshape(tuple(shape))

    def quantize(self, values: ArrayLike) -> Bytes:
        """The bytes of ``values``, whose rows are whole blocks, as a new 1-D array.

        Raises: ValueError if rows are not whole blocks; NotImplementedError for a type whose scales
        need a search (trinity_kernels.quantizers), or that cannot be written.
        """
        if self.encode_blocks is None:
            raise NotImplementedError(
                f"NumPy does not write {self.name}; see trinity_kernels.quantizers"
            )
        floats = np.ascontiguousarray(values, np.float32)
        out = np.zeros(self.nbytes(floats.shape), np.uint8)
        rows = floats.reshape(-1, self.block_size)
        blocks = out[: len(rows) * self.type_size].view(self.block)
        step = max(1, _STEP // self.block_size)
        # The inverse scale of a zero block is infinite, and the float16 scale of huge values, too.
        with np.errstate(all="ignore"):
            scale = np.float32(1.0)
            if self.tensor_scale:
                scale = np.float32(np.abs(floats).max(initial=0.0))
                out[len(rows) * self.type_size :][:4] = np.array([scale], "<f4").view(np.uint8)
                scale = scale if scale > 0 else np.float32(1.0)
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                blocks[start : start + step] = self.encode_blocks(
                    part / scale if self.tensor_scale else part
                )
        return out


def super_block_type(
    name: str,
    block: np.dtype[np.void],
    decode: Callable[[Blocks], Floats],
    max_rmse: float,
    unused: Unused | None = None,
) -> QuantType:
    """One of ggml's types with blocks of 256 elements, which NumPy does not write."""
    return QuantType(
        name=name,
        block_size=256,
        block=block,
        decode_blocks=decode,
        encode_blocks=None,
        max_rmse=max_rmse,
        source=f"ggml-common.h block_{name.lower()}; ggml-quants.c dequantize_row_{name.lower()}",
        unused=unused,
    )


def has_code_3(name: str) -> Callable[[Blocks], NDArray[np.bool_]]:
    """A function that tells which blocks have code 3 in a field of codes of two bits."""

    def found(blocks: Blocks) -> NDArray[np.bool_]:
        codes = blocks[name]
        threes: NDArray[np.bool_] = (codes & codes >> 1 & np.uint8(0x55)).any(axis=-1)
        return threes

    return found


def inverse(scales: Floats) -> Floats:
    """1 / scale, or 0 for a scale of 0, as in ggml's quantizers."""
    result: Floats = np.where(scales == 0, np.float32(0), np.float32(1) / scales)
    return result


def round_half_away(values: Floats) -> Floats:
    """C's roundf, which NumPy lacks: halves are rounded away from zero."""
    magnitude = np.abs(values)
    floor = np.floor(magnitude)
    result: Floats = np.sign(values) * (floor + np.floor(2 * (magnitude - floor)))
    return result
