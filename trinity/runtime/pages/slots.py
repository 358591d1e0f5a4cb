"""Operations on slots while requests run; each operation waits for its own slot only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from trinity.runtime.pages.slot_file import erase, restore, save
from trinity.runtime.scheduling.inbox import AsyncInbox

if TYPE_CHECKING:
    from trinity.runtime.pages.page import Domain
    from trinity.runtime.pages.slot_hold import SlotHold
    from trinity.runtime.scheduling.engine_thread import EngineThread

T = TypeVar("T")


class Run(Protocol):
    """Runs a slow function outside of the event loop."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]:
        """Return the result of the function."""
        ...


class Slots:
    """Operations on the slots of one model, in an event loop.

    An operation waits until the slot's earlier requests have ended; later requests of the slot wait
    for the operation. All other requests continue. Work that needs the engine is done between two
    steps; ``run`` reads and writes files.
    """

    def __init__(self, engine_thread: EngineThread, *, images: bool = True) -> None:
        self._engine_thread = engine_thread
        self._restore = partial(restore, images=images)  # whether the model reads images

    async def erase(self, slot: Domain) -> int:
        """Forget what a slot holds; return its number of tokens."""
        hold = await self._held(slot)
        try:
            inbox = AsyncInbox()
            self._engine_thread.visit(partial(erase, self._engine_thread.engine, slot), inbox)
            count: int = await inbox.get()
            return count
        finally:
            self._end(hold)

    async def save(self, slot: Domain, path: str, run: Run) -> tuple[int, int]:
        """Write what a slot holds to a file; return the numbers of tokens and bytes.

        Raises: as ``slot_file.save``.
        """
        return await self._with_file(save, slot, path, run)

    async def restore(self, slot: Domain, path: str, run: Run) -> tuple[int, int]:
        """Replace what a slot holds by the content of a file; return the numbers of tokens and
        bytes.

        Raises: as ``slot_file.restore``.
        """
        return await self._with_file(self._restore, slot, path, run)

    async def _with_file(
        self, what: Callable[..., tuple[int, int]], slot: Domain, path: str, run: Run
    ) -> tuple[int, int]:
        hold = await self._held(slot)
        try:
            return await run(partial(self._begun, hold, what, path))
        finally:
            if hold.close():  # otherwise a thread is working on it and ends it
                self._engine_thread.wake()

    def _begun(
        self, hold: SlotHold, what: Callable[..., tuple[int, int]], path: str
    ) -> tuple[int, int]:
        hold.begin()
        try:
            engine_thread = self._engine_thread
            return what(engine_thread.engine, hold.slot, path, engine_thread.between)
        finally:
            self._end(hold)

    async def _held(self, slot: Domain) -> SlotHold:
        inbox = AsyncInbox()
        hold = self._engine_thread.hold(slot, inbox)
        try:
            await inbox.get()
        except BaseException:
            self._end(hold)
            raise
        return hold

    def _end(self, hold: SlotHold) -> None:
        hold.end()
        self._engine_thread.wake()
