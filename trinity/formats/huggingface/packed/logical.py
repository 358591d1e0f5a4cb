"""A checkpoint as its model's class sees it: a quantized weight is one tensor of floats."""

from __future__ import annotations

from trinity.errors import FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed.weight import PackedWeights
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
        self.packed = packed.weights  # by name

    @property
    def directory(self) -> str:
        """The directory of the files."""
        return self._checkpoint.directory

    def names(self) -> list[str]:
        """The names of all weights, quantized and plain."""
        return self._names

    def tensor(self, name: str) -> SafeTensor:
        """Return the plain tensor of that name. Raises FormatError if there is none."""
        if name in self.packed:
            raise FormatError(
                f"{self.packed[name].source}: tensor {name!r} is quantized, but the model needs "
                "it unquantized; config.json belongs to another checkpoint"
            )
        return self._checkpoint.tensor(name)
