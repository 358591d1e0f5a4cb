"""Random numbers that equal llama.cpp's for the same seed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_DRAW = 1 - 2.0**-53  # the largest float below 1
LARGEST_SHORT_DRAW = 1 - 2.0**-24  # the largest float32 below 1


class Draws:
    """Random numbers in [0, 1), the same as llama.cpp's for the same seed.

    They come from the 32-bit Mersenne Twister (Matsumoto and Nishimura, 1998) with its authors'
    seeding. NumPy spreads seeds of more than 32 bits, which llama.cpp does not have; None takes a
    seed from the operating system.
    """

    def __init__(self, seed: int | None) -> None:
        self._bits = random.Random()  # libstdc++'s generator, except for the seeding
        if seed is None:
            return
        if seed < 2**32:
            words, position = [seed], 624
            for i in range(1, 624):
                words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) % 2**32)
        else:
            state: Any = np.random.MT19937(seed).state["state"]
            words, position = state["key"].tolist(), state["pos"]
        self._bits.setstate((3, (*words, position), None))

    def next(self) -> float:
        """The next number, as libstdc++'s ``uniform_real_distribution<double>`` makes it.

        It takes two words, the lower one first.
        """
        return min(self._bits.getrandbits(64) / 2**64, LARGEST_DRAW)

    def next_short(self) -> float:
        """The next number, as libstdc++'s ``uniform_real_distribution<float>`` makes it."""
        return min(float(np.float32(self._bits.getrandbits(32))) / 2**32, LARGEST_SHORT_DRAW)

    def position(self, weights: NDArray[np.float64]) -> int:
        """A random position in ``weights``, each with the probability of its share."""
        cumulative = np.cumsum(weights)
        drawn = np.searchsorted(cumulative, self.next() * cumulative[-1], side="right")
        return min(int(drawn), len(weights) - 1)
