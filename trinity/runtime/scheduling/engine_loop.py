"""The loop of the engine thread: take messages, run a step, repeat until the model is closed."""

from __future__ import annotations

import atexit
import copy
import threading
import time
import weakref
from collections import deque
from dataclasses import replace
from functools import cache
from queue import Empty, SimpleQueue
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TrinityError
from trinity.runtime.pages.slot_hold import SlotHold, SlotHolds
from trinity.runtime.sampling.mask_thread import MaskThread
from trinity.runtime.scheduling.inbox import Deliveries
from trinity.runtime.scheduling.lease import Lease, Visit
from trinity.runtime.scheduling.scheduler import ScheduledRows, Scheduler, prompt_pairs
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats
from trinity.runtime.scheduling.sequence import Sequence
from trinity_kernels.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from trinity.runtime.scheduling.engine_thread import EngineThread

# None wakes the thread to look for changes; a dead reference means that the user is gone.
Message = Sequence | Lease | Visit | SlotHold | weakref.ref[object] | None
LEASE_SECONDS = 0.1  # between checks whether the holder of an exclusive lease still exists
SHORT_SECONDS = 0.001
MOST_PAUSES = 4  # while requests follow each other without a pause
KEPT_ROWS = 16  # bytes of logits that are kept while nothing runs


