"""Beam search over a decoder whose logits depend only on the last token."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trinity.speech.rules import log_softmax
from trinity.speech.search import Search

SIZE, END, START, MOST = 5, 4, 3, 4
TOKENS: Any = SimpleNamespace(end=END, start=START, no_speech=None)


class ChainHistory:
    def fork(self) -> ChainHistory:
        return ChainHistory()


class Chain:
    """As a Decoder: row i of ``logits`` follows token i."""

    def __init__(self, logits: np.ndarray[Any, Any]) -> None:
        self.logits = logits

    def begin(self) -> ChainHistory:
        return ChainHistory()

    def run(self, team: object, rows: list[tuple[int, ChainHistory]], wanted: Any) -> Any:
        assert len({id(history) for _, history in rows}) == len(rows) or len(rows) == 1
        return np.stack([self.logits[rows[number][0]] for number in wanted])


class NoRules:
    def apply(self, logits: object, text: object) -> None:
        pass


def texts(logs: np.ndarray[Any, Any]) -> Iterator[tuple[float, list[int]]]:
    """Every text that ends, of fewer than MOST tokens: what ranks it, and ids.

    openai/whisper (decoding.py, MaximumLikelihoodRanker) and CTranslate2 divide the sum, with the
    end's logarithm, by the number of tokens without the end.
    """
    left: list[tuple[float, list[int]]] = [(0.0, [])]
    while left:
        total, ids = left.pop()
        row = logs[ids[-1] if ids else START]
        yield (total + row[END]) / max(1, len(ids)), ids
        if len(ids) < MOST - 1:
            left += [(total + row[one], [*ids, one]) for one in range(SIZE) if one != END]


def search(logits: np.ndarray[Any, Any]) -> Search:
    decoder: Any = Chain(logits.astype(np.float32))
    team: Any = None
    return Search(decoder, team, TOKENS, MOST, lambda: False)


@pytest.mark.parametrize("seed", range(10))
def test_many_beams_find_the_best_of_all_texts(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=(SIZE, SIZE)) * 2
    rules: Any = NoRules()
    found = search(logits).beams([START], rules, 300)
    best, ids = max(texts(log_softmax(logits.astype(np.float32))))
    assert found.ids == ids
    assert found.rank == pytest.approx(best, abs=1e-5)
    assert found.mean == pytest.approx(best * max(1, len(ids)) / (len(ids) + 1), abs=1e-5)
    assert found.logprobs == pytest.approx(logprobs_of(logits, ids), abs=1e-5)


def logprobs_of(logits: np.ndarray[Any, Any], ids: list[int]) -> list[float]:
    logs = log_softmax(logits.astype(np.float32))
    return [float(logs[before, one]) for before, one in zip([START, *ids], ids, strict=False)]


def test_a_sample_tells_the_logprobs_without_the_temperature() -> None:
    logits = np.random.default_rng(3).normal(size=(SIZE, SIZE))
    rules: Any = NoRules()
    found = search(logits).sample([START], rules, 0.7, np.random.default_rng(1))
    assert found.ids
    assert found.logprobs == pytest.approx(logprobs_of(logits, found.ids), abs=1e-5)


def test_beams_see_further_than_one_step() -> None:
    """Token 0 is better at first but leads to bad ones; token 1 leads to a certain end."""
    chances = np.full((SIZE, SIZE), 0.25)
    chances[START] = [0.55, 0.45, 1e-9, 1e-9, 1e-9]
    chances[1] = [1e-9, 1e-9, 1e-9, 1e-9, 1]
    logits = np.log(chances)
    rules: Any = NoRules()
    assert search(logits).beams([START], rules, 2).ids == [1]
    assert search(logits).sample([START], rules, 0.0, np.random.default_rng(0)).ids[0] == 0


@pytest.mark.parametrize("beams", [0, 3])
def test_a_text_that_does_not_end_has_the_most_tokens(beams: int) -> None:
    logits = np.zeros((SIZE, SIZE))
    logits[:, END] = -50
    rules: Any = NoRules()
    one = search(logits)
    draws = np.random.default_rng(0)
    found = one.beams([START], rules, beams) if beams else one.sample([START], rules, 1.0, draws)
    assert len(found.ids) == MOST


@pytest.mark.full
def test_draws_follow_the_temperature() -> None:
    """Probabilities 0.8 and 0.2 become 0.64 to 0.04 at temperature 0.5."""
    logits = np.full((SIZE, SIZE), -50.0)
    logits[START, :2] = np.log([0.8, 0.2])
    logits[:3, END] = 0
    one, draws, rules = search(logits), np.random.default_rng(0), NoRules()
    taken: Any = rules
    firsts = [one.sample([START], taken, 0.5, draws).ids[0] for _ in range(2000)]
    assert np.mean(firsts) == pytest.approx(0.04 / 0.68, abs=0.02)
