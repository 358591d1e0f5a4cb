"""Slots that are saved, restored and erased while other requests run."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.toy_model import ToyEngine, ToyTokenizer, held
from trinity.errors import InputError, TrinityError
from trinity.runtime.generation import Chunk
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.options import Request
from trinity.runtime.pages import slot_file
from trinity.runtime.pages.page import Domain
from trinity.runtime.pages.page_pool import PagePool
from trinity.runtime.pages.slots import Slots
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.scheduling.engine_thread import EngineThread
from trinity.runtime.scheduling.inbox import AsyncInbox, Inbox
from trinity.runtime.scheduling.request_state import RequestState
from trinity.runtime.scheduling.scheduler import CANDIDATES

T = TypeVar("T")
ENDLESS = 10**9
LONG = list(range(1, 200))


def in_thread(function: Callable[[], T]) -> Awaitable[T]:
    return asyncio.to_thread(function)


class Running:
    """An answer under way, and the chunks it gives."""

    def __init__(
        self, engine_thread: EngineThread, slot: int | None, tokens: list[int], most: int = ENDLESS,
        priority: int = 0,
    ) -> None:  # fmt: skip
        self.inbox = Inbox()
        self._engine_thread = engine_thread
        limits = GenerationLimits(ignore_eos=True, max_tokens=most, context_shift=most == ENDLESS)
        request = Request(SamplingParams(temperature=0), limits, slot=slot, priority=priority)
        self.answer = RequestState(
            tokens, request, ToyTokenizer(), self.inbox, vocab_size=259,  # type: ignore[arg-type]
            context_length=engine_thread.engine.context_length,
        )  # fmt: skip
        engine_thread.submit(self.answer)

    def next(self) -> Chunk:
        found: Chunk = self._engine_thread.wait(self.inbox)
        return found

    def last(self) -> Chunk:
        while not (found := self.next()).finish_reason:
            pass
        return found

    def cancel(self) -> None:
        self._engine_thread.cancel(self.answer)


@contextmanager
def started(engine: ToyEngine) -> Any:
    engine_thread = EngineThread(engine)  # type: ignore[arg-type]
    try:
        yield engine_thread, Slots(engine_thread)
    finally:
        engine_thread.close()


def cached(chunk: Chunk) -> int:
    assert chunk.timings is not None
    return chunk.timings.cached_tokens


@pytest.mark.parametrize("action", ["erase", "save", "restore"])
@pytest.mark.parametrize("other", [None, 2])
def test_operations_do_not_wait_for_answers_of_others(
    tmp_path: Path, action: str, other: int | None
) -> None:
    engine = ToyEngine(context_length=256)
    path = str(tmp_path / "slot")

    async def act() -> tuple[int, int]:
        match action:
            case "erase":
                return await slots.erase(Domain(1)), 0
            case "save":
                return await slots.save(Domain(1), path, in_thread)
            case _:
                return await slots.restore(Domain(1), path, in_thread)

    with started(engine) as (engine_thread, slots):
        Running(engine_thread, 1, LONG, 1).last()
        asyncio.run(slots.save(Domain(1), path, in_thread))
        beside = Running(engine_thread, other, [5, 6, 7])
        beside.next()
        assert asyncio.run(act())[0] == len(LONG)
        assert not beside.answer.ended
        assert cached(Running(engine_thread, None, [8, 9], 1).last()) == 0  # others begin, too
        assert not beside.answer.ended
        expected = 0 if action == "erase" else len(LONG) - 1
        assert cached(Running(engine_thread, 1, LONG, 1).last()) == expected
        beside.cancel()
        assert beside.last().finish_reason == "cancelled"


def test_operations_and_answers_of_a_slot_take_turns() -> None:
    """An operation waits for earlier completions, and later completions wait for it."""
    with started(ToyEngine(context_length=256)) as (engine_thread, slots):

        async def run() -> None:
            before = Running(engine_thread, 1, LONG, 40)
            erased = asyncio.create_task(slots.erase(Domain(1)))
            await asyncio.sleep(0)
            after = Running(engine_thread, 1, LONG, 1)
            # The newest token of an answer is not evaluated.
            assert await erased == len(LONG) + 39
            assert before.answer.ended
            assert cached(await asyncio.to_thread(after.last)) == 0

        asyncio.run(run())


def test_clients_that_loop_do_not_starve_a_slot() -> None:
    """Between two operations of a client, a waiting completion of the slot runs."""
    with started(ToyEngine(context_length=256)) as (engine_thread, slots):
        ended = False
        counts = [0] * 4

        async def loop(client: int) -> None:
            while not ended:
                await slots.erase(Domain(1))
                counts[client] += 1

        async def run() -> list[int]:
            nonlocal ended
            clients = [asyncio.create_task(loop(client)) for client in range(4)]
            while not all(counts):
                await asyncio.sleep(0)
            before = list(counts)
            running = Running(engine_thread, 1, [1, 2, 3], 5)
            await asyncio.to_thread(running.last)
            done = [now - then for now, then in zip(counts, before, strict=True)]
            ended = True
            await asyncio.gather(*clients)
            return done

        # Each client had one before it at most; and what it began while the end was told.
        assert max(asyncio.run(run())) < 50


def test_many_that_wait_for_a_held_slot_are_in_nobodys_way() -> None:
    with started(ToyEngine(context_length=256)) as (engine_thread, _):

        async def run() -> None:
            inbox = AsyncInbox()
            hold = engine_thread.hold(Domain(1), inbox)
            await inbox.get()
            waiting = [Running(engine_thread, 1, [i + 1, 2], 1) for i in range(CANDIDATES + 1)]
            other = Running(engine_thread, 2, [1, 2, 3], 3, priority=1)
            assert (await asyncio.to_thread(other.last)).finish_reason == "length"
            assert not any(one.answer.ended for one in waiting)
            hold.end()
            engine_thread.wake()
            for one in waiting:
                await asyncio.to_thread(one.last)

        asyncio.run(run())


def test_a_hold_that_is_dropped_is_over() -> None:
    with started(ToyEngine()) as (engine_thread, _):

        async def run() -> None:
            inbox = AsyncInbox()
            hold = engine_thread.hold(Domain(1), inbox)
            await inbox.get()
            running = Running(engine_thread, 1, [1, 2], 1)
            del hold
            gc.collect()
            assert (await asyncio.to_thread(running.last)).finish_reason == "length"

        asyncio.run(run())


@pytest.mark.parametrize("wait", ["for the slot", "for a thread"])
def test_a_client_that_leaves_ends_its_operation(wait: str, tmp_path: Path) -> None:
    with started(ToyEngine(context_length=256)) as (engine_thread, slots):

        async def run() -> None:
            before = Running(engine_thread, 1, LONG)
            never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if wait == "for a thread":
                before.cancel()
            task = asyncio.create_task(
                slots.save(Domain(1), str(tmp_path / "s"), lambda function: never)
            )
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            before.cancel()
            after = Running(engine_thread, 1, [1, 2], 1)
            assert (await asyncio.to_thread(after.last)).finish_reason == "length"

        asyncio.run(run())


@pytest.mark.parametrize(
    "engine_of",
    [
        lambda: ToyEngine(context_length=256, pages=4),
        lambda: ToyEngine(context_length=256, pages=6, window=20),
        lambda: ToyEngine(context_length=256, pages=6, state=True),
    ],
    ids=["full", "windowed", "recurrent"],
)
def test_pages_stay_while_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_of: Callable[[], ToyEngine]
) -> None:
    """Other requests take all pages during the write; the file has the slot's contents."""
    engine, path = engine_of(), str(tmp_path / "slot")
    parts = slot_file._parts

    def beside(*arguments: Any) -> Any:
        for index, data in enumerate(parts(*arguments)):
            for text in range(3):
                tokens = [200 + text, 7 + index, *range(1, 60)]
                Running(engine_thread, None, tokens, 3).last()
            yield data

    with started(engine) as (engine_thread, slots):
        Running(engine_thread, 1, LONG, 1).last()
        monkeypatch.setattr(slot_file, "_parts", beside)
        assert asyncio.run(slots.save(Domain(1), path, in_thread))[0] == len(LONG)
    monkeypatch.undo()
    with started(engine_of()) as (engine_thread, slots):
        asyncio.run(slots.restore(Domain(2), path, in_thread))
        cache = engine_thread.engine.new_cache(domain=Domain(2))
        assert cache.reuse([*LONG, 3]) == len(LONG)
        assert held(cache) == LONG
        cache.release()


