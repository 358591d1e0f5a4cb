"""An audio as windows of mel frames; only the needed part is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.speech.audio import Blocks
from trinity.speech.mel import FRAME, HOP, log_mel, scaled
from trinity.speech.resampling import RATE

_HALF = FRAME // 2
_MANY = 3000  # frames per step while the loudest value is searched


class Clip:
    """The mel frames of one audio: ``frames`` of them have sound, HOP samples apart.

    As in openai/whisper and faster-whisper, frames after the end of the audio are 0; transformers
    uses frames of silence. The audio is read twice: once for its length and its largest log-mel
    value, which scales all others, and once for ``features``, whose windows only move forward.
    """

    def __init__(self, blocks: Blocks, bands: int, window: int) -> None:
        self._bands, self._window = bands, window
        self.samples, self._loudest = self._measure(blocks)
        if self.samples == 0:
            raise FormatError("the audio has no samples; give a recording with sound in it")
        self.frames = max(1, self.samples // HOP)
        self._reader = _chunks(blocks, window * HOP)
        self._held = np.zeros(0, np.float32)
        self._start = 0  # the position of the first sample in memory, in the mirrored audio

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.samples / RATE

    def features(self, first: int, silence: bool = False) -> NDArray[np.float32]:
        """The window (window, bands) from frame ``first`` on, which must not decrease between
        calls.

        ``silence``: frames after the end of the audio are frames of silence instead of 0, as
        openai/whisper has them for language detection.
        """
        begin = first * HOP
        end = begin + (self._window - 1) * HOP + FRAME
        while self._start + len(self._held) < end:
            drop = min(max(0, begin - self._start), len(self._held))
            self._held = np.concatenate([self._held[drop:], next(self._reader)])
            self._start += drop
        samples = self._held[begin - self._start : end - self._start]
        mel = scaled(log_mel(samples, self._bands), self._loudest)
        if not silence:
            mel[max(0, self.frames - first) :] = 0.0
        return mel

    def _measure(self, blocks: Blocks) -> tuple[int, float]:
        """The number of samples, and the largest log-mel value of their frames."""
        counted, complete = 0, False

        def counting() -> Iterator[NDArray[np.float32]]:
            nonlocal counted, complete
            for block in blocks():
                counted += len(block)
                yield block
            complete = True

        reader, held = _chunks(counting, self._window * HOP), np.zeros(0, np.float32)
        loudest, done = -np.inf, 0
        size = (_MANY - 1) * HOP + FRAME
        while not complete or done * HOP < counted + FRAME:
            while len(held) < size:
                held = np.concatenate([held, next(reader)])
            loudest = max(loudest, float(log_mel(held[:size], self._bands).max()))
            done += _MANY
            held = held[_MANY * HOP :]
        return counted, loudest


def _chunks(blocks: Blocks, size: int) -> Iterator[NDArray[np.float32]]:
    """The audio with its mirrored beginning, then endless silence, ``size`` samples at a time.

    This is not a method, so that the generator of a Clip does not refer to the Clip.
    """
    begun, first = False, np.zeros(0, np.float32)
    for block in chain(blocks(), _silence(size)):
        if begun:
            yield block
            continue
        first = np.concatenate([first, block])
        if len(first) > _HALF:
            begun = True
            yield first[_HALF:0:-1]
            yield first


def _silence(size: int) -> Iterator[NDArray[np.float32]]:
    while True:
        yield np.zeros(size, np.float32)
