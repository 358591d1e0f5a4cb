"""A coroutine that is made when it is awaited, since a stream's may never be."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

S = TypeVar("S")


class Later(Generic[S]):
    """Awaits what ``make`` makes."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, S]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, None, S]:
        return self._make().__await__()
