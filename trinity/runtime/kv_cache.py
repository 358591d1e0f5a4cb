"""The keys and values of one sequence, in one block of memory that the system fills as it grows."""

from __future__ import annotations

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import InputError
from trinity_kernels.ops.kv_layout import TILE, layer_bytes


class KVCache:
    """Room for ``capacity`` positions of ``kv_type`` (F16 or F32); ``length`` are filled."""

    def __init__(self, config: ModelConfig, capacity: int, kv_type: str) -> None:
        self.kv_type = kv_type
        self.capacity = -(-capacity // TILE) * TILE
        self.layer_bytes = layer_bytes(kv_type, config.num_kv_heads, config.head_dim, self.capacity)
        self._data = np.zeros(self.layer_bytes * config.num_layers + 64, np.uint8)
        self.address = -(-self._data.ctypes.data // 64) * 64
        self.length = 0

    @property
    def nbytes(self) -> int:
        """Bytes reserved; pages never written take no memory."""
        return int(self._data.nbytes)

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        if not 0 <= length <= self.length:
            raise InputError(f"cannot cut a cache of {self.length} positions to {length}")
        self.length = length
