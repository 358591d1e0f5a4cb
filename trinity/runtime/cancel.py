"""What says whether to stop: what a caller may give, and the kinds that the engine uses itself."""

from __future__ import annotations

from time import monotonic
from typing import Protocol


class Cancel(Protocol):
    """Anything that says whether to stop, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Whether to stop now."""
        ...


class Flag:
    """As ``threading.Event`` without waiting, and without a lock that a fork might leave held."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """From now on it is set."""
        self._set = True

    def is_set(self) -> bool:
        """Whether to stop now."""
        return self._set


class AnyOf:
    """Set as soon as one of several cancellations is."""

    def __init__(self, *sources: Cancel | None) -> None:
        self._sources = tuple(source for source in sources if source is not None)

    def is_set(self) -> bool:
        """Whether to stop now."""
        return any(source.is_set() for source in self._sources)


class Deadline:
    """Set once some seconds have passed."""

    def __init__(self, seconds: float) -> None:
        self._end = monotonic() + seconds

    def is_set(self) -> bool:
        """Whether to stop now."""
        return monotonic() >= self._end
