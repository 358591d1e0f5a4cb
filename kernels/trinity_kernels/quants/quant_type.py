"""What a quantization type is: a block's layout in the file and its way to and from float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Blocks = NDArray[np.void]

# Elements that one step converts: the temporaries of a step stay in the second-level cache,
# and a tensor of any size needs no memory beyond its own result.
_STEP = 1 << 16
# Bytes behind the codes of a type whose one scale belongs to the whole tensor.
_TAIL_BYTES = 32


@dataclass(frozen=True, slots=True)
class Unused:
    """Bytes that blocks may hold and no quantizer writes; ``found`` takes (n,), gives (n,) bool.

    ``what`` names them, ``expected`` what should be there.
    """

    what: str
    expected: str
    found: Callable[[Blocks], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantType:
    """One quantization type: blocks of ``block_size`` elements, each laid out as ``block``.

    Shapes: ``decode_blocks`` takes blocks (n,) of dtype ``block`` and gives float32
    (n, block_size); ``encode_blocks`` is its inverse.
    ``tensor_scale``: the blocks hold bare codes; after them come 32 bytes, of which the first
    four are the float32 scale of the whole tensor, and blocks may straddle rows.
    ``ternary``: every value is -scale, 0 or +scale, and the quantizer expects such input.
    ``unused``: what is valid in a block, but a sign of damage.
    ``max_rmse``: largest root mean square error, relative to that of the values, of a round
    trip of normally distributed values (of ternary values where ``ternary``).
    """

    name: str
    block_size: int
    block: np.dtype[np.void]
    decode_blocks: Callable[[Blocks], Floats]
    encode_blocks: Callable[[Floats], Blocks] | None
    max_rmse: float
    source: str
    tensor_scale: bool = False
    ternary: bool = False
    unused: Unused | None = None

    @property
    def type_size(self) -> int:
        """Bytes of one block."""
        return self.block.itemsize

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes that a tensor of ``shape`` takes; ValueError where it is no whole blocks."""
        count = prod(shape)
        # One scale for all leaves no trace of the rows: such codes are one flat sequence.
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

        Shapes: data (nbytes(shape),), contiguous; its address needs no alignment.
        Raises: ValueError where the data's length and the shape disagree.
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
        # Hostile files hold infinite scales; 0 * inf is the answer's problem, not a warning.
        with np.errstate(all="ignore"):
            for start in range(0, count, step):
                part = out[start : start + step]
                part[:] = self.decode_blocks(blocks[start : start + step])
                if scale is not None:
                    part *= scale
        return out.reshape(tuple(shape))

    def quantize(self, values: ArrayLike) -> Bytes:
        """The bytes of ``values``, which have rows of whole blocks, as a new 1-D array.

        Raises: ValueError for rows that are no whole blocks, NotImplementedError for a type that
        takes a search for its scales, which is in trinity_kernels.quantizers, or is only read.
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
        # A zero block's inverse scale is infinite, a huge one's half-precision scale too.
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


def has_code_3(name: str) -> Callable[[Blocks], NDArray[np.bool_]]:
    """Whether blocks have the fourth of a field's codes of two bits."""

    def found(blocks: Blocks) -> NDArray[np.bool_]:
        codes = blocks[name]
        threes: NDArray[np.bool_] = (codes & codes >> 1 & np.uint8(0x55)).any(axis=-1)
        return threes

    return found


def inverse(scales: Floats) -> Floats:
    """1 / scale, and 0 where the scale is 0, as ggml's quantizers have it."""
    result: Floats = np.where(scales == 0, np.float32(0), np.float32(1) / scales)
    return result


def round_half_away(values: Floats) -> Floats:
    """C's roundf, which NumPy lacks: halves go away from zero."""
    magnitude = np.abs(values)
    floor = np.floor(magnitude)
    result: Floats = np.sign(values) * (floor + np.floor(2 * (magnitude - floor)))
    return result
