"""OpenAI's speech to text: POST /v1/audio/transcriptions and /v1/audio/translations."""

from __future__ import annotations

import zlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trinity.server.endpoint import ASGI, Call, Endpoint, Json, Text
from trinity.server.errors import ApiError
from trinity.server.schemas import Body
from trinity.speech.mel import HOP
from trinity.speech.resampling import RATE
from trinity.speech.transcript import Segment, Transcript, srt, vtt

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
_MEDIA = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}


class TranslationForm(Body):
    """A recording, and how its text is written; ``prompt`` has words that it is about."""

    file: bytes
    model: str | None = None
    prompt: str = ""
    response_format: Format = "json"
    temperature: Annotated[float, Meta(ge=0, le=1)] = 0.0


class TranscriptionForm(TranslationForm):
    """As a translation's, of any language. ``timestamp_granularities`` are of verbose_json."""

    language: str | None = None
    timestamp_granularities: list[Literal["segment", "word"]] | None = None
    stream: bool = False


class DurationUsage(msgspec.Struct):
    """Seconds of audio."""

    seconds: float
    type: Literal["duration"] = "duration"


class VerboseSegment(msgspec.Struct):
    """A piece of it, in seconds; ``seek`` is the first of its frames of 10 ms."""

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


class Transcription(msgspec.Struct):
    """What is said; of verbose_json piece by piece, and word by word where that was asked for.

    ``language`` is a code.
    """

    text: str
    usage: DurationUsage
    task: str | msgspec.UnsetType = msgspec.UNSET
    language: str | msgspec.UnsetType = msgspec.UNSET
    duration: float | msgspec.UnsetType = msgspec.UNSET
    segments: list[VerboseSegment] | msgspec.UnsetType = msgspec.UNSET
    words: list[TimedWord] | msgspec.UnsetType = msgspec.UNSET


async def transcriptions(call: Call[TranscriptionForm]) -> ASGI:
    """What is said, in its own language."""
    body = call.body
    if body.stream:
        raise ApiError(400, "stream: transcripts are not streamed; leave it out", "stream")
    granularities = body.timestamp_granularities or []
    if granularities and body.response_format != "verbose_json":
        raise ApiError(
            400, "timestamp_granularities: take response_format verbose_json with them",
            "timestamp_granularities",
        )  # fmt: skip
    word_times = "word" in granularities
    return await _answer(call, "transcribe", language=body.language or None, word_times=word_times)


async def translations(call: Call[TranslationForm]) -> ASGI:
    """What is said, in English."""
    return await _answer(call, "translate")


async def _answer(call: Call[Any], task: str, **options: object) -> ASGI:
    body, service = call.body, call.service
    if service.speech is None:
        raise ApiError(
            404, "there is no speech model; start the server with --speech-model", "model",
            "model_not_found",
        )  # fmt: skip
    service.speech.check_name(body.model, service.settings.any_model_name)
    audio, body.file = body.file, b""
    found = await service.speech.transcribe(
        audio, task=task, initial_prompt=body.prompt, first_temperature=body.temperature, **options
    )
    return written(found, body.response_format, task, bool(options.get("word_times")))


def written(found: Transcript, form: Format, task: str, with_words: bool = False) -> ASGI:
    """A transcript as an answer."""
    usage = DurationUsage(found.duration)
    if form == "json":
        return Json(Transcription(found.text, usage))
    if form == "verbose_json":
        segments = [_segment(number, one) for number, one in enumerate(found.segments)]
        words: list[TimedWord] | msgspec.UnsetType = msgspec.UNSET
        if with_words:
            words = [
                TimedWord(word.text.strip(), word.start, word.end)
                for one in found.segments
                for word in one.words
            ]
        return Json(
            Transcription(found.text, usage, task, found.language, found.duration, segments, words)
        )
    if form == "text":
        text = f"{found.text}\n"
    else:
        text = (srt if form == "srt" else vtt)(found.segments)
    return Text(text, _MEDIA[form])


def _segment(number: int, one: Segment) -> VerboseSegment:
    raw = one.text.encode()
    return VerboseSegment(
        number, round(one.start * RATE / HOP), one.start, one.end, one.text, list(one.tokens),
        one.temperature, one.mean_logprob, len(raw) / max(1, len(zlib.compress(raw))),
        one.no_speech,
    )  # fmt: skip


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/audio/transcriptions", transcriptions, "What is said in a recording.",
        form=TranscriptionForm, answer=Transcription,
    ),
    Endpoint(
        "POST", "/v1/audio/translations", translations,
        "What is said in a recording, in English.",
        form=TranslationForm, answer=Transcription,
    ),
)  # fmt: skip
