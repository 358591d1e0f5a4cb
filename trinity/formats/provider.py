"""What every model format gives: tensors under canonical (GGUF) names, configuration, metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    ``tiling``: the tiles of TL1 or TL2 (BM, BY, bm) where the user gave them.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: NDArray[np.uint8]
    source: str = ""
    tiling: tuple[int, int, int] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the file."""
        return int(self.data.nbytes)

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
                f"{self.source}: tensor {self.name!r} has type {self.type}, "
                "which trinity cannot dequantize"
            ) from error
        except ValueError as error:
            raise FormatError(f"{self.source}: tensor {self.name!r}: {error}") from error


class WeightProvider(Protocol):
    """An open model, whatever its file format."""

    @property
    def path(self) -> str:
        """Where the model lies."""
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
