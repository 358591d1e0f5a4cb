"""Model files: each format is read by a WeightProvider."""

from __future__ import annotations

from trinity.formats.gguf import GGUFProvider
from trinity.formats.provider import Tensor, WeightProvider

__all__ = ["GGUFProvider", "Tensor", "WeightProvider"]
