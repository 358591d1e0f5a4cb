"""When a first token comes: from measured steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trinity.runtime.prompt_times import pairs

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.answer import Answer
    from trinity.runtime.work import Work

STEP = 0.02  # of the correction, by each answer: it follows the median, not the slowest
NEAR = 16  # of the prompts ahead, the newest, that are compared with a new one


class Forecast:
    """What is told of one model's answers before they come.

    The prompts ahead and the prompt itself cost their rows and the places that these look at, and
    each of their steps costs something by itself, and what the running answers take. A correction
    is learned of the answers that came.
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
        work = model.load_of_work()
        first = len(self._ahead)
        for one in answers:
            known = [
                model.cached_tokens(one),
                *(common(one, other) for other, _ in self._ahead[-NEAR:]),
            ]
            self._ahead.append((one, min(max(known), len(one.tokens) - 1)))
        if not work.prompt_times.known:
            return None
        parts = [(evaluated(*one), len(one[0].tokens)) for one in self._ahead[: first + 1]]
        tokens = sum(end - start for start, end in parts)
        seconds = evaluation(work, tokens, sum(pairs(*part) for part in parts))
        return seconds * math.exp(self._correction)

    def came(self, predicted: float, seconds: float) -> None:
        """Learn of a first token that came after so many seconds."""
        self._correction += STEP if seconds > predicted else -STEP


def evaluated(answer: Answer, cached: int) -> int:
    """How many tokens of an answer's prompt need not be evaluated any more."""
    cache = answer.cache
    return cached if cache is None else cache.length


def common(answer: Answer, other: Answer) -> int:
    """How many first tokens an answer need not evaluate because another one does."""
    if not (answer.shares and other.shares) or answer.adapters != other.adapters:
        return 0
    both = zip(answer.tokens, other.tokens, strict=False)
    return next((place for place, (a, b) in enumerate(both) if a != b), 0)


def evaluation(work: Work, tokens: int, places: float) -> float:
    """Seconds in which so many tokens of prompts are evaluated beside the answers that run.

    ``places``: how many they look at, all together.
    """
    tokens = max(1, tokens - work.step_rows)
    places = max(0.0, places - work.step_pairs)
    steps = math.ceil(tokens / max(work.prompt_rows, 1))
    seconds = work.step_left + work.prompt_times.seconds(steps, tokens, places)
    if work.running == work.prompting:  # nobody has rows of his own in their steps
        return max(seconds, work.step_seconds)
    return seconds + steps * work.step_seconds