class EngineLoop:
    """The thread of one process, and the objects that only this thread uses."""

    def __init__(self, engine_thread: EngineThread, user: object, renews: bool) -> None:
        self.messages: SimpleQueue[Message] = SimpleQueue()
        # A C callback: unlike a Python finalizer, Ctrl-C cannot interrupt it.
        self._user = None if user is None else weakref.ref(user, self.messages.put)
        # The running thread holds it strongly; a strong reference here would make a cycle.
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
        self._processor = 0.0  # CPU time of the process at the end of the newest step
        _end_threads_at_exit()

    @property
    def lease(self) -> Lease | None:
        """The lease that holds the engine, or the one that has waited longest for it."""
        leases = self._leases[:1]
        return leases[0] if leases and not leases[0].over else None

    def stats(self) -> SchedulerStats:
        """Scheduler statistics; requests submitted since the newest step count as waiting."""
        stats = SchedulerStats() if self._scheduler is None else self._scheduler.stats()
        return replace(stats, waiting=stats.waiting + self.messages.qsize())

    def ensure(self) -> None:
        """Start the thread if it does not run. Raises: TrinityError if it cannot be started."""
        if self._owner.locked():
            return
        try:
            uninterrupted(self._start)
        except (RuntimeError, MemoryError) as error:
            raise TrinityError(
                f"the system refuses a thread to run the model ({error}); end other threads or "
                "give the process more memory (ulimit -u, -v)"
            ) from error

    def is_own_thread(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def abandon(self) -> None:
        """End the thread and wait for it."""
        engine_thread = self._engine_thread()
        if engine_thread is not None:
            engine_thread.abandon()
        self.join()

    def join(self) -> None:
        """Wait until the thread, which was told to end, has ended."""
        if self._thread is not None and not self.is_own_thread():
            self._thread.join()

    def _start(self) -> None:
        threading.Thread(target=self._run, name="trinity-engine", daemon=True).start()

    def _run(self) -> None:
        again = True
        while again:
            if not self._owner.acquire(blocking=False):
                return  # it already runs
            try:
                self._thread = threading.current_thread()
                _alive.add(self)
                engine_thread = self._engine_thread()
                if engine_thread is None:
                    return  # nobody waits for what the messages ask for
                self._serve(engine_thread)
            finally:
                engine_thread = None
                _alive.discard(self)
                self._owner.release()
            again = not self.messages.empty()  # from a caller who saw the thread alive

    def _serve(self, engine_thread: EngineThread) -> None:
        """Alternate between messages and steps until the engine ends."""
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
                patience = 0.0  # a lease may be waiting for this
            self._take(scheduler, patience)
        self._end(scheduler, engine_thread)

    def _turn(self, scheduler: Scheduler) -> float | None:
        """Run at most one step; return the seconds to wait for messages, None for no limit."""
        lease = self.lease
        while lease is None and self._leases:
            del self._leases[0]
            lease = self.lease
        scheduler.closed = lease is not None
        if self._holds.holds or scheduler.held:
            scheduler.held = self._holds.look(scheduler.is_free)
        if self._visits and (lease is None or not lease.granted):
            self._visits.popleft().make()  # wait for one message, because a step is due
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
        if scheduler:  # the error freed memory for other requests
            time.sleep(SHORT_SECONDS)
            return 0.0
        if self._logits is not None and len(self._logits) > KEPT_ROWS:
            self._logits = None
        return None

    def _take(self, scheduler: Scheduler, patience: float | None) -> None:
        """Take all messages, waiting for the first.

        After an idle time, requests that arrive together should begin in the same step.
        """
        if patience != 0:
            try:
                self._handle(scheduler, self.messages.get(timeout=patience))
            except Empty:
                return
        self._take_all(scheduler)
        for _ in range(MOST_PAUSES if patience is None else 0):
            time.sleep(scheduler.costs.pause)
            if not self._take_all(scheduler):
                return

    def _take_all(self, scheduler: Scheduler) -> bool:
        """Take the messages that have arrived; return whether there were any."""
        some = False
        while not self.messages.empty():
            self._handle(scheduler, self.messages.get_nowait())
            some = True
        return some

    def _handle(self, scheduler: Scheduler, message: Message) -> None:
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
        """Schedule rows, run them and hand over their logits; False if there is nothing to run."""
        began = perf_counter()
        scheduled = scheduler.schedule()
        if not scheduled:
            scheduler.steady = False
            return False
        if not scheduler.steady:
            self._processor = process_time()  # the time before is not charged to a request
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
        with Deliveries.together():
            scheduler.postprocess(scheduled, logits)
        scheduler.learn(scheduled, pairs, seconds, perf_counter() - began)
        return True

    def _run_batch(self, scheduled: list[ScheduledRows]) -> NDArray[np.float32]:
        """Compute the logits of scheduled rows, while the mask thread computes grammar masks."""
        for rows in scheduled:
            if rows.logits:
                rows.sequence.prepare(self._mask_thread)
        batch = [rows.input() for rows in scheduled]
        out = self._room(sum(rows.logits for rows in scheduled))
        # Drafted tokens must not change the text, so their rows get the bits of single tokens.
        return self._engine.step(batch, exact=bool(scheduled[0].proposals), out=out)

    def _room(self, rows: int) -> NDArray[np.float32]:
        """Memory for logits, which is reused."""
        if self._logits is None or len(self._logits) < rows:
            self._logits = None
            vocab_size = self._engine.config.vocab_size
            self._logits = np.empty((1 << (rows - 1).bit_length(), vocab_size), np.float32)
        return self._logits[:rows]

    def _end(self, scheduler: Scheduler, engine_thread: EngineThread) -> None:
        """End every sequence as cancelled; close the engine once no lease holds it."""
        self._take(scheduler, 0.0)
        while True:
            for sequence in scheduler.all():
                sequence.cancel()
            scheduler.drop_cancelled()
            over = self._holds.close()
            while self._visits:  # a thread that reads or writes pages ends with its visit
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
    """End sequences with an exception, a copy for each, since several threads may raise it."""
    for sequence in sequences:
        sequence.fail(error)
        try:
            error = copy.copy(error).with_traceback(error.__traceback__)
        except Exception:
            continue  # the exception cannot be copied


_alive: weakref.WeakSet[EngineLoop] = weakref.WeakSet()


@cache
def _end_threads_at_exit() -> None:
    """Register ``_end_threads`` once: ``atexit.unregister`` does not free a registration's memory.

    Exit callbacks run newest first, so this one runs before that of the thread team.
    """
    atexit.register(_end_threads)


def _end_threads() -> None:
    """At interpreter exit, no thread may run compiled code while memory is freed."""
    for loop in list(_alive):
        loop.abandon()
