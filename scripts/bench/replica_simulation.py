"""Simulates replicas of a model step by step: what conversations wait for, and what is computed.

A replica's steps last as long as measured ones (``StepTimes``), and mix prompts with responses by
the scheduler's own rule (``StepCosts``). Requests are routed as in trinity/ray/router.py. Replicas
can be lost; the number of replicas can follow the load, as Serve's autoscaling does.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from trinity.ray.calls import BLOCK
from trinity.runtime.interface import PREFILL_CHUNK
from trinity.runtime.scheduling.engine_thread import TARGET_SECONDS
from trinity.runtime.scheduling.step_costs import StepCosts, StepTimes, pairs

SLACK = 4  # as in trinity/ray/router.py, which needs Ray to be imported


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured seconds.

    ``request``: from a request to its first step. ``shares_cores``: the ingress and the clients
    use the replicas' cores, so that ``request`` delays the steps of others. ``ingress_token`` and
    ``ingress_request``: CPU time of the only ingress, where it has a core of its own.
    """

    times: StepTimes
    request: float = 0.0
    shares_cores: bool = True
    ingress_token: float = 0.0
    ingress_request: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A request of a conversation: ``prompt`` tokens, which begin with those of the turn before.

    It is sent ``pause`` seconds after the response before, or after the conversation begins.
    """

    prompt: int
    output: int
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns from the time ``start`` on.

    The first ``shared`` tokens are those of all conversations of the same ``group``.
    """

    start: float
    turns: tuple[Turn, ...]
    group: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """How conversations are drawn: ``rate`` of them begin per second, by a Poisson process."""

    conversations: int
    rate: float
    turns: int = 3
    shared: int = 64
    prompt: tuple[int, int] = (40, 160)  # fewest and most new tokens of a turn
    output: tuple[int, int] = (32, 64)
    pause: float = 0.5  # mean seconds between a response and the next turn
    groups: int = 1

    def drawn(self, seed: int) -> list[Conversation]:
        """Return the conversations, by their starts."""
        draw, start, found = random.Random(seed), 0.0, []
        for _ in range(self.conversations):
            start += draw.expovariate(self.rate)
            length, turns = self.shared, []
            for number in range(self.turns):
                length += draw.randint(*self.prompt)
                pause = draw.expovariate(1 / self.pause) if number and self.pause else 0.0
                turns.append(Turn(length, draw.randint(*self.output), pause))
            found.append(
                Conversation(start, tuple(turns), draw.randrange(self.groups), self.shared)
            )
        return found


