"""The tensors of a Whisper model, bound for the plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, InputError
from trinity.formats.provider import Tensor, WeightProvider
from trinity.runtime.embedding import TokenEmbedding
from trinity.runtime.weights import Weight, Weights
from trinity_kernels.quantizers import quantize_rows
from trinity_kernels.quants import TYPES

_WIDTHS = {"F32": "u4", "F16": "u2", "BF16": "u2"}
# Used for rows that are not a multiple of the block size.
_FALLBACK = "Q8_0"
CONVOLUTIONS = "Q8_0"  # the type of convolutions in a quantized model
PADDING_MOST = TYPES[CONVOLUTIONS].block_size - 1


class SpeechWeights:
    """The linears, vectors and tables of a model, by name.

    Linears stay in the files' mapping. Convolutions are copied into the order of the encoder's
    longer rows, as Q8_0 if the layers are quantized. ``quantize``: linears are converted to this
    block type in memory, or to Q8_0, or not at all, if their rows are not a multiple of the block
    size.
    Raises: ConfigError for a tensor that is missing or has another shape; InputError for a tensor
    to be quantized that already is.
    """

    def __init__(self, provider: WeightProvider, quantize: str | None = None) -> None:
        self._weights, self._quantize = Weights(provider), quantize
        self._made: dict[str, Weight] = {}

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """A tensor of ``length`` values."""
        return self._weights.vector(name, length)

    def table(self, name: str, rows: int, width: int) -> NDArray[np.float32]:
        """A tensor (rows, width) as float32, such as position embeddings."""
        return self._weights.matrix(name, rows, width).dequantize()

    def rows(self, name: str, rows: int, width: int) -> TokenEmbedding:
        """A tensor (rows, width) from which single rows are read: token embeddings."""
        return TokenEmbedding(self._weights, name, rows, width, 1.0)

    def part(self, name: str, rows: int, width: int, first: int, last: int) -> NDArray[np.float32]:
        """Rows ``first`` to ``last`` of a tensor (rows, width) as float32, not quantized."""
        return self._weights.matrix(name, rows, width).dequantize()[first:last].copy()

    def linear(self, name: str, n: int, k: int) -> Weight:
        """``name``.weight (n, k), with ``name``.bias if there is one."""
        if name not in self._made:
            weight = self._weights.linear(name, n, k)
            smaller = self._smaller(k)
            if smaller is not None:
                tensor = self._weights.matrix(f"{name}.weight", n, k)
                if tensor.type not in _WIDTHS:
                    raise InputError(
                        f"{tensor.where} is {tensor.type} already; quantizing twice loses "
                        "quality: omit --quantize, or use a file in F16, BF16 or F32"
                    )
                weight = _quantized(tensor, weight, smaller)
            self._made[name] = weight
        return self._made[name]

    def convolution(self, name: str, n: int, channels: int, taps: int, as_bytes: bool) -> Weight:
        """``name``.weight (n, channels, taps) as a linear over ``taps`` rows of channels.

        ``as_bytes``: as Q8_0, which takes half the time; K is padded with zeros to whole blocks.
        """
        tensor = self._weights.matrix(f"{name}.weight", n, channels, taps)
        kind, values = tensor.type, tensor.data.view(_WIDTHS.get(tensor.type, "u1"))
        if kind not in _WIDTHS:
            kind, values = "F32", tensor.dequantize()
        k = taps * channels
        unfolded = values.reshape(n, channels, taps).transpose(0, 2, 1).reshape(n, k)
        if as_bytes:
            k += PADDING_MOST - (k - 1) % (PADDING_MOST + 1)
            unfolded = np.pad(unfolded, ((0, 0), (0, k - unfolded.shape[1])))
        raw = np.ascontiguousarray(unfolded).reshape(-1).view(np.uint8)
        bias = self._weights.vector(f"{name}.bias", n)
        moved = Weight(name, kind, n, k, raw, raw.nbytes // n, 1.0, bias)
        if not as_bytes:
            return moved
        padded = Tensor(tensor.name, (n, k), kind, raw, tensor.source)
        return _quantized(padded, moved, CONVOLUTIONS)

    def _smaller(self, k: int) -> str | None:
        """The type to which rows of ``k`` weights are quantized."""
        if self._quantize is None:
            return None
        types = (self._quantize, _FALLBACK)
        return next(
            (type_name for type_name in types if k % TYPES[type_name].block_size == 0), None
        )


def _quantized(tensor: Tensor, weight: Weight, kind: str) -> Weight:
    """The weight with rows of another type, quantized from its tensor."""
    values = tensor.dequantize()
    if not np.isfinite(values).all():
        raise FormatError(
            f"{tensor.where} has values that are not finite numbers; the file is damaged"
        )
    data = quantize_rows(kind, values).reshape(-1)
    return replace(weight, type=kind, data=data, stride=data.nbytes // weight.n)
