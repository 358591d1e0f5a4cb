"""Detects that a model's file was truncated or overwritten while the engine maps it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from trinity.formats.mapping_table import TABLE

CHECK_SECONDS = 0.1  # seconds between two checks of the file's size and modification time


class FileWatch:
    """Calls ``check``, which raises FormatError if the file has changed, as often as needed.

    ``TABLE[0]`` counts page faults that the SIGBUS handler answered with zeros. If it grows, a
    weight was not read.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self.check()

    def check(self) -> None:
        """Check the file now."""
        faults = TABLE[0]
        self._check()
        self._faults = faults
        self._next_check = monotonic() + CHECK_SECONDS

    def before_walk(self) -> None:
        """Check the file if a check is due."""
        if monotonic() >= self._next_check or TABLE[0] != self._faults:
            self.check()

    def after_walk(self) -> None:
        """Check the file after a page fault: a token computed from zeros must not be returned."""
        if TABLE[0] != self._faults:
            self.check()
