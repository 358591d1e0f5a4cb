"""Random schedules of requests: each must get the tokens that it gets alone, and nothing may leak.

    python tests/soak/schedules.py --minutes 20
    python tests/soak/schedules.py --schedules 20 --model model.gguf

Threads ask one model for answers, streams, several answers, batches, logits and perplexities, and
leave them in every way: read to the end, closed, dropped, by an exception in their loop, cancelled,
by Ctrl-C (a signal in the main thread, an exception set from outside in the others), by closing the
model. Pools of pages are so small that sequences lose theirs; steps and pages fail at random. The
model is a toy whose logits come from the tokens in its pages, or ``--model``'s, which must be
ternary: other types round differently in common steps. A schedule that makes no progress ends the
program with the tracebacks of its threads. Ends with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import faulthandler
import gc
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import trinity  # noqa: E402
from tests.toy_model import toy_model  # noqa: E402
from trinity.errors import TrinityError  # noqa: E402
from trinity.model import Model  # noqa: E402
from trinity.runtime.interface import Engine  # noqa: E402
from trinity.runtime.pages.page import Page  # noqa: E402
from trinity.runtime.pages.page_pool import PagePool  # noqa: E402

HANG_SECONDS = 120
CONTEXT = 400
BEGINNINGS = ("", "It was", "Prince Andrew said that he would come, and then he went. " * 3)
ACTIONS = (
    "generate", "generate", "stream", "stream", "close", "drop", "fail", "cancel", "several",
    "batch", "async", "logits", "perplexity", "exclusive",
)  # fmt: skip


class InjectedError(Exception):
    """A fault of the harness."""


@dataclass
class Case:
    """A request, and what it gives alone."""

    prompt: list[int]
    options: dict[str, Any]
    alone: list[int] = field(default_factory=list)


class Deadline:
    """A cancellation some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def is_set(self) -> bool:
        """Whether the seconds are over."""
        return time.monotonic() > self._end


@dataclass
class Tally:
    """What was tried and what was wrong."""

    actions: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def cases_of(model: Model, number: int) -> list[Case]:
    """Requests of every kind; many of their prompts begin alike."""
    rng = random.Random(number)
    cases = []
    for _ in range(40):
        text = rng.choice(BEGINNINGS) * rng.randint(1, 2) + "abc xyz"[: rng.randint(0, 7)]
        options: dict[str, Any] = {
            "seed": rng.randrange(100), "temperature": rng.choice([0.0, 0.8, 1.5]),
            "max_tokens": rng.choice([0, 1, 3, 10, 30, 100]), "ignore_eos": rng.random() < 0.5,
            "repetition_penalty": rng.choice([1.0, 1.1]), "speculative": rng.random() < 0.7,
            "stop": rng.choice([None, None, "e "]), "cache_prompt": rng.random() < 0.8,
            "cache_salt": rng.choice(["", "", "a"]), "slot": rng.choice([None, None, 0]),
        }  # fmt: skip
        case = Case(model.tokenize(text), options)
        case.alone = model.generate(case.prompt, **{**options, "cache_prompt": False}).token_ids
        cases.append(case)
    return cases


class Faults:
    """Lets steps and pages of an engine fail at random."""

    def __init__(self, engine: Engine, rng: random.Random, rate: float) -> None:
        self._step, self._take = engine.step, engine.pool.take
        self._rng, self._rate = rng, rate
        engine.step = self.step  # type: ignore[method-assign]
        engine.pool.take = self.take  # type: ignore[method-assign]
        self._engine = engine

    def step(self, *arguments: Any, **options: Any) -> Any:
        """A step, or a fault before or after it."""
        chance = self._rng.random()
        if chance < self._rate / 2:
            raise InjectedError("before a step")
        found = self._step(*arguments, **options)
        if chance < self._rate:
            raise InjectedError("after a step")
        return found

    def take(self, parent: Page) -> Page | None:
        """A page, or none, or a refusal."""
        chance = self._rng.random()
        if chance < self._rate:
            return None
        if chance < 1.2 * self._rate:
            raise TrinityError("injected: no memory")
        return self._take(parent)

    def remove(self) -> None:
        """Let everything work; no cycle of references is left, so models are freed at once."""
        del self._engine.step, self._engine.pool.take


