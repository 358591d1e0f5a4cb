"""Makes a GGUF file of a Hugging Face directory, one tensor at a time."""

from __future__ import annotations

from trinity.tools.convert.adapter import convert_adapter
from trinity.tools.convert.conversion import Conversion, convert
from trinity.tools.convert.encode import OUTTYPES

__all__ = ["OUTTYPES", "Conversion", "convert", "convert_adapter"]
