"""Tensors whose bytes are computed when they are read, because no file contains them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

import numpy as np
from numpy.typing import NDArray

from trinity.formats.gguf_types import tensor_nbytes
from trinity.formats.provider import Tensor

Bytes = NDArray[np.uint8]


class MadeTensor(Tensor):
    """A tensor that ``make`` computes in pieces of whole rows, in order; I2_S in any pieces.

    ``fill`` writes all bytes into an array, faster than ``make``. ``data`` keeps the bytes with the
    object; ``pieces`` keeps nothing. ``shared`` maps names to bytes that are in use, so that two
    objects for one tensor share them.
    """

    __slots__ = ("_fill", "_made", "_make", "_shared")
    _fill: Callable[[Bytes], None] | None
    _make: Callable[[], Iterator[NDArray[np.generic]]]
    _made: Bytes | None
    _shared: MutableMapping[str, Bytes] | None

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        type: str,
        make: Callable[[], Iterator[NDArray[np.generic]]],
        source: str = "",
        origin: str = "",
        shared: MutableMapping[str, Bytes] | None = None,
        fill: Callable[[Bytes], None] | None = None,
    ) -> None:
        values = {"name": name, "shape": shape, "type": type, "source": source, "tiling": None,
                  "origin": origin, "_make": make, "_made": None, "_shared": shared,
                  "_fill": fill}  # fmt: skip
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in its type."""
        size = tensor_nbytes(self.type, self.shape[::-1])
        assert size is not None, self
        return size

    @property
    def data(self) -> Bytes:
        """All bytes, in new memory."""
        made, shared = self._made, self._shared
        if made is None and shared is not None:
            made = shared.get(self.name)
        if made is None:
            made = np.empty(self.nbytes, np.uint8)
            if self._fill is not None:
                self._fill(made)
            else:
                end = 0
                for piece in self._bytes():
                    start, end = end, end + piece.nbytes
                    made[start:end] = piece
                assert end == made.nbytes, self.name
            made.flags.writeable = False
            if shared is not None:
                shared[self.name] = made
        object.__setattr__(self, "_made", made)
        return made

    def pieces(self, nbytes: int) -> Iterator[Bytes]:
        """Yield the data as it is computed, in pieces of whole rows; I2_S in one piece."""
        if self.type == "I2_S":
            yield self.data
            return
        yield from self._bytes()

    def _bytes(self) -> Iterator[Bytes]:
        for piece in self._make():
            yield np.ascontiguousarray(piece).reshape(-1).view(np.uint8)


def rows_of(elements: NDArray[np.generic], most: int) -> Iterator[NDArray[np.generic]]:
    """Yield parts of an array of at most ``most`` elements; the last axis stays whole."""
    if elements.size <= most or elements.ndim == 1:
        yield elements
        return
    step = most // (elements.size // len(elements))
    if step:
        for first in range(0, len(elements), step):
            yield elements[first : first + step]
        return
    for part in elements:
        yield from rows_of(part, most)
