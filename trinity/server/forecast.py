"""When a first token comes: the steps until then, one after the other, as the scheduler makes them.

The prompts ahead and the prompt itself have their rows in steps, first come first served, beside
the answers that run. These end, and the answers to the prompts ahead begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from trinity.runtime.step_times import pairs

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.answer import Answer
    from trinity.runtime.work import Work

STEP = 0.02  # of the correction, by each answer: it follows the median, not the slowest
NEAR = 16  # of the prompts ahead, the newest, that are compared with a new one
MEMORY = 0.98  # of older answers, after each one


@dataclass(slots=True)
class Prompt:
    """Tokens from ``start`` to ``end`` that are to be evaluated, and those of the answer then."""

    start: int
    end: int
    answer: float


class Forecast:
    """What is told of one model's answers before they come.

    How soon answers stop, and a correction, are learned of those that came.
    """

    def __init__(self) -> None:
        self._ahead: list[tuple[Answer, int]] = []  # without a token; what each found in the cache
        self._correction = 0.0  # logarithm of what is measured over what is predicted
        self._tokens = self._stopped = 0.0

    def first_token(self, model: Model, answers: Sequence[Answer]) -> float | None:
        """Seconds until the first of ``answers``, just submitted, has its first token.

        None until enough is measured.
        """
        self._ahead = [
            one for one in self._ahead if not (one[0].ended or one[0].timings.completion_tokens)
        ]
        work = model.load_of_work()
        first = len(self._ahead)
        for one in answers:
            known = [
                model.cached_tokens(one),
                *(common(one, other) for other, _ in self._ahead[-NEAR:]),
            ]
            self._ahead.append((one, min(max(known), len(one.tokens) - 1)))
        if not work.known:
            return None
        prompts = [
            Prompt(evaluated(*one), len(one[0].tokens), self.tokens_of(one[0].most_left))
            for one in self._ahead[: first + 1]
        ]
        seconds = until_first_token(work, prompts, map(self.tokens_of, work.left))
        return seconds * math.exp(self._correction)

    def came(self, predicted: float, seconds: float) -> None:
        """Learn of a first token that came after so many seconds."""
        self._correction += STEP if seconds > predicted else -STEP

    def ended(self, tokens: int, *, stopped: bool) -> None:
        """Learn of an answer that has ended, by itself or by a limit."""
        self._tokens = MEMORY * self._tokens + tokens
        self._stopped = MEMORY * self._stopped + stopped

    def tokens_of(self, most: int) -> float:
        """How many tokens are to be expected of an answer, where each may be its last one."""
        last = min(1.0, self._stopped / self._tokens) if self._tokens else 0.0
        return (1 - (1 - last) ** most) / last if last else most


def evaluated(answer: Answer, cached: int) -> int:
    """How many tokens of an answer's prompt need not be evaluated any more."""
    cache = answer.cache
    return cached if cache is None else cache.length


def common(answer: Answer, other: Answer) -> int:
    """How many first tokens an answer need not evaluate because another one does."""
    if not (answer.shares and other.shares):
        return 0
    if (answer.adapters, answer.domain) != (other.adapters, other.domain):
        return 0
    both = zip(answer.tokens, other.tokens, strict=False)
    return next((place for place, (a, b) in enumerate(both) if a != b), 0)


def until_first_token(work: Work, prompts: Sequence[Prompt], left: Iterable[float]) -> float:
    """Seconds until the last of ``prompts`` is evaluated, beside answers with so many tokens left.

    Steps in which nothing begins or ends are taken together.
    """
    times, left, queue = work.costs.times, list(left), list(reversed(prompts))
    present = max(work.running + work.waiting, len(left) + len(prompts))  # as many come as go
    left += [prompt.answer for prompt in take(queue, work.step_rows)[0]]
    heapify(left)
    seconds, step = work.step_left, 0
    while queue:
        while left and left[0] <= step:
            heappop(left)
        running = len(left)
        until_end = math.ceil(left[0] - step) if left else 0
        if running >= work.most_running:
            seconds += times.seconds(running, steps=until_end)
            step += until_end
            continue
        rows = work.rows(running, max(1, present - running))
        steps = max(1, (queue[-1].end - queue[-1].start) // rows)
        if running:
            steps = min(steps, until_end)
        ended, taken, places = take(queue, steps * rows)
        seconds += times.seconds(running, taken, places, steps)
        step += steps
        for prompt in ended:
            heappush(left, step + prompt.answer)
    return seconds


def take(queue: list[Prompt], rows: int) -> tuple[list[Prompt], int, float]:
    """Evaluate rows of the prompts, of which the last one is the first.

    Gives those that are evaluated then, and how many rows there were, which look at how many
    places.
    """
    ended, taken, places = [], 0, 0.0
    while queue and taken < rows:
        prompt = queue[-1]
        end = min(prompt.end, prompt.start + rows - taken)
        taken += end - prompt.start
        places += pairs(prompt.start, end)
        prompt.start = end
        if end == prompt.end:
            ended.append(queue.pop())
    return ended, taken, places
