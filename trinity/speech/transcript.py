"""What was said, with times: as data, as plain text, and as subtitles."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its punctuation, and the space before it, in seconds of the audio."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of speech, ``start`` to ``end`` in seconds of the audio.

    ``tokens``: its ids, times among them. ``mean_logprob``: how sure the model was, the mean
    logarithm of the probabilities of the window's tokens. ``no_speech``: the probability that the
    window has none. ``temperature``: 0 where the best tokens were taken. ``words``: only where
    times of words were asked for. ``seek``: the first frame, of 10 ms, of its window.
    ``logprobs``: the log-probability of each of ``tokens``.
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    mean_logprob: float
    no_speech: float
    temperature: float
    words: tuple[Word, ...] = ()
    seek: int = 0
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole: ``language`` is a code such as "en"; ``duration`` in seconds.

    ``complete`` is False where it was cancelled.
    """

    text: str
    language: str
    duration: float
    segments: tuple[Segment, ...]
    complete: bool = True


def collected(
    stream: Generator[Segment, None, tuple[str, float, bool]],
    told: Callable[[Segment], None] = lambda segment: None,
) -> Transcript:
    """Run ``SpeechModel.stream`` to its end, with each segment ``told`` as it comes."""
    segments: list[Segment] = []
    while True:
        try:
            segment = next(stream)
        except StopIteration as end:
            language, duration, complete = end.value
            break
        told(segment)
        segments.append(segment)
    text = " ".join(part.text for part in segments)
    return Transcript(text, language, duration, tuple(segments), complete)


def srt(segments: Sequence[Segment]) -> str:
    """Subtitles as SubRip has them."""
    blocks = [
        f"{number}\n{clock(segment.start, ',')} --> {clock(segment.end, ',')}\n"
        f"{_lines(segment.text)}\n"
        for number, segment in enumerate(segments, 1)
    ]
    return "\n".join(blocks)


def vtt(segments: Sequence[Segment]) -> str:
    """Subtitles as WebVTT (W3C) has them."""
    blocks = [
        f"{clock(segment.start, '.')} --> {clock(segment.end, '.')}\n"
        f"{_escaped(_lines(segment.text))}\n"
        for segment in segments
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def clock(seconds: float, point: str) -> str:
    """A time as hours, minutes, seconds and thousandths, ``point`` before these."""
    thousandths = round(1000 * seconds)
    minutes, rest = divmod(thousandths, 60000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _lines(text: str) -> str:
    """Without empty lines, which end a subtitle, and without arrows, which begin one."""
    kept = " ".join(text.split())
    return kept.replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
