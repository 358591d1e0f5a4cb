"""The text of one window: greedy, by samples, or by beams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trinity.speech.decoder import SpeechDecoder
from trinity.speech.history import History
from trinity.speech.rules import DecodingRules, log_softmax
from trinity.speech.tokens import SpeechTokens
from trinity_kernels.team import Team

Cancelled = Callable[[], bool]


@dataclass(slots=True)
class SpeechHypothesis:
    """New ids without the end, the log-probability of each, and their sum (with the end's).

    ``no_speech``: the probability that there is none.
    """

    ids: list[int]
    total: float
    no_speech: float = 0.0
    logprobs: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean logarithm, of ids and end."""
        return self.total / (len(self.ids) + 1)

    @property
    def rank(self) -> float:
        """What beams are compared by: the sum by the number of ids, without the end.

        openai/whisper (MaximumLikelihoodRanker) and CTranslate2 do so too.
        """
        return self.total / max(1, len(self.ids))


@dataclass(slots=True)
class _Beam:
    history: History
    ids: list[int] = field(default_factory=list)
    total: float = 0.0
    logprobs: list[float] = field(default_factory=list)


class Search:
    """Looks for texts; ``most`` new ids at most."""

    def __init__(
        self,
        decoder: SpeechDecoder,
        team: Team,
        tokens: SpeechTokens,
        most: int,
        cancelled: Cancelled,
    ) -> None:
        self._decoder, self._team = decoder, team
        self._tokens, self._most, self._cancelled = tokens, most, cancelled

    def sample(
        self,
        prompt: Sequence[int],
        rules: DecodingRules,
        temperature: float,
        draws: np.random.Generator,
    ) -> SpeechHypothesis:
        """One text: the best token each time, or one drawn where ``temperature`` is not 0."""
        history = self._decoder.begin()
        logits, no_speech = self._begin(prompt, history)
        hypothesis = SpeechHypothesis([], 0.0, no_speech)
        while True:
            rules.apply(logits, hypothesis.ids)
            if logits.max() == -np.inf:  # the model's lists leave nothing
                return hypothesis
            logs = log_softmax(logits)
            chosen = int(logits.argmax())
            if temperature > 0:
                weights = np.exp(log_softmax(logits / np.float32(temperature)))
                chosen = int(draws.choice(len(weights), p=weights / weights.sum()))
            hypothesis.total += float(logs[chosen])
            if chosen == self._tokens.end:
                return hypothesis
            hypothesis.ids.append(chosen)
            hypothesis.logprobs.append(float(logs[chosen]))
            if len(hypothesis.ids) >= self._most or self._cancelled():
                return hypothesis
            logits = self._decoder.run(self._team, [(chosen, history)], [0])[0].copy()

    def beams(self, prompt: Sequence[int], rules: DecodingRules, count: int) -> SpeechHypothesis:
        """The text of the best ``rank`` among those that ``count`` beams end with.

        Each step keeps the ``count`` best continuations of all beams; one that ends leaves the
        beams, and when as many have ended, the search is over.
        """
        first = self._decoder.begin()
        logits, no_speech = self._begin(prompt, first)
        beams, ended = [_Beam(first)], list[_Beam]()
        rows = logits[None]
        while beams and len(ended) < count:
            choices: list[tuple[float, int, int]] = []
            for number, beam in enumerate(beams):
                rules.apply(rows[number], beam.ids)
                if rows[number].max() == -np.inf:  # the model's lists leave nothing
                    continue
                logs = log_softmax(rows[number])
                least = max(0, len(logs) - count - 1)
                for token in np.argpartition(logs, least)[least:]:
                    if np.isfinite(logs[token]):
                        choices.append((beam.total + float(logs[token]), number, int(token)))
            if not choices:
                break
            choices.sort(key=lambda choice: (-choice[0], choice[1:]))
            following: list[_Beam] = []
            taken: set[int] = set()
            for total, number, chosen in choices:
                parent = beams[number]
                if chosen == self._tokens.end:
                    ended.append(_Beam(parent.history, parent.ids, total, parent.logprobs))
                elif len(following) < count:
                    history = parent.history.fork() if number in taken else parent.history
                    taken.add(number)
                    logprobs = [*parent.logprobs, total - parent.total]
                    following.append(_Beam(history, [*parent.ids, chosen], total, logprobs))
                if len(following) == count or len(ended) == count:
                    break
            beams = following
            if not beams or len(beams[0].ids) >= self._most or self._cancelled():
                break
            steps = [(beam.ids[-1], beam.history) for beam in beams]
            rows = self._decoder.run(self._team, steps, range(len(steps))).copy()
        hypotheses = [
            SpeechHypothesis(beam.ids, beam.total, no_speech, beam.logprobs)
            for beam in (ended or beams)
        ]
        return max(hypotheses, key=lambda text: text.rank)

    def _begin(self, prompt: Sequence[int], history: History) -> tuple[NDArray[np.float32], float]:
        """The logits after the prompt, and the probability of no speech."""
        start = len(prompt) - 1 - prompt[::-1].index(self._tokens.start)
        rows = [(token, history) for token in prompt]
        logits = self._decoder.run(self._team, rows, [start, len(prompt) - 1]).copy()
        if self._tokens.no_speech is None:
            return logits[1], 0.0
        return logits[1], float(np.exp(log_softmax(logits[0])[self._tokens.no_speech]))
