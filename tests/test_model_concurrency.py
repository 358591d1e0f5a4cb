"""Calls of a model that overlap or end early: streams, threads, asyncio, cancellation, close."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest

from tests.toy_model import (
    VOCAB_SIZE,
    ToyEngine,
    toy_model,
    used_bytes,
)
from trinity.errors import InputError
from trinity.model import Model
from trinity.runtime.interface import Rows

HELLO = [{"role": "user", "content": "hi"}]
SECONDS = 60  # which nothing here takes
pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_streams_that_are_left_end_and_their_pages_are_free() -> None:
    model, engine = toy_model(context_length=100_000)
    endless = {"ignore_eos": True}

    chunks = model.stream("ab", **endless)  # type: ignore[arg-type]
    next(chunks)
    del chunks
    gc.collect()
    no_page_is_in_use(model, engine)

    for _ in model.stream("ab", **endless):  # type: ignore[arg-type]
        break
    no_page_is_in_use(model, engine)

    with pytest.raises(ZeroDivisionError):
        fail_within(model.stream("ab", **endless))  # type: ignore[arg-type]
    no_page_is_in_use(model, engine)

    chunks = model.stream("ab", **endless)  # type: ignore[arg-type]
    next(chunks)
    chunks.close()
    no_page_is_in_use(model, engine)
    assert sum(map(len, engine.evaluated)) < 50_000

    unread = model.stream("ab")
    assert model.generate("ab", max_tokens=1).token_ids
    unread.close()


def fail_within(chunks: Iterable[object]) -> None:
    for _ in chunks:
        _ = 1 / 0


def no_page_is_in_use(model: Model, engine: ToyEngine) -> None:
    """After the step that is under way, which nothing but the clock bounds."""
    deadline = time.monotonic() + SECONDS
    while used_bytes(engine):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_calls_within_an_open_stream_work() -> None:
    """The calls are made in the same thread, which then continues the stream."""
    model, _ = toy_model()
    expected = [chunk.token_ids for chunk in model.stream("ab", seed=1)]
    alone = model.generate("xy", seed=2).token_ids
    chunks = model.stream("ab", seed=1)
    seen = [next(chunks).token_ids]
    assert model.generate("xy", seed=2).token_ids == alone
    other = model.stream("xy", seed=2)
    next(other)
    seen += [chunk.token_ids for chunk in chunks]
    assert seen == expected
    assert list(other)[-1].finish_reason


def test_ctrl_c_while_waiting_cancels() -> None:
    model, engine = toy_model(context_length=100_000)
    steps = count()

    def press(tokens: list[int]) -> None:
        if next(steps) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    engine.before_forward = press
    with pytest.raises(KeyboardInterrupt):
        model.generate("ab", ignore_eos=True)
    no_page_is_in_use(model, engine)
    assert model.generate("ab", max_tokens=1).token_ids


def test_an_error_ends_its_own_call() -> None:
    model, engine = toy_model()

    def fail(tokens: list[int]) -> None:
        raise RuntimeError("boom")

    engine.before_forward = fail
    with pytest.raises(RuntimeError, match="boom"):
        model.generate("ab")
    assert not used_bytes(engine)
    engine.before_forward = lambda tokens: None
    assert model.generate("ab", max_tokens=1).token_ids


def test_a_cancel_that_fails_ends_its_own_call() -> None:
    class Broken:
        def is_set(self) -> bool:
            raise RuntimeError("boom")

    model, _ = toy_model()
    chunks = model.stream("ab", seed=1)
    next(chunks)
    with pytest.raises(RuntimeError, match="boom"):
        model.generate("ab", cancel=Broken())
    assert list(chunks)[-1].finish_reason in ("stop", "length")


def test_a_batch_that_is_left_is_cancelled() -> None:
    model, engine = toy_model(context_length=100_000)
    results = model.generate_batch(["ab", "xy"], ignore_eos=True, stop="a")
    next(results)
    results.close()
    no_page_is_in_use(model, engine)


def test_exclusive_use_waits_and_lets_wait() -> None:
    model, engine = toy_model()
    chunks = model.stream("ab", seed=1)
    next(chunks)
    later: list[object] = []
    with model.exclusive() as mine:
        assert mine is engine
        assert not used_bytes(engine)  # the stream has come to its end
        worker = threading.Thread(target=lambda: later.append(model.generate("x", max_tokens=1)))
        worker.start()
        with pytest.raises(InputError, match="exclusively"):
            model.generate("ab")
        evaluated = len(engine.evaluated)
        cache = mine.new_cache()
        mine.step([Rows(cache, [3, 4])])
        assert later == []
        assert len(engine.evaluated) == evaluated + 1
    worker.join(SECONDS)
    assert len(later) == 1
    assert list(chunks)[-1].finish_reason
    with pytest.raises(ZeroDivisionError), model.exclusive():
        _ = 1 / 0
    assert model.generate("ab", max_tokens=1).token_ids
    with model.exclusive():
        model.close()
    assert engine.closed
    with pytest.raises(InputError, match="closed"), model.exclusive():
        pass


def test_threads_side_by_side_get_what_they_get_alone() -> None:
    model, _ = toy_model()  # its engine fails when two steps run at once
    prompts = ["a", "ab", "b", "xyz", "abcabc"]
    expected = {p: model.generate(p, seed=1, max_tokens=8).token_ids for p in prompts}
    wrong: list[object] = []

    def work(prompt: str) -> None:
        try:
            for _ in range(5):
                found = [i for c in model.stream(prompt, seed=1, max_tokens=8) for i in c.token_ids]
                if found != expected[prompt]:
                    wrong.append((prompt, found))
                if model.logits([5, 6]).shape != (2, VOCAB_SIZE):
                    wrong.append("logits")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(p,)) for p in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert wrong == []


def test_cancel_event() -> None:
    model, engine = toy_model(prefill_chunk=1)
    cancel = threading.Event()
    engine.before_forward = lambda tokens: cancel.set()
    found = model.generate("abc", cancel=cancel)
    assert (found.finish_reason, found.token_ids) == ("cancelled", [])
    assert len(engine.evaluated) == 1


def test_cancelled_before_it_begins() -> None:
    model, _ = toy_model()
    chunks = model.stream("ab")
    next(chunks)
    cancel = threading.Event()
    cancel.set()
    assert model.generate("ab", cancel=cancel).finish_reason == "cancelled"
    chunks.close()


def test_close_ends_an_open_stream() -> None:
    model, engine = toy_model(context_length=100_000)
    chunks = model.stream("ab", ignore_eos=True)
    next(chunks)
    unread = model.stream("ab")
    model.close()
    assert engine.closed
    assert list(chunks)[-1].finish_reason == "cancelled"
    with pytest.raises(InputError, match="closed"):
        next(unread)


def test_close_stops_what_runs_in_another_thread() -> None:
    model, engine = toy_model()
    started, go_on = threading.Event(), threading.Event()

    def pause(tokens: list[int]) -> None:
        started.set()
        go_on.wait(SECONDS)

    engine.before_forward = pause
    reasons: list[object] = []

    def work() -> None:
        reasons.append(model.generate("ab").finish_reason)

    worker = threading.Thread(target=work)
    worker.start()
    assert started.wait(SECONDS)
    closer = threading.Thread(target=model.close)
    closer.start()
    deadline = time.monotonic() + SECONDS
    while not model._engine_thread.closing:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    go_on.set()
    worker.join(SECONDS)
    closer.join(SECONDS)
    assert reasons == ["cancelled"]
    assert engine.closed


def test_asyncio_streams_without_blocking() -> None:
    async def main() -> None:
        model, engine = toy_model()
        engine.says("hello", after=3)
        texts = [c.text async for c in model.astream("ab")]
        assert "".join(texts) == "hello"
        with pytest.raises(InputError, match="top_p"):
            async for _ in model.astream("ab", top_p=3):
                pass
        both = await asyncio.gather(*(drain(model.astream("ab")) for _ in range(3)))
        assert both == ["hello"] * 3

    asyncio.run(main())


async def drain(chunks: Any) -> str:
    return "".join([c.text async for c in chunks])


def test_cancelled_task_cancels_the_generation() -> None:
    async def main() -> None:
        model, engine = toy_model(context_length=100_000)
        seen = asyncio.Event()

        async def consume() -> None:
            async for _ in model.astream("ab", ignore_eos=True):
                seen.set()

        task = asyncio.create_task(consume())
        await asyncio.wait_for(seen.wait(), SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = await asyncio.to_thread(model.generate, "ab", max_tokens=1)
        assert found.finish_reason in ("length", "stop")
        assert sum(map(len, engine.evaluated)) < 50_000

    asyncio.run(main())


def test_a_whole_answer_for_asyncio() -> None:
    async def main() -> None:
        model, engine = toy_model()
        engine.says("yes", after=len(model.apply_chat_template(HELLO)))
        found = await asyncio.gather(*(model.achat(HELLO) for _ in range(3)))
        assert [completion.text for completion in found] == ["yes"] * 3
        with pytest.raises(InputError, match="message"):
            await model.achat([])

    asyncio.run(main())


def test_cancelled_task_cancels_a_whole_answer() -> None:
    async def main() -> None:
        model, engine = toy_model(context_length=100_000)
        running = asyncio.Event()
        loop = asyncio.get_running_loop()
        engine.before_forward = lambda tokens: loop.call_soon_threadsafe(running.set)
        task = asyncio.create_task(model.achat(HELLO, ignore_eos=True))
        await asyncio.wait_for(running.wait(), SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        engine.before_forward = lambda tokens: None
        await asyncio.to_thread(no_page_is_in_use, model, engine)

    asyncio.run(main())
