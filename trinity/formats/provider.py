"""The interface of model formats: tensors under GGUF names, configuration, metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.defaults import Defaults


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight tensor, as stored in the file."""

    name: str  # in GGUF
    shape: tuple[int, ...]  # NumPy's order: a linear layer's weight is (M outputs, K inputs)
    type: str  # ggml's name, such as "I2_S", "Q4_0" or "F32"
    data: NDArray[np.uint8]  # read-only uint8 view of the file's mapping
    source: str = ""  # the file
    tiling: tuple[int, int, int] | None = None  # (BM, BY, bm) of TL1 or TL2, if the user gave them
    origin: str = ""  # the name in the file if it differs, for errors

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in its type."""
        return int(self.data.nbytes)

    @property
    def where(self) -> str:
        """The file and the tensor, for the beginning of errors."""
        return f"{self.source}: tensor {(self.origin or self.name)!r}"

    def pieces(self, nbytes: int) -> Iterator[NDArray[np.uint8]]:
        """Yield the data in order, about ``nbytes`` at a time, in whole rows; I2_S in one piece."""
        rows = prod(self.shape[:-1])
        if self.type.startswith("I2_S") or self.data.nbytes % rows:
            yield self.data
            return
        row = self.data.nbytes // rows
        step = max(1, nbytes // row) * row
        for first in range(0, self.data.nbytes, step):
            yield self.data[first : first + step]

    def dequantize(self) -> NDArray[np.float32]:
        """Return all values as float32, in ``shape``.

        Raises UnsupportedError for an unknown type, FormatError if the bytes do not fit it.
        """
        from trinity.errors import FormatError, UnsupportedError
        from trinity_kernels.quants import dequantize

        try:
            return dequantize(self.type, self.data, self.shape)
        except KeyError as error:
            raise UnsupportedError(
                f"{self.where} has type {self.type}, which trinity cannot dequantize"
            ) from error
        except ValueError as error:
            raise FormatError(f"{self.where}: {error}") from error


class TensorSource(Protocol):
    """Tensors by name."""

    @property
    def path(self) -> str:
        """The model's path or name."""
        ...

    def tensor_names(self) -> list[str]:
        """Return all tensor names, in file order."""
        ...

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of that name. Raises FormatError if there is none."""
        ...


class WeightProvider(TensorSource, Protocol):
    """An open model, whatever its file format."""

    @property
    def paths(self) -> list[str]:
        """The paths of all files that the model is read from."""
        ...

    @property
    def notes(self) -> list[str]:
        """Notes for the user, such as parts of the model that are ignored."""
        ...

    @property
    def metadata(self) -> Mapping[str, object]:
        """Keys and values; arrays are decoded when they are read."""
        ...

    @property
    def config(self) -> ModelConfig:
        """The configuration. Raises ConfigError if the metadata contains none."""
        ...

    @property
    def defaults(self) -> Defaults:
        """The defaults in the model's files. Raises ConfigError if they are malformed."""
        ...

    @property
    def rope_interleaved(self) -> bool:
        """Whether llama's Q and K rows are permuted so that rotated pairs are adjacent."""
        ...

    def check(self) -> None:
        """Raise FormatError if a file was truncated or overwritten after it was opened."""
        ...

    def close(self) -> None:
        """Release the mapping; tensors given out must no longer be used."""
        ...
