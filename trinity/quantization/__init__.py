"""Write a GGUF file with the weights of a model in smaller types, a few rows at a time."""

from __future__ import annotations

from trinity.quantization.mixes import ALIASES, MIXES, TENSOR_TYPES
from trinity.quantization.quantization import Quantization, QuantizedTensor, quantize

__all__ = ["ALIASES", "MIXES", "TENSOR_TYPES", "Quantization", "QuantizedTensor", "quantize"]
