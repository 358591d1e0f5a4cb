"""What rows of prompts add to the time of a step, learned from steps that had some."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MEMORY = 0.95  # of older steps, after each one
PULL = 0.001  # towards zero, as a part of what was seen: what a few steps do not tell apart
MOST = 3.0  # times what was expected: a pause of the whole process is no step's cost
LEAST = 1e-6  # seconds, where a coarse clock shows none
ENOUGH = 100  # rows: fewer do not tell what a step costs and what a row
UNITS = np.array([1.0, 32.0, 16000.0])  # of steps, rows and pairs, so that all are near 1


def pairs(start: int, end: int) -> float:
    """About how many places the tokens from ``start`` to ``end`` look at, each at those before."""
    return (end * end - start * start) / 2


@dataclass(frozen=True, slots=True)
class PromptTimes:
    """Seconds that a step takes longer as it has rows of prompts, and for each row and pair."""

    step: float = 0.0
    row: float = 0.0
    pair: float = 0.0

    @property
    def known(self) -> bool:
        """Whether enough is measured."""
        return self != PromptTimes()

    def seconds(self, steps: int, rows: int, pairs: float) -> float:
        """Of so many rows and ``pairs`` in so many steps, without the rows of those that run."""
        return steps * self.step + rows * self.row + pairs * self.pair


class PromptFit:
    """Least squares of the relative errors of the newest steps; no time is below 0."""

    def __init__(self) -> None:
        self.times = PromptTimes()
        self._products = np.zeros((3, 3))
        self._sums = np.zeros(3)
        self._rows = 0

    def note(self, rows: int, pairs: float, seconds: float) -> None:
        """Note what a step with prompts took beyond the rows of those that run."""
        expected = seconds = max(seconds, LEAST)
        if self.times.known:
            expected = max(self.times.seconds(1, rows, pairs), 0.2 * seconds)
        seconds = min(max(seconds, expected / MOST), expected * MOST)
        self._rows += rows
        found = np.array([1, rows, pairs]) / UNITS / expected
        self._products = MEMORY * self._products + np.outer(found, found)
        self._sums = MEMORY * self._sums + found * (seconds / expected)
        if self._rows >= ENOUGH:
            self.times = PromptTimes(*(self._solution() / UNITS).tolist())

    def _solution(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        size = np.diag(self._products)
        products = self._products + np.diag(PULL * size)
        used = np.arange(3)
        while True:
            found = np.linalg.solve(products[np.ix_(used, used)], self._sums[used])
            if found.min() >= 0:
                break
            used = np.delete(used, np.argmin(found * np.sqrt(size[used])))
        solution = np.zeros(3)
        solution[used] = found
        return solution
