"""Decides which sequences have KV pages, and which of their tokens the next step computes.

Sequences that generate come first, with one row each, or more if a grammar forced tokens. Then come
parts of prompts: by priority, and within a priority clients take turns, with as many rows as keep
the step short for the sequences that generate. If no page is free, the youngest sequence is
preempted: it gives its pages back and is computed again later. Sequences of the last priority pause
while there are others, and give up their slots and pages.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from trinity.errors import TrinityError
from trinity.runtime.interface import Engine, Rows
from trinity.runtime.scheduling.request_state import RequestState
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats
from trinity.runtime.scheduling.sequence import LAST, Logits, Sequence, States
from trinity.runtime.scheduling.step_costs import StepCosts, StepFit, pairs
from trinity.runtime.scheduling.turns import Turns, to_give_way
from trinity.runtime.speculation.budget import SpeculationBudget

if TYPE_CHECKING:
    from trinity.runtime.pages.kv_cache import KVCache
    from trinity.runtime.pages.page import Domain

LOGITS_BYTES = 64 << 20  # rows of one step
CANDIDATES = 64  # waiting sequences that are considered for a step
WORTH_WAITING = 16  # common tokens for which a sequence waits for another one


@dataclass(slots=True)
class ScheduledRows:
    """The rows of one sequence in a step."""

    sequence: Sequence
    cache: KVCache
    count: int  # the number of the sequence's pending tokens
    logits: int  # the number of last rows whose logits are needed
    is_prompt: bool = False
    proposals: list[int] = field(default_factory=list)  # speculated tokens after those
    states: States | None = None  # receives the hidden states

    def input(self) -> Rows:
        """The input of the engine."""
        start = self.cache.length
        tokens = self.sequence.tokens[start : start + self.count]
        second = self.sequence.second
        following, end = None, start + self.count
        images = self.sequence.images
        # The drafting layer has no embedding for rows of images.
        if self.count > 1 and self.sequence.speculates and not images:
            following = self.sequence.tokens[end] if end < len(self.sequence.tokens) else -1
        tokens = tokens + self.proposals
        revocable = bool(self.proposals)
        return Rows(
            self.cache, tokens, self.logits, self.states, second, revocable, following,
            self.is_prompt, self.sequence.best(self.proposals) if self.logits else None, images,
        )  # fmt: skip


class Scheduler:
    """The sequences that wait, by rank, and those that are ``admitted``: they have a KV cache.

    At most ``max_sequences`` are admitted; None: as many as find pages. A step has at most
    ``batch_size`` prompt tokens; None: as many as the engine takes.
    """

    def __init__(
        self, engine: Engine, target_seconds: float, max_sequences: int | None = None,
        batch_size: int | None = None,
    ) -> None:  # fmt: skip
        self.waiting: list[Sequence] = []
        self.admitted: list[Sequence] = []
        self.closed = False  # while set, no sequence is admitted
        self.held: dict[Domain, int] = {}  # slots in which later sequences have to wait
        self.costs = StepCosts(target_seconds)
        self._fit = StepFit()
        self.budget = SpeculationBudget()
        self.steps = 0
        self.shares = 0  # sequences in all steps
        self.steady = False  # whether the newest step followed another without a pause
        self._engine = engine
        self._most = math.inf if max_sequences is None else max_sequences
        self._prompt_rows = engine.prefill_chunk if batch_size is None else batch_size
        self._most_logits = max(1, LOGITS_BYTES // (4 * engine.config.vocab_size))
        self._kv_type = ""  # of the newest step
        self._blocked: Sequence | None = None  # it found no pages; no sequence after it is admitted
        self._pages_came = False
        self._yielding = False  # sequences of the last priority pause
        self._turns = Turns()

    def __bool__(self) -> bool:
        return bool(self.waiting or self.admitted)

    def add(self, sequence: Sequence) -> None:
        """Add a sequence to those that wait."""
        sequence.kv_type = sequence.kv_type or self._engine.kv_type
        if sequence.adapters is None:
            sequence.adapters = self._engine.adapter_weights()
        insort(self.waiting, sequence, key=lambda other: (other.priority, other.arrival))

    def stats(self) -> SchedulerStats:
        """Counts of requests and steps; any thread may call this during a step.

        Requests of the last priority are not counted, because other requests do not wait for them.
        """
        waiting = [sequence.client for sequence in list(self.waiting) if sequence.priority < LAST]
        admitted = [sequence for sequence in list(self.admitted) if sequence.priority < LAST]
        return SchedulerStats(
            waiting=len(waiting),
            running=len(admitted),
            prompting=sum(not sequence.generating for sequence in admitted),
            most_running=self._most,
            steps=self.steps,
            shares=self.shares,
            waiting_of=Counter(waiting),
        )

    def count(self, scheduled: list[ScheduledRows], processor_seconds: float) -> None:
        """Count a step, and divide its CPU time among requests by their rows."""
        self.steps += 1
        self.shares += len(scheduled)
        self.steady = True
        count = sum(rows.count + len(rows.proposals) for rows in scheduled)
        for rows in scheduled:
            if isinstance(rows.sequence, RequestState):
                part = (rows.count + len(rows.proposals)) / count
                rows.sequence.timings.cpu_seconds += part * processor_seconds

    def postprocess(self, scheduled: list[ScheduledRows], logits: Logits) -> None:
        """Give each sequence the logits of its rows; forget those that end."""
        end, ended = 0, False
        for rows in scheduled:
            start, end = end, end + rows.logits
            sequence = rows.sequence
            try:
                if rows.states is not None:
                    sequence.advance(rows.states)
                elif end > start:
                    sequence.advance(logits[start:end])
                else:
                    sequence.evaluated()
            except BaseException as error:
                sequence.fail(error)
            ended = ended or sequence.ended
        if ended:
            self.remove_ended()

    def learn(
        self, scheduled: list[ScheduledRows], pairs: float, seconds: float, turn_seconds: float
    ) -> None:
        """Learn from the duration of a step and of the whole turn.

        ``pairs``: the pairs of positions that the attention of its prompt rows computed.
        """
        prompt = sum(rows.count for rows in scheduled if rows.is_prompt)
        running = sum(not rows.is_prompt for rows in scheduled)
        sequence, proposals = scheduled[0].sequence, scheduled[0].proposals
        if proposals and isinstance(sequence, RequestState):
            self.budget.several(len(proposals), sequence.accepted, seconds)
            return
        if any(rows.count > 1 and not rows.is_prompt for rows in scheduled):
            return  # forced tokens are rows of neither kind
        if prompt == 0 and running == 1:
            self.budget.single(seconds)
        self._fit.note(running, prompt, pairs, turn_seconds)
        if prompt or self.costs.times is not self._fit.times:
            self.costs = self.costs.after(self._fit.times, running, prompt, pairs)

    def all(self) -> list[Sequence]:
        """Every sequence that has not ended."""
        return self.admitted + self.waiting

    def remove_ended(self) -> None:
        """Forget the sequences that have ended."""
        if any(sequence.ended for sequence in self.admitted):
            self.admitted = [s for s in self.admitted if not s.ended]
            self._pages_came = True
        if any(sequence.ended for sequence in self.waiting):
            self.waiting = [s for s in self.waiting if not s.ended]
        if self._blocked is not None and self._blocked.ended:
            self._blocked = None

    def drop_cancelled(self) -> None:
        """End the sequences that were cancelled."""
        ended = False
        for sequence in self.all():
            try:
                if sequence.cancelled:
                    sequence.finish("cancelled")
            except BaseException as error:  # raised by ``cancel`` or the last chunk
                sequence.fail(error)
            ended = ended or sequence.ended
        if ended:
            self.remove_ended()

    def schedule(self) -> list[ScheduledRows]:
        """The rows of the next step: KV caches of one element type, the types in turn."""
        if len(self.admitted) == 1 and not self.waiting and self.admitted[0].generating:
            scheduled = self._alone(self.admitted[0])
            if scheduled:
                return scheduled
        self._turns.note(self.all())
        present = self.admitted + self._candidates()
        self._yielding = len({sequence.yields for sequence in present}) == 2
        scheduled = self._schedule(present)
        if not scheduled and self._yielding:  # otherwise it could hold what the others wait for
            self._yielding = False
            scheduled = self._schedule(present)
        return scheduled

    def _schedule(self, present: list[Sequence]) -> list[ScheduledRows]:
        kinds = sorted({str(sequence.kv_type) for sequence in present})
        for kv_type in [k for k in kinds if k > self._kv_type] + kinds:
            scheduled = self._generating(kv_type)
            scheduled += self._prompts(kv_type, scheduled)
            self.remove_ended()
            # Some may have been preempted meanwhile.
            scheduled = [rows for rows in scheduled if rows.sequence.cache is rows.cache]
            if scheduled:
                self._kv_type = kv_type
                return scheduled
        return []

    def _generating(self, kv_type: str) -> list[ScheduledRows]:
        """The rows of sequences that generate; if there are too many, the others come next."""
        most = min(self._engine.prefill_chunk, self._most_logits)
        served = [s for s in self._going_on() if s.kv_type == kv_type and s.generating][:most]
        if len(served) == most:
            self.admitted = [s for s in self.admitted if s not in served] + served
        scheduled = []
        more = most - len(served)  # rows in addition to one each
        for sequence in sorted(served, key=lambda s: s.rank):
            cache = sequence.cache
            if cache is None:
                continue  # an older one took its pages
            count = min(sequence.pending, 1 + more)
            if self._reserve(sequence, cache, count):
                whole = count == sequence.pending
                scheduled.append(ScheduledRows(sequence, cache, count, int(whole)))
                more -= count - 1
        return scheduled

    def _alone(self, sequence: Sequence) -> list[ScheduledRows]:
        """One row of the only sequence, perhaps with speculated tokens after it."""
        cache, proposals = sequence.cache, list[int]()
        count = min(sequence.pending, self._engine.prefill_chunk)
        if cache is None or not self._reserve(sequence, cache, count):
            return []
        if count > 1:
            return [ScheduledRows(sequence, cache, count, int(count == sequence.pending))]
        if isinstance(sequence, RequestState):
            most = min(cache.most_revocable, self._engine.few - 1)
            draft = partial(self._engine.draft, cache, sequence.tokens)
            drafts = self._engine.drafts
            proposals = sequence.propose(self.budget, most, draft if drafts else None)
            more = len(proposals)
            if more and not cache.reserve(cache.length + 1 + more, revocable=more):
                proposals = sequence.propose(self.budget, 0)
        return [ScheduledRows(sequence, cache, 1, 1 + len(proposals), False, proposals)]

    def _prompts(self, kv_type: str, running: list[ScheduledRows]) -> list[ScheduledRows]:
        room, used = self._engine.prefill_chunk, sum(rows.count for rows in running)
        count = sum(sequence.generating for sequence in self._going_on())
        prompting = self._prompting(kv_type)
        if count:
            waiting = len(self.admitted) - count + len(self.waiting)
            room = min(room, used + self.costs.prompt_rows(count, waiting))
        elif all(sequence.yields for sequence in prompting):
            room = min(room, self.costs.last_rows)
        room = min(room - used, self._prompt_rows)
        logits = self._most_logits - len(running)
        scheduled: list[ScheduledRows] = []
        for sequence in prompting:
            if sequence.cache is None:
                self._admit(sequence, scheduled)
            if sequence.cache is not None:
                if sequence.whole and not scheduled and not used:
                    room = self._engine.prefill_chunk  # independent of batch_size
                taken = used + sum(rows.count for rows in scheduled)
                count, wanted = sequence.rows_of_step(
                    rows=room, logits=logits, image_rows=self._engine.prefill_chunk - taken
                )
                if count:
                    rows = ScheduledRows(sequence, sequence.cache, count, wanted, True)
                    if sequence.of_states:
                        width = self._engine.config.hidden_size
                        rows.states = np.empty((count, width), np.float32)
                    scheduled.append(rows)
                room -= count
                logits -= wanted
            if room <= 0:
                break
        return scheduled

    def _prompting(self, kv_type: str) -> list[Sequence]:
        """Sequences with prompt tokens to compute, by rank."""
        waiting = [s for s in self._going_on() if not s.generating]
        if not self.closed:
            waiting += [s for s in self._candidates() if not (self._yielding and s.yields)]
        return sorted((s for s in waiting if s.kv_type == kv_type), key=lambda s: s.rank)

    def _candidates(self) -> list[Sequence]:
        """The first of the waiting sequences, without those whose slot is held."""
        waiting = self.waiting
        if self.held:
            waiting = [s for s in waiting if self._arrived_before_hold(s)]
        if self._turns.several:
            waiting = sorted(waiting, key=lambda s: s.rank)
        return waiting[:CANDIDATES]

    def _arrived_before_hold(self, sequence: Sequence) -> bool:
        """Whether a sequence need not wait for the holder of its slot."""
        since = self.held.get(sequence.domain)
        return since is None or sequence.arrival < since

    def is_free(self, slot: Domain, arrival: int) -> bool:
        """Whether no sequence of a slot runs, or waits and came before."""
        return not any(s.domain == slot for s in self.admitted) and not any(
            s.domain == slot and s.arrival < arrival for s in self.waiting
        )

    def _may_enter(self, sequence: Sequence, scheduled: list[ScheduledRows]) -> bool:
        if len(self.admitted) >= self._most and not self._make_room(sequence):
            return False
        blocked = self._blocked
        if sequence is blocked and self.admitted and not self._pages_came:
            return False
        if blocked is not None and blocked.rank < sequence.rank:
            return False
        return not any(_evaluates_for(rows, sequence) for rows in scheduled)

    def _admit(self, sequence: Sequence, scheduled: list[ScheduledRows]) -> None:
        """Give a waiting sequence a KV cache, if there are pages for its tokens and one more.

        It reuses what others have computed of its tokens, so it waits for one that is about to.
        """
        if not self._may_enter(sequence, scheduled):
            return
        cache = self._engine.new_cache(sequence.kv_type, sequence.adapters, sequence.domain)
        fits = False
        try:
            if sequence.shares:
                cache.reuse(sequence.tokens)
            else:
                cache.separate()
            fits = self._fits(cache, sequence)
            while not fits and self._make_room(sequence):
                fits = self._fits(cache, sequence)
            if not fits and not self.admitted:
                raise TrinityError(
                    f"{len(sequence.tokens)} tokens of prompt and response do not fit into the KV "
                    f"cache of {cache.pool.limit} bytes: load the model with more kv_memory, or "
                    "shorten the text"
                )
        except BaseException as error:
            cache.release()
            sequence.fail(error)
            return
        self._blocked = None if fits else sequence
        self._pages_came = False
        if fits:
            self.waiting.remove(sequence)
            self.admitted.append(sequence)
            self._turns.begin(sequence)
            sequence.start(cache)
        else:
            cache.release()

    def _fits(self, cache: KVCache, sequence: Sequence) -> bool:
        """Reserve the pages that a sequence begins with and one page for its response."""
        if not cache.reserve(len(sequence.tokens)):
            return False
        return not self.admitted or cache.pool.available(cache.kv_type) > 0

    def _going_on(self) -> list[Sequence]:
        """Admitted sequences that do not pause."""
        return [s for s in self.admitted if not (self._yielding and s.yields)]

    def _make_room(self, sequence: Sequence) -> bool:
        """Preempt a sequence in favour of ``sequence``; False if there is none.

        It is the youngest of those that pause, or of a client that has too many.
        """
        still = [s for s in self.admitted if self._yielding and s.yields]
        victim = max(still, key=lambda s: s.rank) if still else to_give_way(sequence, self.admitted)
        if victim is not None:
            self._preempt(victim)
        return victim is not None

    def _reserve(self, sequence: Sequence, cache: KVCache, count: int) -> bool:
        """Reserve room for more tokens, preempting younger sequences; False if it was preempted
        itself.
        """
        while True:
            try:
                if cache.reserve(cache.length + count):
                    return True
            except BaseException as error:
                sequence.fail(error)
                return False
            youngest = max(self.admitted, key=lambda s: s.rank)
            self._preempt(youngest)
            if youngest is sequence:
                return False

    def _preempt(self, sequence: Sequence) -> None:
        """Take a sequence's pages; it waits before those that came later."""
        sequence.release()
        self.admitted.remove(sequence)
        self.add(sequence)
        self._pages_came = True


def _evaluates_for(rows: ScheduledRows, sequence: Sequence) -> bool:
    """Whether scheduled rows compute a prefix of ``sequence`` that it may share."""
    if not (sequence.shares and rows.sequence.shares):
        return False
    if (rows.sequence.adapters, rows.sequence.domain) != (sequence.adapters, sequence.domain):
        return False
    count = rows.cache.length + WORTH_WAITING
    tokens = sequence.tokens
    return count < len(tokens) and rows.sequence.tokens[:count] == tokens[:count]


def prompt_pairs(scheduled: list[ScheduledRows]) -> float:
    """The number of pairs of positions that the attention of a step's prompt rows computes."""
    return sum(
        pairs(rows.cache.length, rows.cache.length + rows.count)
        for rows in scheduled
        if rows.is_prompt
    )
