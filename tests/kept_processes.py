"""Libraries of tokenizers answer many tests in one process: its start takes ten times a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from trinity.processes.confined import Confined
from trinity.tokenizers.huggingface import reference

_MOST_KEPT = 300_000_000  # bytes of memory


class _Kept(Confined):
    """A confined process that stays open for its next user."""

    def close(self) -> None:
        pass


@contextmanager
def kept_processes() -> Iterator[None]:
    """Share one process of these libraries, but for files that may take more memory."""
    kept: dict[str, Confined] = {}

    def confined(module: str, *, memory_bytes: int, seconds: float) -> Confined:
        if memory_bytes > _MOST_KEPT:
            return Confined(module, memory_bytes=memory_bytes, seconds=seconds)
        if module not in kept:
            kept[module] = _Kept(module, memory_bytes=_MOST_KEPT, seconds=seconds)
        return kept[module]

    with patch.object(reference, "Confined", confined):
        yield
    for one in kept.values():
        Confined.close(one)
