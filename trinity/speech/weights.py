"""The tensors of a Whisper checkpoint, each held against the configuration, bound for the plans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, FormatError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.safetensors import SafeTensor
from trinity.runtime.weights import Weight
from trinity_kernels.quantizers import quantize_rows
from trinity_kernels.quants import TYPES

_TYPES = {"F32": "F32", "F16": "F16", "BF16": "BF16"}
# What takes over where a row is no whole number of blocks.
_FALLBACK = "Q8_0"


class SpeechWeights:
    """Linears, vectors and tables by their names below ``model.``.

    Linears stay in the files' mapping, but for convolutions, whose values are put into the order
    of unfolded rows. ``quantize``: linears become that type of blocks in memory, Q8_0 or what they
    are where their rows are no whole number of blocks. Raises: FormatError for a tensor that is
    missing, ConfigError for one of another shape.
    """

    def __init__(self, checkpoint: Checkpoint, quantize: str | None = None) -> None:
        self._checkpoint, self._quantize = checkpoint, quantize
        self._made: dict[str, Weight] = {}
        self._names = frozenset(checkpoint.names())
        self._bare = not any(name.startswith("model.") for name in self._names)

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """A tensor of ``length`` values."""
        return self._tensor(name, (length,)).all_floats()

    def table(self, name: str, rows: int, width: int) -> NDArray[np.float32]:
        """A tensor (rows, width) as float32: positions."""
        return self._tensor(name, (rows, width)).all_floats()

    def rows(
        self, name: str, rows: int, width: int
    ) -> Callable[[NDArray[np.intp]], NDArray[np.float32]]:
        """A function that gives the rows of those numbers as float32: token embeddings."""
        tensor = self._tensor(name, (rows, width))
        elements = tensor.elements()
        return lambda numbers: tensor.floats(elements[numbers])

    def linear(self, name: str, n: int, k: int) -> Weight:
        """``name``.weight (n, k), with ``name``.bias where there is one."""
        if name not in self._made:
            tensor = self._tensor(f"{name}.weight", (n, k))
            self._made[name] = self._weight(name, tensor, n, k)
        return self._made[name]

    def convolution(self, name: str, n: int, channels: int, taps: int) -> Weight:
        """``name``.weight (n, channels, taps) as a linear over ``taps`` rows of channels."""
        tensor = self._tensor(f"{name}.weight", (n, channels, taps))
        elements = np.ascontiguousarray(tensor.elements().transpose(0, 2, 1)).reshape(-1)
        moved = SafeTensor(
            tensor.name, tensor.dtype, (n, taps * channels), elements.view(np.uint8), tensor.source
        )
        return self._weight(name, moved, n, taps * channels)

    def _weight(self, name: str, tensor: SafeTensor, n: int, k: int) -> Weight:
        data, kind = tensor.data, _TYPES.get(tensor.dtype, "F32")
        smaller = self._smaller(k)
        if smaller is not None:
            values = tensor.all_floats().reshape(n, k)
            if not np.isfinite(values).all():
                raise FormatError(
                    f"{tensor.source}: tensor {tensor.name!r} has values that are not finite "
                    "numbers; the file is damaged"
                )
            data, kind = quantize_rows(smaller, values), smaller
        elif tensor.dtype not in _TYPES:
            data = tensor.all_floats().view(np.uint8)
        bias = self.vector(f"{name}.bias", n) if self._full(f"{name}.bias") in self._names else None
        flat = data.reshape(-1)
        return Weight(name, kind, n, k, flat, flat.nbytes // n, 1.0, bias)

    def _smaller(self, k: int) -> str | None:
        """The type that rows of ``k`` weights become."""
        if self._quantize is None:
            return None
        types = (self._quantize, _FALLBACK)
        return next((one for one in types if k % TYPES[one].block_size == 0), None)

    def _full(self, name: str) -> str:
        return name if self._bare else f"model.{name}"

    def _tensor(self, name: str, shape: tuple[int, ...]) -> SafeTensor:
        tensor = self._checkpoint.tensor(self._full(name))
        if tensor.shape != shape:
            raise ConfigError(
                f"{tensor.source}: tensor {tensor.name!r} has shape {tensor.shape}, config.json "
                f"asks for {shape}; the files belong to different models: download them again"
            )
        return tensor
