"""A model that the server offers, the lease that keeps it loaded, and how long requests wait."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.server.errors import ApiError

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.generation import Timings
    from trinity.runtime.scheduling.scheduler_stats import SchedulerStats

NEWEST = 0.1  # weight of a new time in a mean, after the first ten
LONGEST = 3600  # seconds of a Retry-After


class Estimates:
    """Waiting times of one model: the length of the queue times the mean time of a request."""

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


@dataclass(eq=False)
class Served:
    """A model of the server, loaded or not."""

    name: str
    ref: str
    load: Callable[[], Model]
    weigh: Callable[[], int] = lambda: 0  # bytes that it takes, known before it is loaded
    # The longest context that fits in a number of bytes; None: the context is fixed.
    longest: Callable[[int], int] | None = None
    context: int | None = None  # with which it is loaded, if a request asked for one
    created: int = field(default_factory=lambda: int(time.time()))
    model: Model | None = None
    users: int = 0  # leases
    # Responses of each client that are being prepared.
    entering: Counter[str] = field(default_factory=Counter)
    used: int = 0  # number of the newest lease among those of all models
    bytes: int = 0
    loading: bool = False
    failed: bool = False  # it could not be loaded
    most_context: int | None = None  # the longest context that was found to fit
    # By owner that has used it since it was loaded: seconds to keep it after its last use.
    keep_seconds: dict[str, float] = field(default_factory=dict)
    expires: float = math.inf  # when it is unloaded unless it is used before, as time.time()
    # By owner: weights of adapters for requests that do not give them.
    lora: dict[str, Mapping[int, float]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # GenerationOptions
    at_start: bool = False  # whether it is loaded when the server starts
    aliases: Sequence[str] = ()  # further names
    tags: Sequence[str] = ()  # words of the list of models
    estimates: Estimates = field(default_factory=Estimates)
    loaded_with: object = None  # what the loaded model depends on, to compare with

    def check_queue(self, name: str, most: int) -> None:
        """Raises: ApiError 429 if ``most`` responses wait and the client ``name`` has its share."""
        if self.model is None:
            return
        stats = self.model.scheduler_stats()
        waiting = stats.waiting + self.entering.total()
        if waiting < most or has_share(name, self.entering + Counter(stats.waiting_of), most):
            return
        seconds = self.estimates.retry_after(waiting, stats)
        raise ApiError(
            429,
            f"{waiting} responses of {self.name} are waiting; at most {most} may. Try again in "
            f"{seconds} s",
            code="queue_full",
            headers={"Retry-After": str(seconds)},
        )


def has_share(name: str, waiting: Counter[str], most: int) -> bool:
    """Whether a client may wait although ``most`` responses do.

    It may if others wait too and it has less than an equal part of the queue. All clients together
    then have at most twice as many.
    """
    clients = len({*waiting, name})
    return clients > 1 and waiting[name] < most // clients and waiting.total() < 2 * most


class ModelLease:
    """The use of a model, which stays loaded until ``release``."""

    def __init__(self, served: Served, model: Model, released: Callable[[Served], None]) -> None:
        self.name = served.name
        self.ref = served.ref
        self.model = model
        self._served = served
        self._released = released
        self._held = True
        served.users += 1

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Generation options of the model for requests that do not give them."""
        return self._served.defaults

    def lora_of(self, owner: str) -> Mapping[int, float] | None:
        """Weights of adapters for an owner's requests that do not give them; None: as loaded."""
        return self._served.lora.get(owner)

    def weigh(self, owner: str, lora: Mapping[int, float]) -> None:
        """Set the weights of ``lora_of``."""
        self._served.lora[owner] = lora

    @property
    def estimates(self) -> Estimates:
        """Estimates of the model's waiting times."""
        return self._served.estimates

    def release(self) -> None:
        """End the use. Calling it again has no effect."""
        if self._held:
            self._held = False
            self._served.users -= 1
            self._released(self._served)

    def __enter__(self) -> Model:
        return self.model

    def __exit__(self, *exception: object) -> None:
        self.release()

    @contextmanager
    def entering(self, client: str, count: int, most: int) -> Iterator[None]:
        """Count ``count`` responses of a client as waiting while they are prepared.

        Raises: ApiError 429 if ``most`` wait already.
        """
        served = self._served
        served.check_queue(client, most)
        served.entering[client] += count
        try:
            yield
        finally:
            served.entering[client] -= count
            served.entering += Counter[str]()  # without those that are zero
