"""Resamples audio of any sample rate to 16 kHz, block by block."""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray

RATE = 16000
_ZEROS = 16  # zero crossings of the sinc on each side
# The maximum number of filters per input sample; the interpolation error is below -120 dB.
_PHASES = 1024
_VALUES = 1 << 20  # filter taps per step
_BETA = 8.6  # of the Kaiser window, about 90 dB


class Resampler:
    """Resamples from ``rate`` samples per second to RATE with a windowed sinc.

    The cut-off is 0.95 of half the lower rate. Output n is the input at n * rate / RATE. Common
    rates have one filter for each position of an output between two inputs. Other rates would need
    up to 16,000 filters; they interpolate between a limited number of filters. Therefore memory
    does not depend on the rate, and time depends on the length of the input.
    """

    def __init__(self, rate: int) -> None:
        common = gcd(rate, RATE)
        self._up, self._down = RATE // common, rate // common
        cutoff = 0.95 * min(1.0, RATE / rate)
        self._reach = int(np.ceil(_ZEROS / cutoff))
        self._phases = min(self._up, int(np.ceil(_PHASES * cutoff)))
        taps = np.arange(-self._reach, self._reach + 1)
        # For each phase, the distances of its taps in input samples.
        distances = taps[None, :] - np.arange(self._phases + 1)[:, None] / self._phases
        window = np.i0(_BETA * np.sqrt(np.maximum(1 - (distances / (self._reach + 1)) ** 2, 0)))
        filters = np.sinc(cutoff * distances) * window
        self._filters = (filters / filters.sum(1, keepdims=True)).astype(np.float32)
        self._rest = np.zeros(self._reach, np.float32)
        self._start = -self._reach  # the input position of the first sample in memory
        self._made = 0
        self._seen = 0

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add samples and return the outputs that they complete."""
        self._seen += len(samples)
        return self._resample(samples, (self._seen - self._reach) * self._up)

    def finish(self) -> NDArray[np.float32]:
        """The last outputs, with silence after the end of the input."""
        return self._resample(np.zeros(self._reach + 1, np.float32), self._seen * self._up)

    def _resample(self, samples: NDArray[np.float32], end: int) -> NDArray[np.float32]:
        """All outputs at times before ``end`` up, in input samples."""
        held = np.concatenate([self._rest, samples])
        count = max(0, -(-end // self._down) - self._made)
        out = np.empty(count, np.float32)
        width = 2 * self._reach + 1
        part = _VALUES // width
        for first in range(0, count, part):
            last = min(first + part, count)
            times = (self._made + np.arange(first, last)) * self._down
            rows = times // self._up - self._reach - self._start
            windows = np.lib.stride_tricks.sliding_window_view(held, width)
            out[first:last] = np.einsum(
                "nk,nk->n", windows[rows], self._filters_at(times % self._up), optimize=False
            )
        self._made += count
        keep = self._made * self._down // self._up - self._reach
        dropped = min(max(0, keep - self._start), len(held))
        self._rest = held[dropped:].copy()
        self._start += dropped
        return out

    def _filters_at(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """The filters of outputs at the offsets ``positions`` up from an input sample."""
        lower, beyond = np.divmod(positions * self._phases, self._up)
        if self._phases == self._up:
            filters: NDArray[np.float32] = self._filters[lower]
            return filters
        share = (beyond / self._up).astype(np.float32)[:, None]
        filters = self._filters[lower] * (1 - share)
        filters += self._filters[lower + 1] * share
        return filters