def test_pages_that_are_filled_are_for_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, path = ToyEngine(context_length=256, pages=4), str(tmp_path / "slot")
    fill = slot_file._SlotReader.fill

    def beside(*arguments: Any) -> None:
        for text in range(3):
            Running(engine_thread, None, [200 + text, *range(1, 60)], 3).last()
        fill(*arguments)

    with started(engine) as (engine_thread, slots):
        Running(engine_thread, 1, LONG, 1).last()
        asyncio.run(slots.save(Domain(1), path, in_thread))
        monkeypatch.setattr(slot_file._SlotReader, "fill", beside)
        assert asyncio.run(slots.restore(Domain(2), path, in_thread))[0] == len(LONG)
        cache = engine.new_cache(domain=Domain(2))
        assert cache.reuse([*LONG, 3]) == len(LONG)
        assert held(cache) == LONG
        cache.release()


def test_what_fails_while_it_is_filled_is_found_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "slot")
    with started(ToyEngine(context_length=256)) as (engine_thread, slots):
        Running(engine_thread, 1, LONG, 1).last()
        asyncio.run(slots.save(Domain(1), path, in_thread))
        monkeypatch.setattr(slot_file._SlotReader, "fill", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            asyncio.run(slots.restore(Domain(1), path, in_thread))
        assert cached(Running(engine_thread, 1, LONG, 1).last()) == 0


def test_saving_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests have reserved all memory that could be claimed."""
    with started(ToyEngine(context_length=256)) as (engine_thread, slots):
        Running(engine_thread, 1, LONG, 1).last()
        monkeypatch.setattr(PagePool, "share", lambda pool, page: False)
        with pytest.raises(TrinityError, match="slot 1 cannot be saved now"):
            asyncio.run(slots.save(Domain(1), str(tmp_path / "slot"), in_thread))
        monkeypatch.undo()
        assert not list(tmp_path.iterdir())
        assert cached(Running(engine_thread, 1, LONG, 1).last()) == len(LONG) - 1


def test_closing_waits_for_a_file_and_ends_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, path = ToyEngine(context_length=256), tmp_path / "slot"
    writing, go_on = threading.Event(), threading.Event()
    parts = slot_file._parts

    def slowly(*arguments: Any) -> Any:
        writing.set()
        assert go_on.wait(60)
        yield from parts(*arguments)

    monkeypatch.setattr(slot_file, "_parts", slowly)
    engine_thread = EngineThread(engine)  # type: ignore[arg-type]
    slots = Slots(engine_thread)
    Running(engine_thread, 1, LONG, 1).last()

    async def run() -> None:
        saving = asyncio.create_task(slots.save(Domain(1), str(path), in_thread))
        assert await asyncio.to_thread(writing.wait, 30)
        waiting = asyncio.create_task(slots.erase(Domain(1)))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(engine_thread.close))
        with pytest.raises(InputError, match="closed"):
            await waiting
        assert not engine_thread.closed
        go_on.set()
        assert (await saving)[0] == len(LONG)
        await closing
        with pytest.raises(InputError, match="closed"):
            await slots.erase(Domain(1))

    asyncio.run(run())
    assert engine.closed
    assert path.stat().st_size > 8 * len(LONG)


def test_a_visit_is_made_between_steps_by_the_schedulers_thread() -> None:
    engine = ToyEngine(context_length=256)
    with started(engine) as (engine_thread, _):
        running = Running(engine_thread, None, [1, 2, 3])
        running.next()
        inside: list[str] = []
        engine.before_forward = lambda tokens: inside.append("step")
        name = engine_thread.between(lambda: threading.current_thread().name)
        assert name == "trinity-engine"
        with pytest.raises(ZeroDivisionError):
            engine_thread.between(lambda: 1 / 0)
        assert not running.answer.ended
        with pytest.raises(InputError, match="by the thread that runs it"):
            engine_thread.between(lambda: engine_thread.between(lambda: None))
        running.cancel()
    with pytest.raises(InputError, match="closed"):
        engine_thread.between(lambda: None)
