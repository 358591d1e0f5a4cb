"""Transcripts with times: as data, as plain text, and as subtitles."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its punctuation and the space before it; times are seconds of the audio."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of speech, ``start`` to ``end`` in seconds of the audio."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    """Token ids, including timestamps."""
    mean_logprob: float
    """The mean log-probability of the tokens of its window: how certain the model was."""
    no_speech: float
    """The probability that its window has no speech."""
    temperature: float
    """The sampling temperature; 0: the most probable tokens."""
    words: tuple[Word, ...] = ()
    """Given if word times were requested."""
    seek: int = 0
    """The first frame, of 10 ms, of its window."""
    logprobs: tuple[float, ...] = ()
    """The log-probability of each of ``tokens``."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The transcript of an audio."""

    text: str
    language: str
    """A code such as "en"."""
    duration: float
    """Seconds of the audio."""
    segments: tuple[Segment, ...]
    complete: bool = True
    """False if the transcription was cancelled."""


def collected(
    stream: Generator[Segment, None, tuple[str, float, bool]],
    told: Callable[[Segment], None] = lambda segment: None,
) -> Transcript:
    """Run ``SpeechModel.stream`` to its end; ``told`` is called with each segment."""
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
    """Subtitles in SubRip format."""
    blocks = [
        f"{number}\n{clock(segment.start, ',')} --> {clock(segment.end, ',')}\n"
        f"{_lines(segment.text)}\n"
        for number, segment in enumerate(segments, 1)
    ]
    return "\n".join(blocks)


def vtt(segments: Sequence[Segment]) -> str:
    """Subtitles in WebVTT format (W3C)."""
    blocks = [
        f"{clock(segment.start, '.')} --> {clock(segment.end, '.')}\n"
        f"{_escaped(_lines(segment.text))}\n"
        for segment in segments
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def clock(seconds: float, point: str) -> str:
    """A time as hours, minutes, seconds and milliseconds; ``point`` separates these."""
    thousandths = round(1000 * seconds)
    minutes, rest = divmod(thousandths, 60000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _lines(text: str) -> str:
    """The text without empty lines, which end a subtitle, and without arrows, which begin one."""
    kept = " ".join(text.split())
    return kept.replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
