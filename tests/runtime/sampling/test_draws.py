"""Random numbers of a seed, compared with the C++ standard and the Mersenne Twister's authors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from trinity.runtime.sampling.draws import Draws


def twister(seed: int) -> random.Random:
    """The words that numbers are made of."""
    return Draws(seed)._bits


def test_words_are_those_of_the_standard() -> None:
    """ISO C++, [rand.predef]: the 10000th word of mt19937 with its default seed 5489."""
    bits = twister(5489)
    words = [bits.getrandbits(32) for _ in range(10_000)]
    assert words[0] == 3499211612
    assert words[-1] == 4123659995


@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_a_number_is_two_words_the_lower_one_first(seed: int) -> None:
    bits, draws = twister(seed), Draws(seed)
    for _ in range(100):
        low, high = bits.getrandbits(32), bits.getrandbits(32)
        # libstdc++'s generate_canonical in its own order of operations.
        assert draws.next() == (float(low) + float(high) * 2.0**32) / 2.0**64


@pytest.mark.parametrize("seed", [2**32, 2**64 - 1])
def test_long_seeds_are_seeds_too(seed: int) -> None:
    first, again, other = Draws(seed), Draws(seed), Draws(seed % 2**32)
    found = [first.next() for _ in range(5)]
    assert found == [again.next() for _ in range(5)]
    assert found != [other.next() for _ in range(5)]


def test_without_a_seed_numbers_differ() -> None:
    assert Draws(None).next() != Draws(None).next()


def test_numbers_are_uniform_and_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Draws(random.Random(1).getrandbits(32))
    found = np.array([draws.next() for _ in range(20_000)])
    counts = np.histogram(found, 10, (0, 1))[0]
    assert counts.sum() == 20_000  # all from 0 to 1
    assert ((counts - 2000) ** 2 / 2000).sum() < 27.9  # chi square, 9 degrees, p = 0.001

    class Ones:
        def getrandbits(self, count: int) -> int:
            return 2**count - 1

    monkeypatch.setattr(draws, "_bits", Ones())
    assert 0.99 < draws.next() < 1
