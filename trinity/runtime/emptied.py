"""An object that can be emptied; using it afterwards raises an error that the model is closed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NoReturn

from trinity.errors import InputError


class Emptied:
    """After ``empty``, only the kept attributes can be used; all others raise InputError."""

    def empty(self, kept: Collection[str]) -> None:
        """Drop all attributes except those in ``kept``."""
        for name in self.__dict__.keys() - kept:
            delattr(self, name)
        self._emptied = True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if "_emptied" in self.__dict__:
                raise InputError("the model is closed; load it again")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
