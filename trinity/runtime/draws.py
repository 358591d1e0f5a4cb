"""Uniform random numbers of a seed, the same on every machine and in every version."""

from __future__ import annotations

import numpy as np

LARGEST = 1 - 2.0**-53  # below 1


class Draws:
    """Numbers from 0 to below 1, those that llama.cpp draws with the same seed.

    They come from the 32-bit Mersenne Twister (Matsumoto and Nishimura, 1998), seeded as its
    authors do it, two words to a number and the lower one first, as libstdc++'s
    ``uniform_real_distribution<double>`` makes them. A seed of more than 32 bits, which llama.cpp
    has not, is spread by NumPy; None is one from the operating system.
    """

    def __init__(self, seed: int | None) -> None:
        if seed is None or seed >= 2**32:
            self._bits = np.random.MT19937(seed)
        else:
            self._bits = np.random.MT19937(0)
            np.random.RandomState(self._bits).seed(seed)

    def next(self) -> float:
        """The next number."""
        low, high = self._bits.random_raw(), self._bits.random_raw()
        return min((high << 32 | low) / 2**64, LARGEST)
