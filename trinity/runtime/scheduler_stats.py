"""How much work a scheduler has, as seen from any thread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trinity.runtime.step_costs import StepCosts


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """What a scheduler has to do at a moment, and what its steps cost.

    ``waiting`` requests have had no step yet or lost their place, ``running`` ones have pages.
    ``pending_tokens`` of those that run, and ``next_tokens`` of the first that waits, are to be
    evaluated before that one has its first token. ``soonest_end`` is the fewest tokens after which
    one that runs must end, None where that is not known. So far there were ``steps``, in which
    ``shares`` sequences took part, each counted in each step. Of the running ones ``prompting``
    have no token yet, the others have at most so many tokens ``left``. ``most_running`` run at a
    time at most, a step has at most ``most_rows`` of prompts.
    The step under way ends in about ``step_left`` seconds, and evaluates ``step_rows`` of prompts.
    ``waiting_of`` counts those that wait by client. ``costs``: how many of these rows a step has,
    and what it takes; ``known`` tells whether enough is measured.
    """

    waiting: int = 0
    running: int = 0
    pending_tokens: int = 0
    next_tokens: int = 0
    soonest_end: int | None = None
    steps: int = 0
    shares: int = 0
    prompting: int = 0
    left: tuple[int, ...] = ()
    most_running: float = math.inf
    most_rows: int = 1
    step_left: float = 0.0
    step_rows: int = 0
    costs: StepCosts = field(default_factory=lambda: StepCosts(0.0))
    known: bool = False
    waiting_of: Mapping[str, int] = field(default_factory=dict)

    @property
    def step_seconds(self) -> float:
        """About what a step of those that run takes; 0 until measured."""
        return self.costs.times.seconds(max(1, self.running - self.prompting))

    @property
    def evaluation_seconds(self) -> float:
        """About how long it takes to evaluate what the first that waits has to wait for."""
        tokens, running = self.pending_tokens + self.next_tokens, self.running - self.prompting
        rows = self.rows(running, self.waiting + self.prompting)
        places = tokens * self.costs.places
        return self.costs.times.seconds(running, tokens, places, math.ceil(tokens / rows))

    @property
    def seconds_until_end(self) -> float:
        """About how long until one that runs must have ended; 0 where nothing is known."""
        return (self.soonest_end or 0) * self.step_seconds

    def rows(self, running: int, waiting: int) -> int:
        """Rows of prompts in a step beside so many that run, while so many wait to run."""
        if not running:
            return self.most_rows
        return min(self.most_rows, self.costs.prompt_rows(running, waiting))
