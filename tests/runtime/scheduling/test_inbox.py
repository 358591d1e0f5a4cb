"""Results reach an event loop in order, and wake it once for all that are put together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from trinity.runtime.scheduling.inbox import MOST_AT_ONCE, AsyncInbox, Deliveries


def in_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def counted_wakes(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    wakes: list[object] = []
    wake = loop.call_soon_threadsafe

    def counted(callback: Callable[[], object]) -> asyncio.Handle:
        wakes.append(callback)
        return wake(callback)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    return wakes


def test_a_loop_is_woken_once_for_results_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        wakes = counted_wakes(asyncio.get_running_loop(), monkeypatch)
        first, second = AsyncInbox(), AsyncInbox()

        def put() -> None:
            for number in range(10):
                first.put(number)
                second.put(-number)

        in_thread(put)  # the loop takes nothing meanwhile
        assert len(wakes) == 1
        assert [await first.get() for _ in range(10)] == list(range(10))
        assert [await second.get() for _ in range(10)] == [-number for number in range(10)]
        assert not first.has_next
        in_thread(lambda: first.put(10))
        assert await first.get() == 10
        assert len(wakes) == 2

    asyncio.run(test())


def test_results_put_together_wake_the_loop_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        wakes = counted_wakes(asyncio.get_running_loop(), monkeypatch)
        inbox = AsyncInbox()

        def put() -> None:
            with Deliveries.together():
                inbox.put(1)
                inbox.put(2)
                assert wakes == []
            assert len(wakes) == 1

        in_thread(put)
        assert [await inbox.get(), await inbox.get()] == [1, 2]

    asyncio.run(test())


def test_one_turn_takes_so_many_results() -> None:
    async def test() -> None:
        inbox, count = AsyncInbox(), 3 * MOST_AT_ONCE + 1
        in_thread(lambda: [inbox.put(number) for number in range(count)] and None)
        taken = []
        for _ in range(8):
            await asyncio.sleep(0)
            taken.append(inbox._items.qsize())
        assert taken[-1] == count
        assert MOST_AT_ONCE in taken
        assert [await inbox.get() for _ in range(count)] == list(range(count))

    asyncio.run(test())


def test_results_for_a_loop_that_is_closed_are_dropped() -> None:
    async def make() -> AsyncInbox:
        return AsyncInbox()

    inbox = asyncio.run(make())
    inbox.put(1)
    with Deliveries.together():
        inbox.put(2)
    assert not inbox.has_next
