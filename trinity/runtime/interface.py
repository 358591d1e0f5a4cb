"""What generation needs of an engine: forward steps over a cache."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig


class Cache(Protocol):
    """The keys and values of one sequence."""

    @property
    def length(self) -> int:
        """Tokens evaluated so far."""
        ...

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        ...


class Engine(Protocol):
    """A loaded model that maps token ids to logits."""

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants of the model."""
        ...

    @property
    def context_length(self) -> int:
        """The most positions that a cache holds."""
        ...

    @property
    def threads(self) -> int:
        """Threads that compute."""
        ...

    @property
    def isa(self) -> str:
        """The instruction-set level in use."""
        ...

    @property
    def prefill_chunk(self) -> int:
        """The most tokens that one ``forward`` takes."""
        ...

    @property
    def few(self) -> int:
        """The most tokens that one ``forward_few`` takes."""
        ...

    def new_cache(self, kv_type: str | None = None) -> Cache:
        """An empty cache, of the engine's element type or another (F16, F32)."""
        ...

    def forward(
        self, tokens: NDArray[np.int32], cache: Cache, *, all_logits: bool = False
    ) -> NDArray[np.float32]:
        """Evaluate ``tokens`` at positions ``cache.length`` on and append them to the cache.

        Shapes: returns (1, vocab) for the last token, or (n, vocab) with ``all_logits``. The array
        is the engine's own buffer and holds until the next call.
        """
        ...

    def forward_few(self, tokens: NDArray[np.int32], cache: Cache) -> NDArray[np.float32]:
        """As ``forward`` with all logits, in the very arithmetic of steps of one token each.

        Shapes: returns (n, vocab), the same bits as n steps give, the engine's own buffer.
        """
        ...

    def close(self) -> None:
        """End the threads; the engine must not be used afterwards."""
        ...
