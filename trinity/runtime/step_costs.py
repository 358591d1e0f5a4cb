"""How long steps take, and how many prompt rows fit so that running sequences do not wait long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

MEMORY = 0.93  # of older steps of a kind, after each one
PULL = 0.001  # towards zero, as a part of what was seen: what a few steps do not tell apart
MOST = 3.0  # times what was expected: a pause of the whole process is no step's cost
LEAST = 1e-6  # seconds, where a coarse clock shows none
ALIKE = 16  # steps one after the other that are noted as one: a fit takes 0.1 ms
UNITS = np.array([1.0, 4.0, 1.0, 32.0, 16000.0])  # so that what is seen is near 1
FIRST_ROWS = 8  # tried before anything is measured
LEAST_ROWS = 4  # so that a prompt gets on, however slow the machine is
MANY_ROWS = 64  # the least of a step of sequences that yield, for few rows take as long
# Of the target, that prompts get at least: where many run, their own rows may take all of it.
LEAST_PART = 0.5
# Targets that a step with prompts may take: the more, the more wait for each that runs.
LEAST_PATIENCE, MOST_PATIENCE, PATIENCE = 1.2, 3.0, 0.6
MOST_PAUSE, PAUSE_PART = 0.003, 0.05  # seconds; of a step
LAST_SECONDS = 0.25  # of a step of prompts of the last priority: whoever comes waits for its end
SHARE = 0.3  # of a new measurement in a mean


def pairs(start: int, end: int) -> float:
    """About how many places the tokens from ``start`` to ``end`` look at, each at those before."""
    return (end * end - start * start) / 2


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a step, and of what it has.

    ``running``: of each row of a sequence that runs. ``prompts``: more where it has rows of
    prompts, ``row`` of each of these, ``pair`` of each place that such a row looks at.
    """

    step: float = 0.0
    running: float = 0.0
    prompts: float = 0.0
    row: float = 0.0
    pair: float = 0.0

    def seconds(self, running: float, rows: int = 0, pairs: float = 0.0, steps: int = 1) -> float:
        """Of ``steps`` steps with so many running rows each, and so many rows of prompts in all."""
        each = self.step + running * self.running + (self.prompts if rows else 0.0)
        return steps * each + rows * self.row + pairs * self.pair


class StepFit:
    """Least squares of the relative errors of the newest steps; no time is below 0.

    Steps with prompts and steps without are forgotten apart: hours of the one tell nothing new of
    the other.
    """

    def __init__(self) -> None:
        self.times = StepTimes()
        self._products = np.zeros((2, 5, 5))
        self._sums = np.zeros((2, 5))
        self._alike: list[float] = []  # the seconds of steps of so many running rows alone
        self._running = 0

    def note(self, running: int, rows: int, pairs: float, seconds: float) -> None:
        """Note the seconds of a step with so many running rows and rows of prompts."""
        if self._alike and (rows or running != self._running or len(self._alike) == ALIKE):
            alike, self._alike = self._alike, []
            self._learn(self._running, 0, 0.0, float(np.median(alike)))
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
    """How long steps may take, and what they take.

    ``target``: seconds that a step shall take where somebody waits for its token. It takes longer
    where many wait for a first token, and where the running rows alone take so long: then prompts
    get as much time as these. ``most`` rows of prompts beside running sequences, for a few rows
    may cost like many; ``places`` that a row looked at lately.
    """

    target: float
    times: StepTimes = field(default_factory=StepTimes)
    most: int = FIRST_ROWS
    places: float = 0.0

    @property
    def row_seconds(self) -> float:
        """Of one more row of a prompt; 0 until measured."""
        return self.times.row + self.places * self.times.pair

    @property
    def last_rows(self) -> int:
        """Rows of prompts for a step of sequences that yield."""
        rows = LAST_SECONDS / self.row_seconds if self.row_seconds else 0.0
        return max(int(rows), MANY_ROWS)

    @property
    def pause(self) -> float:
        """Seconds to wait for further requests after a sleep, a small part of a step."""
        return min(MOST_PAUSE, PAUSE_PART * self.times.seconds(1))

    def prompt_rows(self, running: int, waiting: int) -> int:
        """Rows of prompts for a step with so many running sequences, while so many wait to run.

        Where prompts slow a step down whatever they have, their rows take as long as that at least.
        """
        rows = float(self.most)
        if self.row_seconds:
            alone, least = self.times.seconds(running), self.times.prompts
            patience = max(LEAST_PATIENCE, PATIENCE * (1 + waiting / running))
            seconds = min(patience, MOST_PATIENCE) * self.target - alone
            seconds = max(seconds, LEAST_PART * self.target, alone)
            rows = min(rows, max(seconds - least, least) / self.row_seconds)
        return max(int(rows), LEAST_ROWS)

    def after(self, times: StepTimes, running: int, rows: int, places: float) -> StepCosts:
        """What is known after a step with so many running rows, rows of prompts and places."""
        if not rows:
            return replace(self, times=times)
        mean = (1 - SHARE) * self.places + SHARE * places / rows if self.places else places / rows
        # At most twice as many rows next: what is beyond them has not been measured.
        most = max(self.most, 2 * rows) if running else self.most
        return replace(self, times=times, most=most, places=mean)
