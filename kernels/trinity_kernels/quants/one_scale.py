"""Readers of blocks that begin with their only scale, and may have one minimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trinity_kernels import memory
from trinity_kernels.quants.reader import BlockReader

_READ = {
    "f16": memory.get_f16,
    "bf16": memory.get_bf16,
    "f32": memory.get_f32,
    "e8m0": memory.get_e8m0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OneScale(BlockReader):
    """The scale of a block, and its minimum (``minimum_at``), which has the same type."""

    # "f16", "bf16", "f32" or "e8m0": 8 bits, the exponent of the power of 2 above the scale.
    scales: str = "f16"

    @property
    def scale(self) -> Callable[..., Any]:
        """scale(block, g): the scale of any group, float32."""
        read = _READ[self.scales]
        return lambda block, g: read(block)

    @property
    def minimum(self) -> Callable[..., Any] | None:
        """minimum(block, g): the minimum of any group, float32; None if there is none."""
        if not self.minimum_at:
            return None
        read, at = _READ[self.scales], self.minimum_at
        return lambda block, g: read(block + at)
