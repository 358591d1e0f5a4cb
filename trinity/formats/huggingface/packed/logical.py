"""A checkpoint as its model's class sees it: a quantized weight is one tensor of floats."""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed.weight import Packed, PackedWeights
from trinity.formats.safetensors import SafeTensor


class LogicalCheckpoint:
    """``checkpoint`` with the weights of ``packed`` instead of their tensors.

    Raises FormatError if a weight exists both quantized and plain.
    """

    def __init__(self, checkpoint: Checkpoint, packed: PackedWeights | None = None) -> None:
        packed = PackedWeights() if packed is None else packed
        self._checkpoint = checkpoint
        self.notes = packed.notes
        plain = [name for name in checkpoint.names() if name not in packed.used]
        for name in plain:
            if name in packed.weights:
                raise FormatError(
                    f"{packed.weights[name].source}: tensor {name!r} exists quantized and "
                    "unquantized; the files belong to different models: download them again"
                )
        self._names = [*plain, *packed.weights]
        self._packed = packed.weights

    @property
    def directory(self) -> str:
        """The directory of the files."""
        return self._checkpoint.directory

    @property
    def packed(self) -> Mapping[str, Packed]:
        """The quantized weights by name."""
        return self._packed

    def names(self) -> list[str]:
        """The names of all weights, quantized and plain."""
        return self._names

    def tensor(self, name: str) -> SafeTensor:
        """Return the plain tensor of that name. Raises FormatError if there is none."""
        if name in self._packed:
            raise FormatError(
                f"{self._packed[name].source}: tensor {name!r} is quantized, but the model needs "
                "it unquantized; config.json belongs to another checkpoint"
            )
        return self._checkpoint.tensor(name)
