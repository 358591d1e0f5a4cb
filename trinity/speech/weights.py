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
# What takes over where a row is no whole number of blocks.
_FALLBACK = "Q8_0"
CONVOLUTIONS = "Q8_0"  # what they are beside quantized layers
PADDING_MOST = TYPES[CONVOLUTIONS].block_size - 1


class SpeechWeights:
    """Linears, vectors and tables by their names.

    Linears stay in the files' mapping, but for convolutions, whose values are put into the order
    of unfolded rows, and are Q8_0 where the layers are quantized. ``quantize``: linears become that
    type of blocks in memory, Q8_0 or what they are where their rows are no whole number of blocks.
    Raises: ConfigError for a tensor that is missing or of another shape, InputError for one to be
    quantized that is already.
    """

    def __init__(self, provider: WeightProvider, quantize: str | None = None) -> None:
        self._weights, self._quantize = Weights(provider), quantize
        self._made: dict[str, Weight] = {}

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """A tensor of ``length`` values."""
        return self._weights.vector(name, length)

    def table(self, name: str, rows: int, width: int) -> NDArray[np.float32]:
        """A tensor (rows, width) as float32: positions."""
        return self._weights.matrix(name, rows, width).dequantize()

    def rows(self, name: str, rows: int, width: int) -> TokenEmbedding:
        """A tensor (rows, width) of which single rows are read: token embeddings."""
        return TokenEmbedding(self._weights, name, rows, width, 1.0)

    def part(self, name: str, rows: int, width: int, first: int, last: int) -> NDArray[np.float32]:
        """Rows of a tensor (rows, width) as float32, as the file has them."""
        return self._weights.matrix(name, rows, width).dequantize()[first:last].copy()

    def linear(self, name: str, n: int, k: int) -> Weight:
        """``name``.weight (n, k), with ``name``.bias where there is one."""
        if name not in self._made:
            weight = self._weights.linear(name, n, k)
            smaller = self._smaller(k)
            if smaller is not None:
                tensor = self._weights.matrix(f"{name}.weight", n, k)
                if tensor.type not in _WIDTHS:
                    raise InputError(
                        f"{tensor.where} is {tensor.type} already; quantizing twice loses "
                        "quality: leave --quantize out, or take a file in F16, BF16 or F32"
                    )
                weight = _quantized(tensor, weight, smaller)
            self._made[name] = weight
        return self._made[name]

    def convolution(self, name: str, n: int, channels: int, taps: int, as_bytes: bool) -> Weight:
        """``name``.weight (n, channels, taps) as a linear over ``taps`` rows of channels.

        ``as_bytes``: Q8_0, in which products take half the time; K is padded with zeros to whole
        blocks.
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
        """The type that rows of ``k`` weights become."""
        if self._quantize is None:
            return None
        types = (self._quantize, _FALLBACK)
        return next(
            (type_name for type_name in types if k % TYPES[type_name].block_size == 0), None
        )


def _quantized(tensor: Tensor, weight: Weight, kind: str) -> Weight:
    """The weight with rows of another type, made of its tensor's."""
    values = tensor.dequantize()
    if not np.isfinite(values).all():
        raise FormatError(
            f"{tensor.where} has values that are not finite numbers; the file is damaged"
        )
    data = quantize_rows(kind, values).reshape(-1)
    return replace(weight, type=kind, data=data, stride=data.nbytes // weight.n)