class User:
    """One thread that does one thing after the other."""

    def __init__(self, model: Model, cases: list[Case], seed: int, count: int, all: Tally) -> None:
        self.model, self.cases, self.count, self.all = model, cases, count, all
        self.rng = random.Random(seed)
        self.busy = False
        self.done = 0
        self.over = threading.Event()
        # CPython 3.11 gives an exception for this thread to the thread that it is starting.
        self.starting = threading.RLock()
        self.thread = threading.Thread(target=self.run, name=f"user-{seed}")

    def run(self) -> None:
        """All actions, then wait: an exception set for this thread must not reach another."""
        while not self.over.is_set():
            try:
                self.act()
                wait_for(self.over)
            except KeyboardInterrupt:
                continue

    def act(self) -> None:
        """All actions; an exception that was set from outside may come at any moment."""
        while self.done < self.count:
            try:
                while self.done < self.count:
                    self.done += 1
                    self.one()
            except KeyboardInterrupt:
                self.busy = False

    def one(self) -> None:
        """An action; what it raises must be one of the exceptions that it may raise."""
        action = self.rng.choice(ACTIONS)
        self.all.actions[action] += 1
        outcome = "done"
        try:
            self.busy = True
            getattr(self, f"do_{action}")(self.rng.choice(self.cases))
            self.busy = False
        except KeyboardInterrupt:
            outcome = "interrupted"
        except InjectedError:
            outcome = "fault"
        except TrinityError as error:
            outcome = next(
                (w for w in ("closed", "injected", "kv_memory", "cancelled") if w in str(error)), ""
            )
            if not outcome:
                self.all.wrong.append(f"{action}: {error!r}")
        except Exception as error:
            self.all.wrong.append(f"{action}: {error!r}")
        self.busy = False
        self.all.outcomes[outcome] += 1

    def check(self, case: Case, found: list[int], reason: str | None) -> None:
        """Compare with what the case gives alone; a part of it must be its beginning."""
        whole = case.alone if reason in ("stop", "length") else case.alone[: len(found)]
        if found != whole:
            self.all.wrong.append(f"{case.prompt} {case.options}: {found} instead of {whole}")

    def do_generate(self, case: Case) -> None:
        """An answer."""
        found = self.model.generate(case.prompt, **case.options)
        self.check(case, found.token_ids, found.finish_reason)

    def do_stream(self, case: Case) -> None:
        """A stream, read to its end."""
        self.read(case, 1 << 30)

    def do_close(self, case: Case) -> None:
        """A stream that is closed."""
        chunks, _ = self.read(case, self.rng.randrange(8))
        chunks.close()

    def do_drop(self, case: Case) -> None:
        """A stream that is dropped."""
        self.read(case, self.rng.randrange(8))

    def do_fail(self, case: Case) -> None:
        """An exception in the loop over a stream."""
        for number, _ in enumerate(self.model.stream(case.prompt, **case.options)):
            if number == 2:
                raise InjectedError("in a consumer")

    def do_cancel(self, case: Case) -> None:
        """An answer that is cancelled after a while."""
        cancel = Deadline(self.rng.random() * 0.02)
        found = self.model.generate(case.prompt, cancel=cancel, **case.options)
        self.check(case, found.token_ids, found.finish_reason)

    def do_several(self, case: Case) -> None:
        """Answers that share a prompt; the first is the one that it gives alone."""
        found = self.model.generate(case.prompt, n=self.rng.randint(1, 4), **case.options)
        self.check(case, found[0].token_ids, found[0].finish_reason)

    def do_batch(self, case: Case) -> None:
        """Several prompts, of which perhaps not all results are taken."""
        cases = [case, *(c for c in self.cases if c.options == case.options)]
        taken = self.rng.randint(1, len(cases))
        results = self.model.generate_batch([c.prompt for c in cases], **case.options)
        for _, (place, found) in zip(range(taken), results, strict=False):
            self.check(cases[place], found.token_ids, found.finish_reason)

    def do_async(self, case: Case) -> None:
        """Tasks of an event loop, one of them cancelled; a Ctrl-C would break the loop itself."""

        async def consume() -> tuple[list[int], str | None]:
            ids: list[int] = []
            reason = None
            async for chunk in self.model.astream(case.prompt, **case.options):
                ids += chunk.token_ids
                reason = chunk.finish_reason
            return ids, reason

        async def main() -> tuple[list[int], str | None]:
            other = asyncio.create_task(consume())
            try:
                found = await consume()
            finally:
                other.cancel()
                await asyncio.gather(other, return_exceptions=True)
            return found

        ids_and_reason: list[Any] = []
        done = threading.Event()

        def work() -> None:
            try:
                ids_and_reason.extend(asyncio.run(main()))
            except BaseException as error:
                ids_and_reason.append(error)
            done.set()

        with self.starting:
            threading.Thread(target=work, name="user-async").start()
        wait_for(done)
        if len(ids_and_reason) == 1:
            raise ids_and_reason[0]
        self.check(case, *ids_and_reason)

    def do_logits(self, case: Case) -> None:
        """Logits, the best of the last of which is the next token of a greedy answer."""
        logits = self.model.logits(case.prompt)
        if logits.shape[0] != len(case.prompt):
            self.all.wrong.append(f"logits of shape {logits.shape}")

    def do_perplexity(self, case: Case) -> None:
        """A perplexity."""
        self.model.perplexity(case.prompt * 8, window=min(CONTEXT, 4 * len(case.prompt)))

    def do_exclusive(self, case: Case) -> None:
        """The engine alone."""
        with self.model.exclusive():
            time.sleep(self.rng.random() * 0.002)

    def read(self, case: Case, count: int) -> tuple[Any, list[int]]:
        """Up to ``count`` pieces of a stream."""
        chunks = self.model.stream(case.prompt, **case.options)
        ids: list[int] = []
        reason = None
        for _, chunk in zip(range(count), chunks, strict=False):
            ids += chunk.token_ids
            reason = chunk.finish_reason
        self.check(case, ids, reason)
        return chunks, ids


