"""A whole audio as windows of mel frames, of which only what is needed is in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.speech.audio import Blocks
from trinity.speech.mel import FRAME, HOP, log_mel, scaled
from trinity.speech.resampling import RATE

_HALF = FRAME // 2
_MANY = 3000  # frames at once while the loudest is sought


class Clip:
    """Frames of one audio: ``frames`` with sound in them, HOP samples apart.

    An audio shorter than a window is lengthened to one by silence. Frames behind the end are 0, and
    a frame at the end sees the audio mirrored, both as in transformers. The audio is read twice,
    once for its length and its loudest value, by which all others are scaled, and once for
    ``features``, whose windows go forwards.
    """

    def __init__(self, blocks: Blocks, bands: int, window: int) -> None:
        self._bands, self._window = bands, window
        self.samples, self._loudest = self._measure(blocks)
        if self.samples == 0:
            raise FormatError("the audio has no samples; give a recording with sound in it")
        self._end = max(self.samples, window * HOP) // HOP  # of the frames, the silent ones as well
        self.frames = min(-(-self.samples // HOP), self._end)
        self._reader = _chunks(blocks, window * HOP)
        self._held = np.zeros(0, np.float32)
        self._start = 0  # the place of the first sample that is held, in the mirrored audio

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.samples / RATE

    def features(self, first: int) -> NDArray[np.float32]:
        """The window that begins at that frame, (window, bands); no earlier than the last one."""
        begin = first * HOP
        end = begin + (self._window - 1) * HOP + FRAME
        while self._start + len(self._held) < end:
            drop = min(max(0, begin - self._start), len(self._held))
            self._held = np.concatenate([self._held[drop:], next(self._reader)])
            self._start += drop
        samples = self._held[begin - self._start : end - self._start]
        found = scaled(log_mel(samples, self._bands), self._loudest)
        found[max(0, self._end - first) :] = 0.0
        return found

    def _measure(self, blocks: Blocks) -> tuple[int, float]:
        """How many samples there are, and the largest log-mel value of their frames."""
        counted, complete = 0, False

        def counting() -> Iterator[NDArray[np.float32]]:
            nonlocal counted, complete
            for block in blocks():
                counted += len(block)
                yield block
            complete = True

        reader, held = _chunks(counting, self._window * HOP), np.zeros(0, np.float32)
        loudest, done, end = -np.inf, 0, 1
        size = (_MANY - 1) * HOP + FRAME
        while done < end or not complete:
            while len(held) < size:
                held = np.concatenate([held, next(reader)])
            end = max(counted, self._window * HOP) // HOP
            log = log_mel(held[:size], self._bands)[: max(0, end - done)]
            loudest = max(loudest, float(log.max(initial=-np.inf)))
            done += _MANY
            held = held[_MANY * HOP :]
        return counted, loudest


def _chunks(blocks: Blocks, window: int) -> Iterator[NDArray[np.float32]]:
    """The audio with its mirrored beginning and end, then silence without end.

    No method: a generator that a Clip holds must not hold the Clip.
    """
    begun, last = False, np.zeros(0, np.float32)
    for block in _lengthened(blocks, window):
        last = np.concatenate([last[-_HALF - 1 :], block])
        if begun:
            yield block
        elif len(last) > _HALF:
            begun = True
            yield last[_HALF:0:-1]
            yield last
    yield last[-2 : -_HALF - 2 : -1]
    while True:
        yield np.zeros(window, np.float32)


def _lengthened(blocks: Blocks, window: int) -> Iterator[NDArray[np.float32]]:
    """The audio, with silence up to the length of a window of so many samples."""
    missing = max(window, _HALF + 1)
    for block in blocks():
        missing -= len(block)
        yield block
    if missing > 0:
        yield np.zeros(missing, np.float32)
