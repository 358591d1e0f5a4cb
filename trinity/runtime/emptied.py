"""An object that can be emptied, and says of what it had then that the model is closed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NoReturn

from trinity.errors import InputError


class Emptied:
    """What ``empty`` leaves can be used; anything else then raises InputError."""

    def empty(self, kept: Collection[str]) -> None:
        """Drop all attributes but those ``kept``."""
        for name in self.__dict__.keys() - kept:
            delattr(self, name)
        self._emptied = True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if "_emptied" in self.__dict__:
                raise InputError("the model is closed; load it again")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