def wait_for(event: threading.Event) -> None:
    """Wait for an event in a thread that is interrupted.

    Interrupted on its way out, ``event.wait`` raises RuntimeError, for it releases a lock that it
    does not hold.
    """
    while not event.is_set():
        time.sleep(0.005)


def interrupt(users: list[User], rng: random.Random, over: threading.Event) -> None:
    """Set KeyboardInterrupt in users that are busy, at random moments."""
    while not over.wait(rng.random() * 0.05):
        user = rng.choice(users)
        if user.starting.acquire(timeout=1):
            if user.busy and user.thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(user.thread.ident), ctypes.py_object(KeyboardInterrupt)
                )
            user.starting.release()


def alarmed(number: int, frame: object) -> None:
    """The handler of the main thread's timer."""
    raise KeyboardInterrupt


def schedule(
    seed: int, make: Callable[[random.Random], Model], cases: list[Case], all: Tally
) -> None:
    """One schedule: some users at once, then what is left of them."""
    rng = random.Random(seed)
    model = make(rng)
    engine: Engine = model.engine
    model.generate("x", max_tokens=1)  # the engine thread has been started
    faults = Faults(engine, rng, rng.choice([0.0, 0.0, 0.01, 0.05]))
    count = rng.choice([4, 4, 4, 32])
    users = [User(model, cases, 100 * seed + i, rng.randint(1, 8), all) for i in range(count)]
    mine = users.pop()  # the main thread's
    over = threading.Event()
    shooter = threading.Thread(target=interrupt, args=(users, random.Random(seed), over))
    for user in users:
        user.thread.start()
    if rng.random() < 0.5:
        shooter.start()
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, alarmed)
            signal.setitimer(signal.ITIMER_REAL, 0.005 + rng.random() * 0.1, 0.05)
    while True:
        try:
            mine.act()
            if rng.random() < 0.1:
                model.close()
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)
            break
        except KeyboardInterrupt:
            continue
    while any(user.done < user.count or user.busy for user in users):
        time.sleep(0.002)
    over.set()
    if shooter.ident is not None:
        shooter.join()
    for user in users:
        user.over.set()
        user.thread.join()
    faults.remove()
    del mine, users
    if not model._engine_thread.closing:
        case = rng.choice(cases)
        found = model.generate(case.prompt, **case.options).token_ids
        if found != case.alone:
            all.wrong.append(f"afterwards: {found} instead of {case.alone}")
        with model.exclusive():
            check_pages(engine.pool, all)
    model.close()
    check_pages(engine.pool, all)