@dataclass(frozen=True, slots=True)
class Scaling:
    """As Serve's autoscaling_config; ``target`` is target_ongoing_requests."""

    least: int
    most: int
    target: float
    interval: float = 1.0
    upscale_delay: float = 30.0
    downscale_delay: float = 600.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Replicas and what happens to them.

    ``router``: prefix, least (requests) or random. ``start_seconds``: from the start of a replica
    to its first step. ``losses``: times at which the replica with the most requests is lost; it
    starts again.
    """

    replicas: int
    parallel: int = 16
    router: str = "prefix"
    start_seconds: float = 5.0
    losses: tuple[float, ...] = ()
    scaling: Scaling | None = None


@dataclass
class Outcome:
    """What a simulation or a measured run found."""

    first: list[float] = field(default_factory=list)  # seconds to the first token, by request
    seconds: float = 0.0  # until the last token
    tokens: int = 0  # of all responses
    prompt_tokens: int = 0
    cached_tokens: int = 0
    replica_seconds: float = 0.0  # of all replicas, while they exist
    busy_seconds: float = 0.0  # in steps
    most_replicas: int = 0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """The time to the first token that this share of requests does not exceed."""
        return percentile(self.first, share)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of the values do not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


class _Request:
    """A request that is under way."""

    def __init__(self, conversation: int, turn: int, at: float, given: Conversation) -> None:
        self.conversation, self.turn, self.at = conversation, turn, at
        self.group, self.shared = given.group, given.shared
        self.prompt, self.output = given.turns[turn].prompt, given.turns[turn].output
        self.made = 0  # tokens of the response
        self.known = 0  # tokens in the replica's cache, set when it gets the request
        self.left = 0  # prompt tokens to compute


class _Replica:
    """A process with the model: the requests that it runs, and the prefixes that it knows."""

    def __init__(self, number: int, since: float) -> None:
        self.number, self.since = number, since
        self.waiting = deque[_Request]()
        self.prompting: list[_Request] = []
        self.generating: list[_Request] = []
        self.arriving = 0  # requests that have been sent and are not here yet
        self.step = 0  # number of the running step; 0: none
        self.step_end = 0.0
        self.debt = 0.0  # seconds of its core that others use during the step
        self.draining = False
        self.conversations = dict[int, int]()  # tokens known of each
        self.groups = dict[int, int]()

    def all(self) -> list[_Request]:
        return [*self.waiting, *self.prompting, *self.generating]

    def queue(self) -> int:
        return self.arriving + len(self.waiting) + len(self.prompting) + len(self.generating)

    def known(self, request: _Request) -> int:
        """Return how many tokens of a prompt are cached; the last one is always computed again."""
        group = min(self.groups.get(request.group, 0), request.shared)
        known = max(self.conversations.get(request.conversation, 0), group)
        return min(known, request.prompt + request.made - 1)

    def learn(self, request: _Request) -> None:
        self.conversations[request.conversation] = request.prompt
        self.groups[request.group] = max(self.groups.get(request.group, 0), request.shared)


class Simulation:
    """Conversations that a cluster answers."""

    def __init__(
        self, conversations: Sequence[Conversation], costs: Costs, cluster: Cluster, seed: int = 1
    ) -> None:
        self.costs, self.cluster, self.outcome = costs, cluster, Outcome()
        self.now = 0.0
        self._policy = StepCosts(TARGET_SECONDS, costs.times, PREFILL_CHUNK)
        self._given = list(conversations)
        self._left = sum(len(one.turns) for one in conversations)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._steps, self._numbers = count(), count(1), count()
        self._draw = random.Random(seed)
        self._replicas = list[_Replica]()
        self._homeless = deque[_Request]()  # while there is no replica
        self._sent_to = dict[tuple[str, int], _Replica]()
        self._starting = 0
        self._ingress_free = 0.0
        self._above = self._below = 0.0  # since when more or fewer replicas are wanted

    def run(self) -> Outcome:
        """Run until every response has ended."""
        for _ in range(self.cluster.replicas):
            self._start()
        for number, one in enumerate(self._given):
            self._at(one.start + one.turns[0].pause, self._asking(number, 0))
        for time in self.cluster.losses:
            self._at(time, self._lose)
        if self.cluster.scaling is not None:
            self._at(self.cluster.scaling.interval, self._scale)
        while self._left:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        for replica in self._replicas:
            self.outcome.replica_seconds += self.now - replica.since
        self.outcome.seconds = self.now - min(one.start for one in self._given)
        return self.outcome

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), happen))

    # Requests

    def _asking(self, conversation: int, turn: int) -> Callable[[], None]:
        def ask() -> None:
            given = self._given[conversation]
            request = _Request(conversation, turn, self.now, given)
            self.outcome.prompt_tokens += request.prompt
            self._route(request)

        return ask

    def _route(self, request: _Request) -> None:
        """Send a request to a replica."""
        usable = [one for one in self._replicas if not one.draining]
        if not usable:
            self._homeless.append(request)
            return
        replica = self._chosen(usable, request)
        replica.arriving += 1
        if self.costs.shares_cores:
            for one in self._replicas:
                one.debt += self.costs.request / len(self._replicas) if one.step else 0.0
        delay = max(self.costs.request, self._ingress(self.costs.ingress_request) - self.now)
        self._at(self.now + delay, lambda: self._arrive(replica, request))

    def _chosen(self, usable: list[_Replica], request: _Request) -> _Replica:
        if self.cluster.router == "random":
            return self._draw.choice(usable)
        chosen = least = min(usable, key=lambda one: one.queue())
        if self.cluster.router == "prefix":
            for key in _keys(request):
                found = self._sent_to.get(key)
                if found is not None and found in usable:
                    if found.queue() <= least.queue() + SLACK:
                        chosen = found
                    break
            for key in _keys(request):
                self._sent_to[key] = chosen
            self._sent_to["conversation", request.conversation] = chosen
        return chosen

    def _ingress(self, seconds: float) -> float:
        """Return the time at which the ingress has finished work that arrives now."""
        self._ingress_free = max(self._ingress_free, self.now) + seconds
        return self._ingress_free

    def _arrive(self, replica: _Replica, request: _Request) -> None:
        replica.arriving -= 1
        if replica not in self._replicas:
            self._route(request)
            return
        replica.waiting.append(request)
        self._begin_step(replica)

    # Steps

    def _begin_step(self, replica: _Replica) -> None:
        if replica.step or not (replica.waiting or replica.prompting or replica.generating):
            return
        running = len(replica.generating)
        room = PREFILL_CHUNK - running
        if running:
            waiting = len(replica.waiting) + len(replica.prompting)
            room = min(room, self._policy.prompt_rows(running, waiting))
        while replica.waiting and running + len(replica.prompting) < self.cluster.parallel:
            request = replica.waiting.popleft()
            request.known = replica.known(request)
            if not request.made:
                self.outcome.cached_tokens += request.known
            request.left = request.prompt + request.made - request.known
            replica.prompting.append(request)
        rows, attended, parts = 0, 0.0, list[tuple[_Request, int]]()
        for request in replica.prompting:
            part = min(request.left, room - rows)
            if part <= 0:
                break
            end = request.prompt + request.made - request.left + part
            attended += pairs(end - part, end)
            rows += part
            parts.append((request, part))
        seconds = self.costs.times.seconds(running, rows, attended)
        replica.step, replica.debt = next(self._steps), 0.0
        replica.step_end = self.now + seconds
        self.outcome.busy_seconds += seconds
        self._at(replica.step_end, self._ending(replica, replica.step, parts))

    def _ending(
        self, replica: _Replica, step: int, parts: list[tuple[_Request, int]]
    ) -> Callable[[], None]:
        def end() -> None:
            if replica.step != step:  # the replica is lost
                return
            if replica.debt:
                later, replica.debt = self.now + replica.debt, 0.0
                self._at(later, end)
                return
            replica.step = 0
            generated = list(replica.generating)
            for request, part in parts:
                request.left -= part
                if not request.left:
                    replica.prompting.remove(request)
                    replica.generating.append(request)
                    replica.learn(request)
                    generated.append(request)
            sent = self._ingress(self.costs.ingress_token * len(generated))
            for request in generated:
                self._token(replica, request, sent)
            if replica.draining and not replica.queue():
                self._remove(replica)
            self._begin_step(replica)

        return end

    def _token(self, replica: _Replica, request: _Request, sent: float) -> None:
        request.made += 1
        self.outcome.tokens += 1
        if request.made == 1:
            self.outcome.first.append(sent - request.at)
        if request.made < request.output:
            return
        replica.generating.remove(request)
        given, turn = self._given[request.conversation], request.turn + 1
        if turn < len(given.turns):
            self._at(sent + given.turns[turn].pause, self._asking(request.conversation, turn))
        self._at(sent, self._ended)

    def _ended(self) -> None:
        self._left -= 1

    # Replicas

    def _start(self) -> None:
        self._replicas.append(_Replica(next(self._numbers), self.now))
        self.outcome.most_replicas = max(self.outcome.most_replicas, len(self._replicas))
        while self._homeless:
            self._route(self._homeless.popleft())

    def _start_later(self) -> None:
        def ready() -> None:
            self._starting -= 1
            self._start()

        self._starting += 1
        self._at(self.now + self.cluster.start_seconds, ready)

    def _remove(self, replica: _Replica) -> None:
        self._replicas.remove(replica)
        self.outcome.replica_seconds += self.now - replica.since

    def _lose(self) -> None:
        """Lose the replica with the most requests, which continue on others."""
        if not self._replicas:
            return
        replica = max(self._replicas, key=lambda one: one.queue())
        self._remove(replica)
        replica.step = 0
        for request in replica.all():
            if request.left and not request.made:
                self.outcome.cached_tokens -= request.known  # which is found again elsewhere
            request.left = 0
            self._route(request)
        if not replica.draining:
            self._start_later()

    def _scale(self) -> None:
        scaling = self.cluster.scaling
        assert scaling is not None
        self._at(self.now + scaling.interval, self._scale)
        usable = [one for one in self._replicas if not one.draining]
        running = sum(one.queue() for one in usable) + len(self._homeless)
        wanted = min(max(math.ceil(running / scaling.target), scaling.least), scaling.most)
        has = len(usable) + self._starting
        self._above = self._above + scaling.interval if wanted > has else 0.0
        self._below = self._below + scaling.interval if wanted < has else 0.0
        if self._above > scaling.upscale_delay:
            for _ in range(wanted - has):
                self._start_later()
            self._above = 0.0
        elif self._below > scaling.downscale_delay:
            for replica in sorted(usable, key=lambda one: one.queue())[: has - wanted]:
                replica.draining = True
                if not replica.queue():
                    self._remove(replica)
            self._below = 0.0


def _keys(request: _Request) -> list[tuple[str, int]]:
    """Return the prefixes by which the router finds a replica, the longest one first."""
    keys = [("conversation", request.conversation)] if request.turn else []
    return keys + ([("group", request.group)] if request.shared >= BLOCK else [])


def simulated(
    conversations: Sequence[Conversation], costs: Costs, cluster: Cluster, seed: int = 1
) -> Outcome:
    """Return what happens to conversations. ``seed``: of the random router."""
    return Simulation(conversations, costs, cluster, seed).run()


def replicas_needed(
    conversations: Sequence[Conversation], costs: Costs, cluster: Cluster, most_seconds: float,
    most_replicas: int = 4096,
) -> int | None:  # fmt: skip
    """Return the fewest replicas with which 95% of requests get their first token in time.

    None if ``most_replicas`` are too few, for example because the ingress is too slow.
    """

    def are_enough(number: int) -> bool:
        found = simulated(conversations, costs, replace(cluster, replicas=number))
        return found.percentile(0.95) <= most_seconds

    high = 1
    while not are_enough(high):
        high *= 2
        if high > most_replicas:
            return None
    low = high // 2  # too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if are_enough(middle) else (middle, high)
    return high
