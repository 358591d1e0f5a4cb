"""The engine thread: messages, steps, and its end."""

from __future__ import annotations

import atexit
import copy
import threading
import time
import weakref
from collections import deque
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TrinityError
from trinity.runtime.lease import Lease
from trinity.runtime.mask_thread import MaskThread
from trinity.runtime.scheduler import ScheduledRows, Scheduler, prompt_pairs
from trinity.runtime.scheduler_stats import SchedulerStats
from trinity.runtime.sequence import Sequence
from trinity.runtime.slot_hold import SlotHold, SlotHolds
from trinity.runtime.visit import Visit
from trinity_kernels.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from trinity.runtime.engine_thread import EngineThread

# None for a look at what has changed; a dead reference for a user that is gone.
Message = Sequence | Lease | Visit | SlotHold | weakref.ref[object] | None
LEASE_SECONDS = 0.1  # between looks at whether an exclusive user is still there
SHORT_SECONDS = 0.001
MOST_PAUSES = 4  # while one request after the other comes
KEPT_ROWS = 16  # of logits, while nothing is to be done


class EngineLoop:
    """The thread of one process, and what only that thread touches."""

    def __init__(self, engine_thread: EngineThread, user: object, renews: bool) -> None:
        self.messages: SimpleQueue[Message] = SimpleQueue()
        # A callback in C: a Ctrl-C cannot cut it off, as it can a finalizer in Python.
        self._user = None if user is None else weakref.ref(user, self.messages.put)
        # A running thread holds it; a strong one would make a cycle of the two.
        self._engine_thread = weakref.ref(engine_thread)
        self._engine = engine_thread.engine
        self._owner = threading.Lock()  # held by the thread as long as it lives
        self._thread: threading.Thread | None = None
        self._renews = renews
        self._scheduler: Scheduler | None = None
        self._leases: list[Lease] = []
        self._visits: deque[Visit] = deque()
        self._holds = SlotHolds()
        self._logits: NDArray[np.float32] | None = None
        self._mask_thread = MaskThread()
        self._processor = 0.0  # the process's time on processors until the newest step's end
        # The newest is called first: before the team of threads ends, on which a step would wait.
        atexit.unregister(_end_threads)
        atexit.register(_end_threads)

    @property
    def lease(self) -> Lease | None:
        """Who uses the engine exclusively, or waits for it the longest."""
        leases = self._leases[:1]
        return leases[0] if leases and not leases[0].over else None

    def stats(self) -> SchedulerStats:
        """What is to be done; what was submitted since the newest step waits."""
        stats = SchedulerStats() if self._scheduler is None else self._scheduler.stats()
        return replace(stats, waiting=stats.waiting + self.messages.qsize())

    def ensure(self) -> None:
        """See to it that the thread runs. Raises: TrinityError where the system gives none."""
        if self._owner.locked():
            return
        try:
            uninterrupted(self._start)
        except (RuntimeError, MemoryError) as error:
            raise TrinityError(
                f"the system gives no thread to run the model ({error}); end other threads or "
                "give the process more memory (ulimit -u, -v)"
            ) from error

    def is_own_thread(self) -> bool:
        """Whether the caller is the thread itself."""
        return threading.current_thread() is self._thread

    def abandon(self) -> None:
        """End the thread, and wait until it has ended."""
        engine_thread = self._engine_thread()
        if engine_thread is not None:
            engine_thread.abandon()
        self.join()

    def join(self) -> None:
        """Wait until the thread has ended, which it was told before; it holds what it ran."""
        if self._thread is not None and not self.is_own_thread():
            self._thread.join()

    def _start(self) -> None:
        threading.Thread(target=self._run, name="trinity-engine", daemon=True).start()

    def _run(self) -> None:
        again = True
        while again:
            if not self._owner.acquire(blocking=False):
                return  # there is one already
            try:
                self._thread = threading.current_thread()
                _alive.add(self)
                engine_thread = self._engine_thread()
                if engine_thread is not None:
                    self._serve(engine_thread)
            finally:
                engine_thread = None
                _alive.discard(self)
                self._owner.release()
            again = not self.messages.empty()  # from somebody who saw the thread still there

    def _serve(self, engine_thread: EngineThread) -> None:
        """Take messages and steps in turn until the engine ends."""
        scheduler = self._scheduler
        if scheduler is None:
            if self._renews:
                self._engine.renew_pool()
            scheduler = self._scheduler = Scheduler(
                self._engine,
                engine_thread.target_seconds,
                engine_thread.max_sequences,
                engine_thread.batch_size,
            )
        patience: float | None = 0.0
        while not (engine_thread.closing or engine_thread.abandoned):
            try:
                scheduler.drop_cancelled()
                patience = self._turn(scheduler)
            except BaseException as error:
                _fail(scheduler.all(), error)
                scheduler.remove_ended()
                patience = 0.0  # a lease may wait for just that
            self._take(scheduler, patience)
        self._end(scheduler, engine_thread)

    def _turn(self, scheduler: Scheduler) -> float | None:
        """One step at most; how long to wait for messages afterwards, None for ever."""
        lease = self.lease
        while lease is None and self._leases:
            del self._leases[0]
            lease = self.lease
        scheduler.closed = lease is not None
        if self._holds.holds or scheduler.held:
            scheduler.held = self._holds.look(scheduler.is_free)
        if self._visits and (lease is None or not lease.granted):
            self._visits.popleft().make()  # one, for a step waits
        if self._step(scheduler):
            return 0.0
        if lease is not None:
            if not lease.granted:
                lease.granted = True
                lease.inbox.put(None)
            return LEASE_SECONDS
        if self._visits:
            return 0.0
        if scheduler.held:
            return LEASE_SECONDS
        if scheduler:  # an error made room for others
            time.sleep(SHORT_SECONDS)
            return 0.0
        if self._logits is not None and len(self._logits) > KEPT_ROWS:
            self._logits = None
        return None

    def _take(self, scheduler: Scheduler, patience: float | None) -> None:
        """Take all messages; wait for the first one.

        After a sleep, those who ask at the same time shall begin in the same step.
        """
        if patience != 0:
            try:
                self._heed(scheduler, self.messages.get(timeout=patience))
            except Empty:
                return
        self._take_all(scheduler)
        for _ in range(MOST_PAUSES if patience is None else 0):
            time.sleep(scheduler.costs.pause)
            if not self._take_all(scheduler):
                return

    def _take_all(self, scheduler: Scheduler) -> bool:
        """Take the messages that are there; whether there were any."""
        some = False
        while not self.messages.empty():
            self._heed(scheduler, self.messages.get_nowait())
            some = True
        return some

    def _heed(self, scheduler: Scheduler, message: Message) -> None:
        if isinstance(message, Sequence):
            scheduler.add(message)
        elif isinstance(message, Lease):
            self._leases.append(message)
        elif isinstance(message, Visit):
            self._visits.append(message)
        elif isinstance(message, SlotHold):
            self._holds.add(weakref.ref(message))
        elif message is not None and (engine_thread := self._engine_thread()) is not None:
            engine_thread.abandon()

    def _step(self, scheduler: Scheduler) -> bool:
        """Schedule rows, run them, let their sequences go on; False if there is nothing to run."""
        began = perf_counter()
        scheduled = scheduler.schedule()
        if not scheduled:
            scheduler.steady = False
            return False
        if not scheduler.steady:
            self._processor = process_time()  # nobody is charged for the time before
        started, pairs = perf_counter(), prompt_pairs(scheduled)
        try:
            logits = self._run_batch(scheduled)
        except BaseException as error:
            _fail([rows.sequence for rows in scheduled], error)
            scheduler.remove_ended()
            return True
        seconds = perf_counter() - started
        before, self._processor = self._processor, process_time()
        scheduler.count(scheduled, self._processor - before)
        scheduler.postprocess(scheduled, logits)
        scheduler.learn(scheduled, pairs, seconds, perf_counter() - began)
        return True

    def _run_batch(self, scheduled: list[ScheduledRows]) -> NDArray[np.float32]:
        """The logits of scheduled rows; grammars compute their masks meanwhile."""
        for rows in scheduled:
            if rows.logits:
                rows.sequence.prepare(self._mask_thread)
        batch = [rows.input() for rows in scheduled]
        out = self._room(sum(rows.logits for rows in scheduled))
        # Proposals must not change the text: their rows get the bits of single tokens.
        return self._engine.step(batch, exact=bool(scheduled[0].proposals), out=out)

    def _room(self, rows: int) -> NDArray[np.float32]:
        """Memory for logits, which is used again."""
        if self._logits is None or len(self._logits) < rows:
            self._logits = None
            vocab_size = self._engine.config.vocab_size
            self._logits = np.empty((1 << (rows - 1).bit_length(), vocab_size), np.float32)
        return self._logits[:rows]

    def _end(self, scheduler: Scheduler, engine_thread: EngineThread) -> None:
        """End every sequence as cancelled; close the engine once nobody uses it exclusively."""
        self._take(scheduler, 0.0)
        while True:
            for sequence in scheduler.all():
                sequence.cancel()
            scheduler.drop_cancelled()
            over = self._holds.close()
            while self._visits:  # who reads or writes pages ends with a visit
                visit = self._visits.popleft()
                visit.refuse() if over else visit.make()
            if over:
                break
            self._take(scheduler, SHORT_SECONDS)
        self._logits = None
        self._mask_thread.end()
        if not engine_thread.closing or engine_thread.closed:
            return
        for lease in self._leases:
            if not lease.granted:
                lease.ended = True
                lease.inbox.put(None)
            while not lease.over:
                time.sleep(0.001)
        engine_thread.finish()


def _fail(sequences: list[Sequence], error: BaseException) -> None:
    """End sequences by an exception, each by its own: several threads may raise it."""
    for sequence in sequences:
        sequence.fail(error)
        try:
            error = copy.copy(error).with_traceback(error.__traceback__)
        except Exception:
            continue  # an exception that cannot be copied


_alive: weakref.WeakSet[EngineLoop] = weakref.WeakSet()


def _end_threads() -> None:
    """No thread shall be in compiled code while the interpreter takes its memory apart."""
    for loop in list(_alive):
        loop.abandon()