def check_pages(pool: PagePool, all: Tally) -> None:
    """Nobody has a page."""
    pool.available("F16")
    if pool.claimed or pool.nbytes != pool.idle_bytes:
        used = pool.nbytes - pool.idle_bytes
        all.wrong.append(f"{used} bytes of pages are still in use, {pool.claimed} claimed")


def toys(seed: int) -> tuple[Callable[[random.Random], Model], list[Case]]:
    """Toy models of several sizes, and cases of them."""
    del seed

    def make(rng: random.Random) -> Model:
        chunk, pages = rng.choice([8, 32, 64]), rng.choice([4, 5, 6, 8, 100])
        window = rng.choice([0, 0, 1, 20, 128, 200])
        sizes: dict[str, Any] = {"prefill_chunk": chunk, "pages": pages, "window": window}
        return toy_model(context_length=CONTEXT, state=rng.random() < 0.25, **sizes)[0]

    model, _ = toy_model(context_length=CONTEXT, prefill_chunk=64)
    return make, cases_of(model, 1)


def real(path: str) -> tuple[Callable[[random.Random], Model], list[Case]]:
    """A model file with few pages."""
    with trinity.load(path, threads=2, context_length=CONTEXT) as model:
        page = max(sum(parts) for parts in model.engine.pool.sizes.values())
        cases = cases_of(model, 1)

    def make(rng: random.Random) -> Model:
        pages = rng.choice([4, 6, 100])
        return trinity.load(path, threads=2, context_length=CONTEXT, kv_memory=pages * page)

    return make, cases


def resident() -> int:
    """Resident memory of this process in bytes, 0 where that is unknown."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Run schedules until the time is over; print what was found."""
    parser = argparse.ArgumentParser(description="random schedules of requests")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--schedules", type=int, default=1 << 30)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--model", metavar="FILE", help="a ternary model instead of the toy")
    arguments = parser.parse_args()
    faulthandler.enable()
    make, cases = real(arguments.model) if arguments.model else toys(arguments.first_seed)
    all = Tally()
    threads = threading.active_count()
    end = time.monotonic() + 60 * arguments.minutes
    done, before = 0, 0
    while done < arguments.schedules and time.monotonic() < end and not all.wrong:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        schedule(arguments.first_seed + done, make, cases, all)
        done += 1
        if done == 50:
            before = resident()
    faulthandler.cancel_dump_traceback_later()
    gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    left = threading.active_count() - threads
    if left > 0:
        all.wrong.append(f"{left} threads are left: {threading.enumerate()}")
    grown = (resident() - before) / 1e6 if before else 0.0
    print(f"{done} schedules, {all.actions.total()} requests: {dict(all.actions)}")
    print(f"how they ended: {dict(all.outcomes)}; {grown:.1f} MB more resident since the 50th")
    for line in all.wrong[:10]:
        print(f"wrong: {line}")
    print(f"{len(all.wrong)} failures")
    return 1 if all.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
