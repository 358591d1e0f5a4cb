"""What every model format gives: tensors under canonical (GGUF) names, configuration, metadata."""

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
    """One weight tensor, as it lies in the file.

    Shapes: ``shape`` is NumPy's order, so a linear layer's weight is (M outputs, K inputs).
    ``data`` is a read-only uint8 view of the file's mapping, ``nbytes`` long; nothing is copied.
    ``type`` is ggml's name of the tensor type ("I2_S", "Q4_0", "F32"); ``source`` names the file.
    ``tiling``: the tiles of TL1 or TL2 (BM, BY, bm) where the user gave them. ``origin``: the name
    in the file where it is another, for errors.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: NDArray[np.uint8]
    source: str = ""
    tiling: tuple[int, int, int] | None = None
    origin: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in its type."""
        return int(self.data.nbytes)

    @property
    def where(self) -> str:
        """The file and the tensor there, as errors begin."""
        return f"{self.source}: tensor {(self.origin or self.name)!r}"

    def pieces(self, nbytes: int) -> Iterator[NDArray[np.uint8]]:
        """The data in order, about ``nbytes`` at a time, in whole rows; of I2_S all at once."""
        rows = prod(self.shape[:-1])
        if self.type.startswith("I2_S") or self.data.nbytes % rows:
            yield self.data
            return
        row = self.data.nbytes // rows
        step = max(1, nbytes // row) * row
        for first in range(0, self.data.nbytes, step):
            yield self.data[first : first + step]

    def dequantize(self) -> NDArray[np.float32]:
        """All values as float32, in ``shape``.

        Raises UnsupportedError for an unknown type, FormatError where the bytes do not fit it.
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


class WeightProvider(Protocol):
    """An open model, whatever its file format."""

    @property
    def path(self) -> str:
        """Where the model lies."""
        ...

    @property
    def paths(self) -> list[str]:
        """All files that the model is read from."""
        ...

    @property
    def notes(self) -> list[str]:
        """Remarks that the user should see, such as parts of the model that are left out."""
        ...

    @property
    def metadata(self) -> Mapping[str, object]:
        """Key to value; arrays are decoded when they are read."""
        ...

    @property
    def config(self) -> ModelConfig:
        """The configuration. Raises ConfigError where the metadata gives none."""
        ...

    @property
    def defaults(self) -> Defaults:
        """What the model's files say of its use. Raises ConfigError where that is malformed."""
        ...

    @property
    def rope_interleaved(self) -> bool:
        """True where the format stores llama's Q and K rows permuted for neighbouring pairs."""
        ...

    def tensor_names(self) -> list[str]:
        """All tensor names, in file order."""
        ...

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name. Raises FormatError where there is none."""
        ...

    def check(self) -> None:
        """Raise FormatError where a file was cut or overwritten since it was opened."""
        ...

    def close(self) -> None:
        """Release the mapping; tensors given out before must no longer be used."""
        ...
