"""The interface by which a caller cancels a request."""

from __future__ import annotations

from typing import Protocol


class Cancel(Protocol):
    """An object that tells whether to stop, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Whether to stop now."""
        ...
