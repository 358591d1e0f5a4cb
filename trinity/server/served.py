"""A model that the server offers, and the lease that keeps it loaded during a request."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity.server.errors import ApiError
from trinity.server.estimates import Estimates

if TYPE_CHECKING:
    from trinity.model import Model


@dataclass(eq=False)
class Served:
    """A model of the server, loaded or not."""

    name: str
    ref: str
    load: Callable[[], Model]
    weigh: Callable[[], int] = lambda: 0  # bytes that it takes, known before it is loaded
    created: int = field(default_factory=lambda: int(time.time()))
    model: Model | None = None
    users: int = 0  # leases
    # Responses of each client that are being prepared.
    entering: Counter[str] = field(default_factory=Counter)
    used: int = 0  # number of the newest lease among those of all models
    bytes: int = 0
    loading: bool = False
    leaving: bool = False  # unload it once nobody uses it
    # By owner: weights of adapters for requests that do not give them.
    lora: dict[str, Mapping[int, float]] = field(default_factory=dict)
    aliases: Sequence[str] = ()  # further names
    tags: Sequence[str] = ()  # words of the list of models
    estimates: Estimates = field(default_factory=Estimates)

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

    def __init__(self, served: Served, model: Model, freed: asyncio.Event) -> None:
        self.name = served.name
        self.model = model
        self._served = served
        self._freed = freed
        self._held = True
        served.users += 1

    def lora_of(self, owner: str) -> Mapping[int, float] | None:
        """Weights of adapters for an owner's requests that do not give them; None: as loaded."""
        return self._served.lora.get(owner)

    @property
    def estimates(self) -> Estimates:
        """Estimates of the model's waiting times."""
        return self._served.estimates

    def release(self) -> None:
        """End the use. Calling it again has no effect."""
        if self._held:
            self._held = False
            self._served.users -= 1
            self._freed.set()

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
