"""Reads again which models there are and how they are loaded, while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from trinity.errors import TrinityError
from trinity.server.errors import ApiError
from trinity.server.models import Models
from trinity.server.served import Served

log = logging.getLogger("trinity.server")
_NAMED = 5  # models in the line that says what is served


def some_of(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class Reload:
    """Replaces the models that the command line offers by those that ``offered`` returns.

    Models that requests have added stay. Calls during a reload share the next one.
    """

    def __init__(
        self, models: Models, offered: Callable[[], Sequence[Served]], say: Callable[[str], None]
    ) -> None:
        self._models, self._offered, self._say = models, offered, say
        self._names = frozenset(models.served)
        self._running = asyncio.Lock()
        self._next: asyncio.Task[TrinityError | None] | None = None  # has not begun yet

    async def __call__(self) -> None:
        """Reload; without effect if something is wrong. Raises: ApiError 503, and logs why."""
        if self._next is None:
            self._next = asyncio.create_task(self._reload())
        error = await asyncio.shield(self._next)  # other callers wait for it, too
        if error is not None:
            # The message names files of the server, so only the log has it.
            raise ApiError(
                503, "the list of models cannot be read; the server's log says why"
            ) from error

    async def _reload(self) -> TrinityError | None:
        async with self._running:
            self._next = None
            try:
                offered = await asyncio.to_thread(self._offered)
            except TrinityError as error:
                log.error("the models stay as they are: %s", error)
                return error
            self._models.offer(offered, self._names)
            self._names = frozenset(model.name for model in offered)
            self._say(f"reloaded; models: {some_of(list(self._models.served))}")
            return None
