"""Predicts step durations, and limits prompt rows so that generating sequences do not wait long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

MEMORY = 0.93  # weight of older steps of a kind after each new one
PULL = 0.001  # regularization relative to the data, as few steps cannot separate the costs
MOST = 3.0  # times the expected duration: longer pauses are not the cost of a step
LEAST = 1e-6  # seconds; the least duration of a step, for coarse clocks
ALIKE = 16  # consecutive steps that are noted together, because a fit takes 0.1 ms
UNITS = np.array([1.0, 4.0, 1.0, 32.0, 16000.0])  # scales the features to about 1
FIRST_ROWS = 8  # rows to try before anything is measured
LEAST_ROWS = 4  # so that a prompt progresses on any machine
MANY_ROWS = 64  # least rows of a step of yielding sequences, because fewer take as long
# The share of the target that prompts always get; many generating rows alone may exceed it.
LEAST_PART = 0.5
# A step with prompts may take so many targets; the more sequences wait per generating one, the
# more.
LEAST_PATIENCE, MOST_PATIENCE, PATIENCE = 1.2, 3.0, 0.6
MOST_PAUSE, PAUSE_PART = 0.003, 0.05  # seconds of a step
LAST_SECONDS = 0.25  # seconds of a prompt step of the last priority; others wait for it
SHARE = 0.3  # weight of a new measurement in a mean


def pairs(start: int, end: int) -> float:
    """About how many earlier positions the tokens from ``start`` to ``end`` attend to in total."""
    return (end * end - start * start) / 2


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a step and of its parts.

    ``running``: per row of a sequence that generates. ``prompts``: additional if there are prompt
    rows; ``row``: per prompt row; ``pair``: per position that such a row attends to.
    """

    step: float = 0.0
    running: float = 0.0
    prompts: float = 0.0
    row: float = 0.0
    pair: float = 0.0

    def seconds(self, running: float, rows: int = 0, pairs: float = 0.0, steps: int = 1) -> float:
        """The duration of ``steps`` steps, each with ``running`` rows, and ``rows`` prompt rows in
        total.
        """
        each = self.step + running * self.running + (self.prompts if rows else 0.0)
        return steps * each + rows * self.row + pairs * self.pair


class StepFit:
    """A least-squares fit of the relative errors of the newest steps; no cost is negative.

    Steps with and without prompts are forgotten separately, because hours of one kind say nothing
    about the other.
    """

    def __init__(self) -> None:
        self.times = StepTimes()
        self._products = np.zeros((2, 5, 5))
        self._sums = np.zeros((2, 5))
        self._alike: list[float] = []  # durations of steps without prompts, to be noted together
        self._running = 0

    def note(self, running: int, rows: int, pairs: float, seconds: float) -> None:
        """Note the duration of a step with ``running`` rows and ``rows`` prompt rows."""
        if self._alike and (rows or running != self._running or len(self._alike) == ALIKE):
            alike, self._alike = sorted(self._alike), []
            # np.median would import numpy.ma, and a fork() during an import stops the new process.
            median = (alike[(len(alike) - 1) // 2] + alike[len(alike) // 2]) / 2
            self._learn(self._running, 0, 0.0, median)
        if rows or not self.times.step:
            self._learn(running, rows, pairs, seconds)
        else:
            self._running = running
            self._alike.append(seconds)

    def _learn(self, running: int, rows: int, pairs: float, seconds: float) -> None:
        expected = seconds = max(seconds, LEAST)
        if self.times.step or self.times.row:
            expected = max(self.times.seconds(running, rows, pairs), 0.2 * seconds)
        seconds = min(max(seconds, expected / MOST), expected * MOST)
        features = np.array([1.0, running, float(rows > 0), rows, pairs]) / UNITS / expected
        kind = int(rows > 0)
        self._products[kind] = MEMORY * self._products[kind] + np.outer(features, features)
        self._sums[kind] = MEMORY * self._sums[kind] + features * (seconds / expected)
        self.times = StepTimes(*(self._solution() / UNITS).tolist())

    def _solution(self) -> Vector:
        products, sums = self._products.sum(0), self._sums.sum(0)
        size = np.diag(products)
        products = products + np.diag(PULL * size)
        used: Any = np.flatnonzero(size)
        while True:
            costs = np.linalg.solve(products[np.ix_(used, used)], sums[used])
            if costs.min() >= 0:
                break
            used = np.delete(used, np.argmin(costs * np.sqrt(size[used])))
        solution = np.zeros(len(sums))
        solution[used] = costs
        return solution


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The expected costs of steps, and how long steps may take.

    ``target``: seconds of a step while a caller waits for the next token. It grows if many requests
    wait for their first token, and if generating rows alone take that long: prompts then get as
    much time as these. ``most``: the limit of prompt rows while sequences generate, since a few
    rows may cost like many. ``attended``: positions that a prompt row attended to recently.
    """

    target: float
    times: StepTimes = field(default_factory=StepTimes)
    most: int = FIRST_ROWS
    attended: float = 0.0

    @property
    def row_seconds(self) -> float:
        """Seconds of one more prompt row; 0 until measured."""
        return self.times.row + self.attended * self.times.pair

    @property
    def last_rows(self) -> int:
        """Prompt rows for a step of sequences that yield."""
        rows = LAST_SECONDS / self.row_seconds if self.row_seconds else 0.0
        return max(int(rows), MANY_ROWS)

    @property
    def pause(self) -> float:
        """Seconds to wait for further requests after an idle time, a small part of a step."""
        return min(MOST_PAUSE, PAUSE_PART * self.times.seconds(1))

    def prompt_rows(self, running: int, waiting: int) -> int:
        """Prompt rows for a step with ``running`` generating sequences, while ``waiting`` wait to
        start.

        If prompts have a fixed cost per step, their rows take at least as long as that cost.
        """
        rows = float(self.most)
        if self.row_seconds:
            alone, least = self.times.seconds(running), self.times.prompts
            patience = max(LEAST_PATIENCE, PATIENCE * (1 + waiting / running))
            seconds = min(patience, MOST_PATIENCE) * self.target - alone
            seconds = max(seconds, LEAST_PART * self.target, alone)
            rows = min(rows, max(seconds - least, least) / self.row_seconds)
        return max(int(rows), LEAST_ROWS)

    def after(self, times: StepTimes, running: int, rows: int, attended: float) -> StepCosts:
        """The updated costs after a step."""
        if not rows:
            return replace(self, times=times)
        mean = (
            (1 - SHARE) * self.attended + SHARE * attended / rows
            if self.attended
            else attended / rows
        )
        # At most twice as many rows next, because the cost beyond is not measured.
        most = max(self.most, 2 * rows) if running else self.most
        return replace(self, times=times, most=most, attended=mean)
