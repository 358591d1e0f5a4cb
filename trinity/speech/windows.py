"""Transcribes an audio window by window: its text, its segments, and the next window's position.

Source of the rules: openai/whisper, transcribe.py; transformers has the same rules.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from trinity.speech.alignment import Alignment
from trinity.speech.clip import Clip
from trinity.speech.encoder import SpeechEncoder
from trinity.speech.mel import HOP
from trinity.speech.options import SpeechOptions
from trinity.speech.resampling import RATE
from trinity.speech.rules import DecodingRules
from trinity.speech.search import Cancelled, Search, SpeechHypothesis
from trinity.speech.tokens import SECONDS, SpeechTokens
from trinity.speech.transcript import Segment, Word
from trinity.speech.words import words_of
from trinity_kernels.team import Team

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# Beyond these limits a text is decoded again, or discarded.
MOST_COMPRESSED, LEAST_LOGPROB, NO_SPEECH = 2.4, -1.0, 0.6
# For silence and noise the models write "You" or "Thank you" with a mean of -0.6 to -1.
SURELY_NO_SPEECH, LEAST_LOGPROB_THEN = 0.7, -0.5
_UNSURE = 0.5  # texts of higher temperatures do not condition the next windows
_FRAMES_OF_TIME = round(SECONDS * RATE / HOP)


class Windows:
    """The segments of a clip, in order.

    The ids of each window begin with ``shown`` (the caller's prompt), with ``carry`` followed by
    the end of the text so far, together at most ``most_shown`` ids. ``prompt`` follows.
    ``frames``: the length of a window.
    """

    def __init__(
        self, clip: Clip, encoder: SpeechEncoder, search: Search, rules: DecodingRules, team: Team,
        tokens: SpeechTokens, options: SpeechOptions, prompt: Sequence[int], shown: Sequence[int],
        most_shown: int, frames: int, cancelled: Cancelled, alignment: Alignment, language: str,
    ) -> None:  # fmt: skip
        self._clip, self._encoder, self._search, self._rules = clip, encoder, search, rules
        self._team, self._tokens, self._options = team, tokens, options
        self._prompt, self._frames, self._most_shown = list(prompt), frames, most_shown
        self._cancelled, self._alignment, self._language = cancelled, alignment, language
        self._shown = list(shown)
        self._carried: list[int] = []
        self._draws = np.random.default_rng(0)  # reproducible
        self.at = 0  # the first frame that is not transcribed yet

    @property
    def done(self) -> bool:
        """Whether the end of the audio is reached."""
        return self.at >= self._clip.frames

    def next_window(self) -> list[Segment]:
        """Transcribe the next window and move on; returns its segments, none if cancelled."""
        self._encoder.run(self._team, self._clip.features(self.at))
        hypothesis, temperature, last_temperature = self._best()
        if self._cancelled():  # an interrupted text is discarded
            return []
        start, here = self.at, min(self._frames, self._clip.frames - self.at)
        self.at += here
        if _is_silence(hypothesis):
            return []
        pieces, done = pieces_of(hypothesis.ids, self._tokens.first_time, here)
        self.at = start + (done or here)  # always move on
        if last_temperature > _UNSURE:
            self._carried = []
        times, logprobs = self._word_times(pieces, here), hypothesis.logprobs
        segments = []
        for first, last, ids in pieces:
            of_ids, logprobs = logprobs[: len(ids)], logprobs[len(ids) :]
            spoken = [token for token in ids if token < self._tokens.end]
            begins, times = times[: len(spoken) + 1], times[len(spoken) :]
            text = self._tokens.text(ids).strip()
            if not text or first >= min(last, here):  # empty, or after the end of the audio
                continue
            if self._options.carry and last_temperature <= _UNSURE:
                self._carried += spoken
            begin, end = _seconds(start + first), min(_seconds(start + last), self._clip.seconds)
            words: tuple[Word, ...] = ()
            if begins:
                # The segment's own timestamps are more reliable for its first and last word.
                placed = [min(max(_seconds(start) + offset, begin), end) for offset in begins]
                words = tuple(words_of(spoken, placed, self._tokens, self._language))
            segments.append(
                Segment(
                    begin, end, text, tuple(ids), hypothesis.mean, hypothesis.no_speech,
                    temperature, words, start, tuple(of_ids),
                )
            )  # fmt: skip
        return segments

    def _word_times(
        self, pieces: Sequence[tuple[int, int, list[int]]], here: int
    ) -> Sequence[float]:
        """Return the start of each id of the window's text, and the end of the last one.

        Empty without word times.
        """
        spoken = [token for _, _, ids in pieces for token in ids if token < self._tokens.end]
        if not self._options.word_times or not spoken:
            return ()
        return self._alignment.times(self._prompt, spoken, here)

    def _best(self) -> tuple[SpeechHypothesis, float, float]:
        """The window's text, its temperature, and the last temperature that was tried.

        A text that looks wrong is decoded again at higher temperatures. If all look wrong, the most
        probable of those without repetition is kept, as in faster-whisper.
        """
        prompt, before = self._prompt, self._tokens.before
        room = self._most_shown - len(self._shown)
        shown = [*self._shown, *self._carried[max(0, len(self._carried) - room) :]]
        if shown and before is not None:
            prompt = [before, *shown, *prompt]
        first, tries = self._options.first_temperature, list[tuple[SpeechHypothesis, float]]()
        for temperature in (first, *(higher for higher in TEMPERATURES if higher > first)):
            if temperature == 0 and self._options.beams > 1:
                hypothesis = self._search.beams(prompt, self._rules, self._options.beams)
            else:
                hypothesis = self._search.sample(prompt, self._rules, temperature, self._draws)
            if not self._options.fallback or self._fits(hypothesis) or self._cancelled():
                return hypothesis, temperature, temperature
            tries.append((hypothesis, temperature))
        kept = [attempt for attempt in tries if not self._repeats(attempt[0])] or tries
        return *max(kept, key=lambda attempt: attempt[0].mean), temperature

    def _fits(self, hypothesis: SpeechHypothesis) -> bool:
        if _is_silence(hypothesis):
            return True
        return hypothesis.mean >= LEAST_LOGPROB and not self._repeats(hypothesis)

    def _repeats(self, hypothesis: SpeechHypothesis) -> bool:
        text = self._tokens.text(hypothesis.ids).strip().encode()
        return compression_ratio(text) > MOST_COMPRESSED


def _is_silence(hypothesis: SpeechHypothesis) -> bool:
    """Whether the window is silent: openai/whisper's rule, and a stricter one of our own."""
    least = LEAST_LOGPROB_THEN if hypothesis.no_speech > SURELY_NO_SPEECH else LEAST_LOGPROB
    return hypothesis.no_speech > NO_SPEECH and hypothesis.mean < least


def compression_ratio(text: bytes) -> float:
    """The length of a text relative to its zlib compression; high if it repeats itself."""
    return len(text) / len(zlib.compress(text))


def pieces_of(
    ids: Sequence[int], first_time: int, frames: int
) -> tuple[list[tuple[int, int, list[int]]], int]:
    """The segments (first frame, last frame, ids) of a window, and the number of frames they cover.

    Two consecutive timestamps end a segment and begin the next. If the ids end with such a pair,
    the rest belongs to the next window; if they end with a single timestamp, the window is
    complete. Without a pair there is one segment, from the first timestamp to the last one; the
    source and transformers ignore the first.
    ``frames``: the window's frames with sound.
    """
    times = [token >= first_time for token in ids]
    cuts = [i for i in range(1, len(ids)) if times[i - 1] and times[i]]
    ends_alone = times[-2:] == [False, True]

    def frame(number: int) -> int:
        return (ids[number] - first_time) * _FRAMES_OF_TIME

    if not cuts:
        begin = frame(0) if times[:1] == [True] else 0
        end = frame(len(ids) - 1) if len(ids) > 1 and times[-1] else frames
        return [(begin, end, list(ids))], frames
    if ends_alone:
        cuts.append(len(ids))
    starts = [0, *cuts[:-1]]
    pieces = [(frame(a), frame(b - 1), list(ids[a:b])) for a, b in zip(starts, cuts, strict=True)]
    return pieces, frames if ends_alone else min(frame(cuts[-1] - 1), frames)


def _seconds(frame: int) -> float:
    return frame * HOP / RATE
