"""How much work a scheduler has, as seen from any thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from trinity.runtime.prompt_times import PromptTimes


@dataclass(frozen=True, slots=True)
class Work:
    """What a scheduler has to do at a moment, and what its steps cost.

    ``waiting`` requests have had no step yet or lost their place, ``running`` ones have pages.
    ``pending_tokens`` of those that run, and ``next_tokens`` of the first that waits, are to be
    evaluated before that one has its first token. ``soonest_end`` is the fewest tokens after which
    one that runs must end, None where that is not known. ``step_seconds`` is a moving mean of a
    step of those that run, ``row_seconds`` of a token of a prompt; 0 until measured. So far there
    were ``steps``, in which ``shares`` sequences took part, each counted in each step. Of the
    running ones ``prompting`` have no token yet; a step takes ``prompt_rows`` tokens of prompts.
    The step under way ends in about ``step_left`` seconds, and evaluates ``step_rows`` of prompts,
    which look at ``step_pairs`` of places. ``prompt_times``: what a step's rows of prompts take.
    """

    waiting: int = 0
    running: int = 0
    pending_tokens: int = 0
    next_tokens: int = 0
    soonest_end: int | None = None
    step_seconds: float = 0.0
    row_seconds: float = 0.0
    steps: int = 0
    shares: int = 0
    prompting: int = 0
    prompt_rows: int = 0
    step_left: float = 0.0
    step_rows: int = 0
    step_pairs: float = 0.0
    prompt_times: PromptTimes = field(default_factory=PromptTimes)

    @property
    def evaluation_seconds(self) -> float:
        """About how long it takes to evaluate what the first that waits has to wait for."""
        return (self.pending_tokens + self.next_tokens) * self.row_seconds

    @property
    def seconds_until_end(self) -> float:
        """About how long until one that runs must have ended; 0 where nothing is known."""
        return (self.soonest_end or 0) * self.step_seconds
