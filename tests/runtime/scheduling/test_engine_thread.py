"""The engine thread: start, sleep and end."""

from __future__ import annotations

import contextlib
import dis
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, cast

import pytest

from tests.processor_time import within
from tests.toy_model import ToyEngine, ToyTokenizer, toy_model, used_bytes
from trinity.errors import InputError, TrinityError
from trinity.runtime.generation import Chunk
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.options import Request
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.scheduling import engine_loop as module
from trinity.runtime.scheduling import engine_thread as engine_thread_module
from trinity.runtime.scheduling import lease as lease_module
from trinity.runtime.scheduling.engine_thread import EngineThread
from trinity.runtime.scheduling.inbox import Inbox
from trinity.runtime.scheduling.request_state import RequestState

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60  # which nothing here takes


def request(engine: ToyEngine, inbox: Inbox, **limits: Any) -> RequestState:
    return RequestState(
        [1, 2, 3],
        Request(SamplingParams(temperature=0), GenerationLimits(ignore_eos=True, **limits)),
        ToyTokenizer(),
        inbox,
        vocab_size=259,
        context_length=engine.context_length,  # type: ignore[arg-type]
    )


def last(engine_thread: EngineThread, inbox: Inbox) -> Chunk:
    while True:
        chunk: Chunk = engine_thread.wait(inbox)
        if chunk.finish_reason:
            return chunk


