"""When a first token comes, and when a refused request finds room: from measured steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.answer import Answer
    from trinity.runtime.work import Work

SHARE = 0.1  # of a new answer in the correction
MOST = math.log(4)  # of a single answer's, for a pause of the process is no rule
MARGIN = 1.5  # of the time until there is room, for answers differ in length
NEAR = 16  # of the prompts ahead, the newest, that are compared with a new one
LONGEST = 3600  # seconds of a Retry-After


class Forecast:
    """What is told of one model's answers before they come.

    The prompts ahead and the prompt itself cost their rows, and each of their steps what the
    running answers take. A correction is learned of the answers that came.
    """

    def __init__(self) -> None:
        self._ahead: list[tuple[Answer, int]] = []  # without a token; what each found in the cache
        self._correction = 0.0  # logarithm of what is measured over what is predicted
        self._promised: list[float] = []  # until when those shall wait who were refused
        self._ended = 0.0
        self._between = 0.0  # seconds from one answer's end to the next, while some wait

    def first_token(self, model: Model, answers: Sequence[Answer]) -> float | None:
        """Seconds until the first of ``answers``, just submitted, has its first token.

        None until enough is measured.
        """
        self._ahead = [
            one for one in self._ahead if not (one[0].ended or one[0].timings.completion_tokens)
        ]
        tokens = sum(left(*one) for one in self._ahead)
        work = model.load_of_work()
        first = len(self._ahead)
        for one in answers:
            known = [
                model.cached_tokens(one),
                *(common(one, other) for other, _ in self._ahead[-NEAR:]),
            ]
            self._ahead.append((one, min(max(known), len(one.tokens) - 1)))
        if not work.row_seconds:
            return None
        tokens += left(*self._ahead[first])
        return evaluation(work, tokens) * math.exp(self._correction)

    def came(self, predicted: float, seconds: float) -> None:
        """Learn of a first token that came after so many seconds."""
        error = max(-MOST, min(MOST, math.log(max(seconds, 1e-6) / predicted)))
        self._correction += SHARE * error

    def ended(self, work: Work) -> None:
        """An answer has ended."""
        now = time.monotonic()
        if work.waiting and self._ended:
            between = min(now - self._ended, 10 * self._between or math.inf)
            self._between += (SHARE if self._between else 1.0) * (between - self._between)
        self._ended = now if work.waiting else 0.0

    def room(self, work: Work) -> int:
        """Seconds, whole ones, after which a request finds room that is refused now.

        Those that were refused before it and still wait come first.
        """
        now = time.monotonic()
        self._promised = [one for one in self._promised if one > now]
        first = max(work.seconds_until_room, self._between)
        wait = MARGIN * (first + len(self._promised) * self._between)
        seconds = min(max(1, math.ceil(wait)), LONGEST)
        self._promised.append(now + seconds)
        return seconds


def left(answer: Answer, cached: int) -> int:
    """Tokens of an answer's prompt that are to be evaluated."""
    cache = answer.cache
    return len(answer.tokens) - (cached if cache is None else cache.length)


def common(answer: Answer, other: Answer) -> int:
    """How many first tokens an answer need not evaluate because another one does."""
    if not (answer.shares and other.shares) or answer.adapters != other.adapters:
        return 0
    pairs = zip(answer.tokens, other.tokens, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), 0)


def evaluation(work: Work, tokens: int) -> float:
    """Seconds in which so many tokens of prompts are evaluated beside the answers that run."""
    tokens = max(1, tokens - work.step_rows)
    seconds = work.step_left + tokens * work.row_seconds
    if work.running == work.prompting:  # nobody has rows of his own in their steps
        return max(seconds, work.step_seconds)
    return seconds + math.ceil(tokens / max(work.prompt_rows, 1)) * work.step_seconds
