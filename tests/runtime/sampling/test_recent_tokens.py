from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy_model import ToyEngine, chunks_of
from trinity.runtime.generation import collect
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.sampling import penalties as module
from trinity.runtime.sampling.penalties import RecentTokens
from trinity.runtime.sampling.sampler import Sampler
from trinity.runtime.sampling.sampling_params import SamplingParams

VOCAB = 5
GROWTH = st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=6), max_size=8)


@given(GROWTH, st.integers(-1, 9))
def test_counts_are_those_of_the_end(pieces: list[list[int]], most: int) -> None:
    recent, text = RecentTokens(most, VOCAB), list[int]()
    for piece in pieces:
        text += piece
        ids, counts = recent.look(text)
        end = text[len(text) - most :] if 0 <= most < len(text) else text
        assert dict(zip(ids.tolist(), counts.tolist(), strict=True)) == Counter(end)
        assert ids.tolist() == sorted(ids.tolist())


def test_a_shifted_context_is_another_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Penalties use the remaining text, for every way to count tokens."""
    params = SamplingParams(temperature=0, frequency_penalty=0.5, penalty_last_n=-1)
    limits = GenerationLimits(max_tokens=200, context_shift=True, ignore_eos=True)
    found = []
    for long in (module.LONG, 0):
        monkeypatch.setattr(module, "LONG", long)
        engine = ToyEngine(context_length=32)
        found.append(collect(chunks_of(engine, [1, 2, 3], params, limits)).token_ids)
    assert found[0] == found[1]
    assert len(found[0]) == 200


def test_long_texts_are_counted_token_by_token() -> None:
    """The cost of a token does not depend on the length of the text."""

    class Text(list[int]):
        read = 0

        def __getitem__(self, key: object) -> object:  # type: ignore[override]
            found = super().__getitem__(key)  # type: ignore[index]
            self.read += len(found) if isinstance(found, list) else 1
            return found

    text = Text(range(100_000))
    params = SamplingParams(temperature=0, presence_penalty=1, penalty_last_n=-1)
    sampler, logits = Sampler(params, 100_000), np.zeros(100_000, np.float32)
    for _ in range(20):
        text.append(sampler.sample(logits, text))
    assert text.read < 100_000 + 20 * 10


def test_penalties_of_long_texts_are_those_of_short_ones() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=300).astype(np.float32)
    options = {"frequency_penalty": 0.3, "presence_penalty": 0.2, "repetition_penalty": 1.1}
    for most in (-1, 0, 50, 5000):
        params = SamplingParams(temperature=0, penalty_last_n=most, **options)  # type: ignore[arg-type]
        kept, text = Sampler(params, 300), rng.integers(0, 300, module.LONG - 5).tolist()
        for _ in range(20):
            chosen = kept.sample(logits, text)
            end = text if most < 0 else text[-most:] if most else []
            counts = np.bincount(np.array(end, np.int64), minlength=300)
            expected = np.where(logits > 0, logits / 1.1, logits * 1.1).astype(np.float64)
            expected -= 0.3 * counts + 0.2
            assert chosen == int(np.where(counts > 0, expected, logits).argmax())
            text.append(chosen)
