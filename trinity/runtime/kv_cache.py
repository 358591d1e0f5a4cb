"""The keys and values of one sequence, in one block of memory that the system fills as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from trinity.errors import InputError
from trinity.models.operations import Attention
from trinity.runtime.memory import zeros
from trinity_kernels.ops.kv_layout import TILE, layer_bytes


def layer_offsets(layers: Sequence[Attention], kv_type: str, capacity: int) -> list[int]:
    """Where each layer begins in a cache of ``capacity`` positions, and behind them its size."""
    sizes = [layer_bytes(kv_type, a.num_kv_heads, a.head_dim, capacity) for a in layers]
    return list(accumulate(sizes, initial=0))


class KVCache:
    """Room for ``capacity`` positions of ``kv_type`` (F16 or F32); ``length`` are filled.

    ``layers`` says what each layer keeps. ``owner``: the one engine that may use it; kernels reach
    the memory by its address. Raises: TrinityError where there is no memory for it.
    """

    def __init__(
        self, layers: Sequence[Attention], capacity: int, kv_type: str, owner: object = None
    ) -> None:
        self._kv_type = kv_type
        self._owner = owner
        capacity = -(-capacity // TILE) * TILE
        what = f"a cache of {capacity} positions in {kv_type} for {len(layers)} layers"
        self._data = zeros(layer_offsets(layers, kv_type, capacity)[-1] + 64, "u1", what)
        self._address = -(-self._data.ctypes.data // 64) * 64
        self.length = 0

    @property
    def kv_type(self) -> str:
        """F16 or F32."""
        return self._kv_type

    @property
    def owner(self) -> object:
        """What the engine that made it knows it by."""
        return self._owner

    @property
    def address(self) -> int:
        """Where the first layer's memory begins."""
        return self._address

    @property
    def nbytes(self) -> int:
        """Bytes reserved; pages never written take no memory."""
        return int(self._data.nbytes)

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        if not 0 <= length <= self.length:
            raise InputError(f"cannot cut a cache of {self.length} positions to {length}")
        self.length = length
