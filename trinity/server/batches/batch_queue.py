"""The batches of all owners, which a server runs one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from starlette.types import ASGIApp

from trinity.server.batches.batches import Batches, Traffic
from trinity.server.caller import folder_of
from trinity.server.transport.loop_turns import CLIENT

# The client that rows of batches are, on the event loop.
BATCHES = "batches"


class BatchQueue:
    """The files and batches of each of ``owners``, who have equal parts of ``most_bytes``.

    Raises: InputError for a folder that cannot be used.
    """

    def __init__(self, folder: Path, most_bytes: int, owners: Collection[str]) -> None:
        self.traffic = Traffic()
        part = most_bytes // len(owners)
        self._by_owner = {
            name: Batches(folder_of(folder, name), part, self.traffic, name) for name in owners
        }

    def of(self, owner: str) -> Batches:
        """The files and batches of an owner."""
        return self._by_owner[owner]

    async def run(self, endpoints: Mapping[str, ASGIApp]) -> None:
        """Run batches until cancelled. ``endpoints`` are the applications by path."""
        CLIENT.set(BATCHES)  # on the event loop, batches take turns with clients
        news = self.traffic.news
        while True:
            news.clear()
            for _, batch_id, name in await asyncio.to_thread(self._waiting):
                await self._by_owner[name].take(batch_id, endpoints)
            if not news.is_set():
                try:
                    await asyncio.wait_for(news.wait(), 60.0)
                except TimeoutError:
                    continue

    def _waiting(self) -> list[tuple[int, str, str]]:
        """Time, name and owner of each unfinished batch, oldest first."""
        return sorted(
            (batch.created_at, batch.id, name)
            for name, batches in self._by_owner.items()
            for batch in batches.store.unfinished()
        )
