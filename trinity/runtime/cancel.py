"""What a caller stops a request with."""

from __future__ import annotations

from typing import Protocol


class Cancel(Protocol):
    """Anything that says whether to stop, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Whether to stop now."""
        ...
