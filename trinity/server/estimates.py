"""Plain estimates of waiting times: the length of the queue times the mean time of a request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.runtime.generation import Timings
    from trinity.runtime.scheduler_stats import SchedulerStats

NEWEST = 0.1  # weight of a new time in a mean, after the first ten
LONGEST = 3600  # seconds of a Retry-After


class Estimates:
    """Estimates for one model, from the mean times of the requests that ended."""

    def __init__(self) -> None:
        self._ended = 0
        self._prompt = 0.0  # mean seconds from the first step until the first token
        self._request = 0.0  # mean seconds from the first step until the end

    def ended(self, timings: Timings) -> None:
        """Learn from a request that has ended."""
        self._ended += 1
        weight = max(NEWEST, 1 / self._ended)
        seconds = timings.prompt_seconds + timings.completion_seconds
        self._prompt += weight * (timings.prompt_seconds - self._prompt)
        self._request += weight * (seconds - self._request)

    def first_token(self, work: SchedulerStats) -> float | None:
        """Seconds until the newest of the waiting requests has its first token.

        None until a request has ended.
        """
        if not self._ended:
            return None
        queued = max(0.0, work.waiting - max(0.0, work.most_running - work.running))
        prompts = max(1.0, work.prompting + work.waiting - queued)
        return prompts * self._prompt + queued * self._turn(work)

    def retry_after(self, waiting: int, work: SchedulerStats) -> int:
        """Whole seconds until about half of the ``waiting`` requests have started.

        A client that asks again then finds room, and the queue is not empty before.
        """
        return min(max(1, math.ceil(waiting / 2 * self._turn(work))), LONGEST)

    def _turn(self, work: SchedulerStats) -> float:
        """Seconds from the end of one request to the end of the next."""
        return self._request / max(1, work.running)
