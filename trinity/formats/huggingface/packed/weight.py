"""One weight that several tensors hold together, and how it becomes rows of a quantization type."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.stored import View
from trinity.formats.huggingface.values import Values
from trinity.formats.made_tensor import rows_of

CHUNK_ELEMENTS = 1 << 19  # whose temporaries stay in the second-level cache
_THREADS = min(4, os.cpu_count() or 1)
Part = NDArray[np.generic]
Bytes = NDArray[np.uint8]


class _ChunkPlace(NamedTuple):
    """The start of a chunk: the axes before the rows, the row there, and the row of all."""

    axes: tuple[int, ...]
    first: int
    row: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A quantized weight."""

    name: str
    shape: tuple[int, ...]  # of the values, (..., rows, columns)
    dtype: str  # a type of trinity_kernels.quants
    source: str  # the file
    parts: Callable[[], tuple[Part, ...]]
    """Returns arrays (..., rows, anything) with the weight's leading axes.

    Values that are stored along other rows are looked up with a part of row numbers.
    """
    pack: Callable[..., Bytes]
    """Encodes the same rows of all parts, (rows, anything) each, as uint8 (rows, bytes of a row).

    It raises FormatError for values that are not numbers.
    """
    scale: NDArray[np.float32] | None = None
    """A factor of all values, with the shape of the axes before the rows."""

    def keeps_rows(self, view: View, shape: tuple[int, ...]) -> bool:
        """Whether ``view``, which gives the shape ``shape``, leaves rows unchanged."""
        rows = np.broadcast_to(np.uint8(0), (*self.shape[:-1], 1))
        # A view that selects or reorders columns fails here, or gives another shape.
        try:
            seen = view(rows).shape
        except (IndexError, ValueError):
            return False
        return seen == (*shape[:-1], 1) and shape[-1] == self.shape[-1]

    def pieces(self, view: View) -> Iterator[Bytes]:
        """Yield the rows that ``view`` takes in ``dtype``, some rows at a time."""
        for _, packed in self._chunks(view):
            yield packed

    def fill(self, view: View, out: Bytes) -> None:
        """Write the rows that ``view`` takes in ``dtype`` into ``out`` (bytes,).

        Each thread writes what it computes, so all of them touch the new memory.
        """
        parts = [view(part) for part in self.parts()]

        def write(place: _ChunkPlace) -> None:
            packed = self._packed(parts, place)
            start = place.row * packed.shape[1]
            out[start : start + packed.nbytes] = packed.reshape(-1)

        places = self._places(parts[0])
        if len(places) == 1:
            write(places[0])
            return
        with ThreadPoolExecutor(_THREADS, "trinity-pack") as pool:
            for done in [pool.submit(write, place) for place in places]:
                done.result()

    def floats(self, view: View, shape: tuple[int, ...]) -> Iterator[NDArray[np.float32]]:
        """Yield the values times ``scale`` that ``view`` takes, for any view.

        A view that does not keep rows needs memory for the whole weight.
        """
        if self.keeps_rows(view, shape):
            for _, values in self._values(view):
                yield values
            return
        whole = np.empty(self.shape, np.float32)
        flat, end = whole.reshape(-1, self.shape[-1]), 0
        for _, values in self._values(lambda array: array):
            start, end = end, end + len(values)
            flat[start:end] = values
        for piece in rows_of(view(whole), CHUNK_ELEMENTS):
            yield np.ascontiguousarray(piece, np.float32)

    def _values(self, view: View) -> Iterator[tuple[tuple[int, ...], NDArray[np.float32]]]:
        from trinity_kernels.quants import dequantize

        for index, packed in self._chunks(view):
            shape = (len(packed), self.shape[-1])
            values = dequantize(self.dtype, packed.reshape(-1), shape)
            if self.scale is not None:
                # Axes that a view makes of rows have the one scale of all.
                with np.errstate(over="ignore", invalid="ignore"):  # then the logits show it
                    values *= self.scale[index] if self.scale.ndim else self.scale
            yield index, values

    def _chunks(self, view: View) -> Iterator[tuple[tuple[int, ...], Bytes]]:
        parts = [view(part) for part in self.parts()]
        places = self._places(parts[0])
        if len(places) == 1:
            yield places[0].axes, self._packed(parts, places[0])
            return
        # NumPy releases the GIL. At most one chunk per thread is kept in memory.
        with ThreadPoolExecutor(_THREADS, "trinity-pack") as pool:
            waiting: deque[tuple[_ChunkPlace, Future[Bytes]]] = deque()
            for place in places:
                waiting.append((place, pool.submit(self._packed, parts, place)))
                if len(waiting) > _THREADS:
                    first, packed = waiting.popleft()
                    yield first.axes, packed.result()
            for first, packed in waiting:
                yield first.axes, packed.result()

    def _places(self, rows: Part) -> list[_ChunkPlace]:
        """Yield the chunks of all rows of a part, in order."""
        *leading, count, _ = rows.shape
        step = max(1, CHUNK_ELEMENTS // self.shape[-1])
        return [
            _ChunkPlace(index, first, number * count + first)
            for number, index in enumerate(np.ndindex(*leading))
            for first in range(0, count, step)
        ]

    def _packed(self, parts: list[Part], place: _ChunkPlace) -> Bytes:
        step = max(1, CHUNK_ELEMENTS // self.shape[-1])
        chunk = (part[place.axes][place.first : place.first + step] for part in parts)
        with np.errstate(all="ignore"):  # damaged numbers: refused there, or the logits show them
            return self.pack(*chunk)


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """The weights that a method finds in a checkpoint."""

    weights: Mapping[str, Packed] = field(default_factory=dict)  # by name
    used: frozenset[str] = frozenset()  # tensors that belong to them or have no effect
    notes: tuple[str, ...] = ()  # for the user


# Takes a checkpoint and the object of config.json that describes the quantization.
Find = Callable[[Checkpoint, Values], PackedWeights]