def soon(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def threads() -> Callable[[], list[threading.Thread]]:
    """The threads of engine threads that the test has started."""
    before = threading.enumerate()

    def found() -> list[threading.Thread]:
        every = threading.enumerate()
        return [t for t in every if t.name == "trinity-engine" and t not in before]

    return found


Threads = Callable[[], list[threading.Thread]]


def test_its_thread_starts_with_a_request_and_sleeps_without(threads: Threads) -> None:
    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    assert not threads()
    inbox = Inbox()
    engine_thread.submit(request(engine, inbox, max_tokens=2))
    assert last(engine_thread, inbox).finish_reason == "length"
    assert len(threads()) == 1
    evaluated = len(engine.evaluated)
    within(0.2, lambda: time.sleep(0.3), time.process_time)
    assert len(engine.evaluated) == evaluated
    engine_thread.close()
    soon(lambda: not threads())


def test_it_ends_with_the_last_reference_to_a_model(threads: Threads) -> None:
    model, engine = toy_model()
    model.generate("ab", max_tokens=1)
    assert threads()
    gone = weakref.ref(model)
    known = weakref.ref(engine)

    def interrupt(*event: object) -> None:
        raise KeyboardInterrupt

    saved = sys.gettrace()
    sys.settrace(interrupt)  # at the first call of Python code: a finalizer's would be cut off
    try:
        del model, engine
    finally:
        sys.settrace(saved)
    assert gone() is None  # at once, without the collector
    soon(lambda: not threads())
    soon(lambda: known() is None)


def test_an_abandoned_stream_does_not_keep_a_model(threads: Threads) -> None:
    model, engine = toy_model(context_length=100_000)
    chunks = model.stream("ab", ignore_eos=True)
    next(chunks)
    del chunks, model
    soon(lambda: not threads())
    assert used_bytes(engine) == 0


def test_an_exception_that_is_kept_keeps_no_request() -> None:
    """Its traceback holds the frames of the call."""
    model, engine = toy_model(context_length=100_000)
    cancel = Interrupting()
    with pytest.raises(KeyboardInterrupt) as info:
        model.generate("ab", ignore_eos=True, cancel=cancel)
    soon(lambda: used_bytes(engine) == 0)
    del info


class Interrupting:
    """Raises in the engine thread what a Ctrl-C raises in the main one."""

    def is_set(self) -> bool:
        raise KeyboardInterrupt


def test_close_from_several_threads_and_again() -> None:
    engine = ToyEngine(context_length=100_000)
    released: list[int] = []
    engine_thread = EngineThread(engine, release=lambda: released.append(1))
    inboxes = [Inbox() for _ in range(3)]
    for inbox in inboxes:
        engine_thread.submit(request(engine, inbox))
    closers = [threading.Thread(target=engine_thread.close) for _ in range(4)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(SECONDS)
        assert not closer.is_alive()
    engine_thread.close()
    assert engine.closed
    assert released == [1]
    assert [last(engine_thread, inbox).finish_reason for inbox in inboxes] == ["cancelled"] * 3
    with pytest.raises(InputError, match="closed"):
        engine_thread.submit(request(engine, Inbox()))


def test_close_in_a_callback_of_its_own_thread() -> None:
    engine = ToyEngine()
    engine_thread = EngineThread(engine)

    class Closing:
        def is_set(self) -> bool:
            engine_thread.close()
            return False

    inbox = Inbox()
    answer = RequestState(
        [1, 2],
        Request(SamplingParams(), GenerationLimits(), cancel=Closing()),
        ToyTokenizer(),
        inbox,  # type: ignore[arg-type]
        vocab_size=259,
        context_length=64,
    )
    engine_thread.submit(answer)
    assert last(engine_thread, inbox).finish_reason == "cancelled"
    soon(lambda: engine.closed)


def test_a_call_in_its_own_thread_is_an_error() -> None:
    model, _ = toy_model()

    class Asking:
        def is_set(self) -> bool:
            return bool(model.generate("ab", max_tokens=1).text)

    with pytest.raises(InputError, match="by the thread that runs it"):
        model.generate("ab", cancel=Asking())


def test_an_error_of_closing_is_raised_in_who_closes() -> None:
    engine = ToyEngine()

    def fail() -> None:
        raise OSError("injected")

    engine_thread = EngineThread(engine, release=fail)
    with pytest.raises(OSError, match="injected"):
        engine_thread.close()
    engine_thread.close()
    assert engine.closed


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    inbox = Inbox()
    answer = request(engine, inbox, max_tokens=1)

    def refuse(*arguments: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "uninterrupted", refuse)
    with pytest.raises(TrinityError, match="refuses a thread"):
        engine_thread.submit(answer)
    monkeypatch.undo()
    other = Inbox()
    engine_thread.submit(request(engine, other, max_tokens=1))
    assert last(engine_thread, other).finish_reason == "length"
    monkeypatch.setattr(module, "uninterrupted", refuse)
    engine_thread.close()
    assert engine.closed
    unused = EngineThread(ToyEngine())
    unused.close()
    assert unused.engine.closed  # type: ignore[attr-defined]


def test_a_thread_that_died_is_replaced() -> None:
    """No known error ends the thread; a waiting caller would start another one."""
    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    inbox = Inbox()
    loop = engine_thread._loop()
    loop.messages.put(request(engine, inbox, max_tokens=1))
    assert last(engine_thread, inbox).finish_reason == "length"
    engine_thread.close()


def test_an_error_of_its_own_ends_requests_not_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    inbox = Inbox()
    monkeypatch.setattr(module.Scheduler, "schedule", lambda self: 1 / 0)
    engine_thread.submit(request(engine, inbox))
    with pytest.raises(ZeroDivisionError):
        last(engine_thread, inbox)
    monkeypatch.undo()
    engine_thread.submit(request(engine, inbox, max_tokens=1))
    assert last(engine_thread, inbox).finish_reason == "length"
    engine_thread.close()


def test_a_lease_that_is_dropped_is_over() -> None:
    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    lease = engine_thread.exclusive()
    lease.__enter__()
    inbox = Inbox()
    waiting = request(engine, inbox, max_tokens=1)
    thread = threading.Thread(target=engine_thread.submit, args=(waiting,))
    thread.start()
    thread.join()
    assert not engine.evaluated
    del lease
    gc.collect()
    assert last(engine_thread, inbox).finish_reason == "length"
    engine_thread.close()


def test_a_ctrl_c_at_any_instruction_ends_a_lease() -> None:
    """This holds even if the exception, and all frames of its traceback, are kept."""
    kept: list[KeyboardInterrupt] = []
    files = {lease_module.__file__, engine_thread_module.__file__, contextlib.__file__}

    def use(at: int) -> bool:
        """Use the engine; whether an instruction ``at`` was there to be interrupted."""
        left = at

        def trace(frame: FrameType, event: str, argument: object) -> object:
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            frame.f_trace_opcodes = True
            # The interpreter handles no signal where a function returns.
            left -= frame.f_code.co_code[frame.f_lasti] != dis.opmap["RETURN_VALUE"]
            if left == 0:
                raise KeyboardInterrupt
            return trace

        sys.settrace(cast(Any, trace))
        try:
            with engine_thread.exclusive():
                pass
        except KeyboardInterrupt as error:
            kept.append(error)
        finally:
            sys.settrace(None)
        return left <= 0

    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    with engine_thread.exclusive():
        pass
    while use(len(kept) + 1):
        inbox = Inbox()
        engine_thread.submit(request(engine, inbox, max_tokens=1))
        assert inbox.items.get(timeout=SECONDS)
    assert len(kept) > 50
    engine_thread.close()


def test_a_lease_is_used_once() -> None:
    engine_thread = EngineThread(ToyEngine())
    lease = engine_thread.exclusive()
    with lease, pytest.raises(InputError, match="used before"), lease:
        pass
    with pytest.raises(InputError, match="used before"), lease:
        pass
    engine_thread.close()


def test_two_leases_take_turns() -> None:
    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    inside: list[int] = []

    def work() -> None:
        for _ in range(20):
            with engine_thread.exclusive():
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS)
        assert not worker.is_alive()
    engine_thread.close()


def test_close_waits_for_a_lease_of_another_thread() -> None:
    engine = ToyEngine()
    engine_thread = EngineThread(engine)
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with engine_thread.exclusive():
            entered.set()
            leave.wait(SECONDS)
            assert not engine.closed

    worker = threading.Thread(target=work)
    worker.start()
    assert entered.wait(SECONDS)
    closer = threading.Thread(target=engine_thread.close)
    closer.start()
    time.sleep(0.05)
    assert not engine.closed
    leave.set()
    closer.join(SECONDS)
    worker.join(SECONDS)
    assert engine.closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_begins_anew() -> None:
    """The fork happens during a step of the parent's thread, which holds locks."""
    model, engine = toy_model(context_length=100_000)
    inside, leave = threading.Event(), threading.Event()

    def pause(tokens: list[int]) -> None:
        inside.set()
        leave.wait(SECONDS)

    expected = model.generate("ab", max_tokens=4, seed=1).token_ids
    chunks = model.stream("xy", ignore_eos=True)
    next(chunks)
    engine.before_forward = pause
    assert inside.wait(SECONDS)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            engine.before_forward = lambda tokens: None
            engine.running = 0
            with pytest.raises(InputError, match="before the process forked"):
                next(chunks)
            assert model.generate("ab", max_tokens=4, seed=1).token_ids == expected
            model.close()
            code = 0
        finally:
            os._exit(code)
    leave.set()
    assert os.waitpid(child, 0)[1] == 0
    chunks.close()
    assert model.generate("ab", max_tokens=4, seed=1).token_ids == expected


@pytest.mark.full
@pytest.mark.parametrize("minutes", ["0.04", pytest.param("1", marks=pytest.mark.crossed)])
def test_random_schedules(minutes: str) -> None:
    """Some schedules of tests/soak/schedules.py, whose exceptions pytest would report too."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "soak" / "schedules.py"), "--minutes", minutes],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout


class LateQueue(SimpleQueue[Any]):
    """What CPython 3.11's is where a timed ``get`` begins after its time: it waits for an item."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return super().get(block)


def test_timed_waits_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SimpleQueue", LateQueue)
    model, engine = toy_model()
    for _ in range(3):
        assert model.generate("ab", max_tokens=2, ignore_eos=True).finish_reason == "length"
        time.sleep(0.01)
    inbox = Inbox()
    engine_thread = model._engine_thread
    waiting = request(engine, inbox, max_tokens=1)
    other = threading.Thread(target=engine_thread.submit, args=(waiting,))
    with model.exclusive():
        other.start()
        other.join(SECONDS)
        time.sleep(0.01)
    assert last(engine_thread, inbox).finish_reason == "length"
    model.close()


def test_a_thread_that_starts_after_its_owner_is_gone_ends() -> None:
    """Messages may be left over if Ctrl-C arrived between a message and the start."""
    engine_thread = EngineThread(ToyEngine())  # type: ignore[arg-type]
    loop = engine_thread._loop()
    loop.messages.put(None)
    del engine_thread
    gc.collect()
    started = threading.Thread(target=loop._run, daemon=True)
    started.start()
    started.join(SECONDS)
    assert not started.is_alive()
