"""The log-mel spectrogram, the input of Whisper's encoder.

Frames of 400 samples, 160 apart and centred, with the audio mirrored at its ends; a periodic Hann
window; the power spectrum; triangular filters on Slaney's mel scale (Auditory Toolbox, 1998) with
area 1; log10 with a floor of 1e-10. Values are limited to 8 below the largest of all, then scaled
to (x + 4)
4.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from trinity.speech.resampling import RATE

FRAME, HOP = 400, 160
_TOGETHER = 256  # frames whose spectra fit into the CPU cache
FLOOR, RANGE = 1e-10, np.float32(8)
_BREAK, _STEP, _LOG_STEP = 1000.0, 200.0 / 3, np.log(6.4) / 27


@cache
def mel_filters(bands: int) -> NDArray[np.float64]:
    """Filter weights (bands, FRAME 2 + 1) for the bins from 0 to 8000 Hz."""
    edges = _hertz(np.linspace(_mel(0.0), _mel(RATE / 2), bands + 2))
    bins = np.linspace(0, RATE / 2, FRAME // 2 + 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - low) / (centre - low), (high - bins) / (high - centre)
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (high - low))


def log_mel(samples: NDArray[np.float32], bands: int) -> NDArray[np.float32]:
    """log10 of the power in each band: (frames, bands).

    ``samples`` must have half a frame before the centre of the first frame and after that of the
    last.
    """
    frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::HOP]
    window, filters = _hann(), mel_filters(bands).T
    log = np.empty((len(frames), bands), np.float32)
    for first in range(0, len(frames), _TOGETHER):
        spectrum = np.fft.rfft(frames[first : first + _TOGETHER] * window, axis=1)
        power = spectrum.real**2 + spectrum.imag**2
        log[first : first + _TOGETHER] = np.log10(np.maximum(power @ filters, FLOOR))
    return log


def scaled(log: NDArray[np.float32], loudest: float) -> NDArray[np.float32]:
    """The encoder's input; ``loudest`` is the largest value of the whole audio."""
    return (np.maximum(log, np.float32(loudest) - RANGE) + np.float32(4)) / np.float32(4)


@cache
def _hann() -> NDArray[np.float64]:
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)


def _mel(hertz: float) -> float:
    if hertz < _BREAK:
        return hertz / _STEP
    return float(_BREAK / _STEP + np.log(hertz / _BREAK) / _LOG_STEP)


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    linear = mel * _STEP
    return np.where(linear < _BREAK, linear, _BREAK * np.exp(_LOG_STEP * (mel - _BREAK / _STEP)))
