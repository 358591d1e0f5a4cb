"""Decodes the text of one window: greedily, by sampling, or by beam search."""

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
    """A decoded text: new ids without the end token, their log-probabilities, and the sum
    including the end token's.

    ``no_speech``: the probability that the window has no speech.
    """

    ids: list[int]
    total: float
    no_speech: float = 0.0
    logprobs: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean log-probability of the ids and the end token."""
        return self.total / (len(self.ids) + 1)

    @property
    def rank(self) -> float:
        """The score of a beam: the sum divided by the number of ids, without the end token.

        openai/whisper (MaximumLikelihoodRanker) and CTranslate2 use the same.
        """
        return self.total / max(1, len(self.ids))


@dataclass(slots=True)
class _Beam:
    history: History
    ids: list[int] = field(default_factory=list)
    total: float = 0.0
    logprobs: list[float] = field(default_factory=list)


class Search:
    """Decodes texts of at most ``most`` new ids."""

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
        """Decode one text: the best tokens, or sampled ones if ``temperature`` is not 0."""
        history = self._decoder.begin()
        logits, no_speech = self._begin(prompt, history)
        hypothesis = SpeechHypothesis([], 0.0, no_speech)
        while True:
            rules.apply(logits, hypothesis.ids)
            if logits.max() == -np.inf:  # the model suppresses all tokens
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
        """Decode with ``count`` beams; return the finished text with the best ``rank``.

        Each step keeps the ``count`` best continuations of all beams. A continuation with the end
        token is finished; the search ends when ``count`` texts are.
        """
        first = self._decoder.begin()
        logits, no_speech = self._begin(prompt, first)
        beams, ended = [_Beam(first)], list[_Beam]()
        rows = logits[None]
        while beams and len(ended) < count:
            choices: list[tuple[float, int, int]] = []
            for number, beam in enumerate(beams):
                rules.apply(rows[number], beam.ids)
                if rows[number].max() == -np.inf:  # the model suppresses all tokens
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
