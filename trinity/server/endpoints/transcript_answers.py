"""Transcripts in the formats of OpenAI's API: whole, or as the events of a stream.

Source: openai-python, types/audio (Transcription, TranscriptionVerbose, TranscriptionStreamEvent).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.server.endpoint import ASGI, Json, text_document
from trinity.server.schemas import encode
from trinity.server.speech import Transcribing
from trinity.server.stream import data
from trinity.speech.transcript import Segment, Transcript, srt, vtt
from trinity.speech.windows import compression_ratio

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
Pieces = Callable[[Segment], list[tuple[bytes, float]]]
_MEDIA = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}


class DurationUsage(msgspec.Struct):
    """Seconds of audio."""

    seconds: float
    type: Literal["duration"] = "duration"


class VerboseSegment(msgspec.Struct):
    """A segment, in seconds; ``seek`` is the first frame, of 10 ms, of its window."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class TimedWord(msgspec.Struct):
    """A word, in seconds."""

    word: str
    start: float
    end: float


class TranscriptLogprob(msgspec.Struct):
    """A token of the text, its bytes and its log-probability."""

    token: str
    bytes: list[int]
    logprob: float


class Transcription(msgspec.Struct):
    """A transcript; ``task`` and the fields after it are in verbose_json only.

    ``language`` is a code. ``logprobs`` are present if ``include`` names them.
    """

    text: str
    usage: DurationUsage
    logprobs: list[TranscriptLogprob] | UnsetType = UNSET
    task: str | UnsetType = UNSET
    language: str | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    segments: list[VerboseSegment] | UnsetType = UNSET
    words: list[TimedWord] | UnsetType = UNSET


class TextDelta(msgspec.Struct, tag_field="type", tag="transcript.text.delta"):
    """Further text of a streamed transcript."""

    delta: str
    logprobs: list[TranscriptLogprob] | UnsetType = UNSET


class TranscriptDone(msgspec.Struct, tag_field="type", tag="transcript.text.done"):
    """The whole text, at the end of a stream."""

    text: str
    logprobs: list[TranscriptLogprob] | UnsetType = UNSET


def whole(
    transcript: Transcript, form: Format, task: str, words: bool, pieces: Pieces | None
) -> ASGI:
    """Format a transcript as one response; ``pieces`` gives tokens for log-probabilities."""
    if form in _MEDIA:
        if form == "text":
            return text_document(f"{transcript.text}\n", _MEDIA[form])
        return text_document((srt if form == "srt" else vtt)(transcript.segments), _MEDIA[form])
    more: dict[str, Any] = {"logprobs": logprobs(transcript.segments, pieces)}
    if form == "verbose_json":
        more |= {"task": task, "language": transcript.language, "duration": transcript.duration}
        more["segments"] = [
            _segment(number, segment) for number, segment in enumerate(transcript.segments)
        ]
        if words:
            more["words"] = [
                TimedWord(word.text.strip(), word.start, word.end)
                for segment in transcript.segments
                for word in segment.words
            ]
    return Json(Transcription(transcript.text, DurationUsage(transcript.duration), **more))


async def events(transcribing: Transcribing, pieces: Pieces | None) -> AsyncGenerator[bytes, None]:
    """A delta for each segment, then the whole text. Raises: as ``Transcribing.transcript``."""
    before = ""
    async for segment in transcribing.segments():
        delta = TextDelta(before + segment.text, logprobs([segment], pieces))
        before = " "
        yield data(encode(delta))
    transcript = await transcribing.transcript()
    yield data(encode(TranscriptDone(transcript.text, logprobs(transcript.segments, pieces))))


def logprobs(
    segments: Iterable[Segment], pieces: Pieces | None
) -> list[TranscriptLogprob] | UnsetType:
    """The log-probability of each token of text; unset without ``pieces``."""
    if pieces is None:
        return UNSET
    return [
        TranscriptLogprob(piece.decode("utf-8", "replace"), list(piece), logprob)
        for segment in segments
        for piece, logprob in pieces(segment)
    ]


def _segment(number: int, segment: Segment) -> VerboseSegment:
    return VerboseSegment(
        number, segment.seek, segment.start, segment.end, segment.text, list(segment.tokens),
        segment.temperature, segment.mean_logprob, compression_ratio(segment.text.encode()),
        segment.no_speech,
    )  # fmt: skip
