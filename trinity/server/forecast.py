"""When a first token comes: from measured steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.answer import Answer
    from trinity.runtime.work import Work

SHARE = 0.1  # of a new answer in the correction
MOST = math.log(4)  # of a single answer's, for a pause of the process is no rule
NEAR = 16  # of the prompts ahead, the newest, that are compared with a new one


class Forecast:
    """What is told of one model's answers before they come.

    The prompts ahead and the prompt itself cost their rows, and each of their steps what the
    running answers take. A correction is learned of the answers that came.
    """

    def __init__(self) -> None:
        self._ahead: list[tuple[Answer, int]] = []  # without a token; what each found in the cache
        self._correction = 0.0  # logarithm of what is measured over what is predicted

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
