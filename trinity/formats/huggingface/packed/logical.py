"""A checkpoint as its model's class sees it: a quantized weight is one tensor of floats."""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed.weight import Found, Packed
from trinity.formats.safetensors import SafeTensor


class LogicalCheckpoint:
    """``checkpoint`` with the weights of ``found`` in place of the tensors that hold them.

    Raises FormatError where a weight is there both quantized and plain.
    """

    def __init__(self, checkpoint: Checkpoint, found: Found | None = None) -> None:
        found = Found() if found is None else found
        self._checkpoint = checkpoint
        self.notes = found.notes
        plain = [name for name in checkpoint.names() if name not in found.used]
        for name in plain:
            if name in found.weights:
                raise FormatError(
                    f"{found.weights[name].source}: tensor {name!r} is there quantized and plain; "
                    "the files belong to different models: download them again"
                )
        self._names = [*plain, *found.weights]
        self._packed = found.weights

    @property
    def directory(self) -> str:
        """Where the files lie."""
        return self._checkpoint.directory

    @property
    def packed(self) -> Mapping[str, Packed]:
        """The quantized weights by name."""
        return self._packed

    def names(self) -> list[str]:
        """The names of all weights, quantized and plain."""
        return self._names

    def tensor(self, name: str) -> SafeTensor:
        """The plain tensor of that name. Raises FormatError where there is none."""
        if name in self._packed:
            raise FormatError(
                f"{self._packed[name].source}: tensor {name!r} is quantized, and the model needs "
                "it plain; config.json belongs to another checkpoint"
            )
        return self._checkpoint.tensor(name)
