"""Ternary weights as I2_S tensors, whatever the layout of their codes in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.formats.made_tensor import MadeTensor

CODES_PER_BLOCK = 128
_CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class TernaryMatrix:
    """Weights (codes - 1) * scale; ``codes`` is (rows, columns) of 0, 1, 2."""

    codes: NDArray[np.uint8]
    scale: np.float32

    def floats(self, first: int, last: int) -> NDArray[np.float32]:
        """Return the values of the rows ``first`` up to ``last``."""
        values: NDArray[np.float32] = self.codes[first:last].astype(np.float32)
        values -= np.float32(1)
        values *= self.scale
        return values

    def i2_s(self) -> Iterator[NDArray[np.generic]]:
        """Yield the I2_S layout: the codes in blocks, then the scale and 28 bytes of padding."""
        from trinity_kernels.quants.i2_s import pack_codes  # this import loads the compiler

        blocks = self.codes.reshape(-1, CODES_PER_BLOCK)
        step = _CHUNK_ELEMENTS // CODES_PER_BLOCK
        for first in range(0, len(blocks), step):
            yield pack_codes(blocks[first : first + step])
        tail = np.zeros(8, "<f4")
        tail[0] = self.scale
        yield tail


class TernaryTensor(MadeTensor):
    """A matrix of a multiple of 128 weights that ``matrix`` reads.

    ``known_scale`` is its scale in the file, or None if it must be computed from the weights.
    """

    __slots__ = ("known_scale", "matrix")
    matrix: Callable[[], TernaryMatrix]
    known_scale: np.float32 | None

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        matrix: Callable[[], TernaryMatrix],
        known_scale: np.float32 | None,
        source: str = "",
        origin: str = "",
    ) -> None:
        super().__init__(name, shape, "I2_S", lambda: matrix().i2_s(), source, origin)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "known_scale", known_scale)
