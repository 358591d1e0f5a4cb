"""Model files: each format is read by a WeightProvider."""

from __future__ import annotations

from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.formats.provider import Tensor, WeightProvider

__all__ = ["GGUFProvider", "GGUFWriter", "Tensor", "WeightProvider"]
