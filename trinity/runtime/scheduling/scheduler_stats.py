"""How much work a scheduler has, readable from any thread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Numbers of requests now, and of steps so far."""

    waiting: int = 0  # requests without a step so far, and preempted ones
    running: int = 0  # requests with pages
    prompting: int = 0  # running requests without a token so far
    most_running: float = math.inf  # the limit of ``running``
    steps: int = 0
    shares: int = 0  # sequences in all steps, counted once per step
    waiting_of: Mapping[str, int] = field(default_factory=dict)  # ``waiting`` by client
