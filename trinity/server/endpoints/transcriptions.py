"""OpenAI's speech to text: POST /v1/audio/transcriptions and /v1/audio/translations."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoint import ASGI, Call, Endpoint
from trinity.server.endpoints.transcript_answers import (
    Format,
    TextDelta,
    TranscriptDone,
    Transcription,
    events,
    whole,
)
from trinity.server.errors import ApiError
from trinity.server.schemas import Body
from trinity.server.speech import Speech
from trinity.server.stream import Stream

Granularity = Literal["segment", "word"]
DIARIZED = "diarized_json"


class TranslationForm(Body):
    """A recording, and how its text is written; ``prompt`` has words that it is about."""

    file: bytes
    model: str | None = None
    prompt: str = ""
    response_format: Format | Literal["diarized_json"] = "json"
    temperature: Annotated[float, Meta(ge=0, le=1)] = 0.0


class TranscriptionForm(TranslationForm):
    """A recording of any language. ``keywords`` are names and words that it has.

    ``timestamp_granularities`` are of verbose_json, ``include`` of json and verbose_json.
    """

    language: str | None = None
    timestamp_granularities: list[Granularity] | Granularity | None = None
    include: list[str] | str | None = None
    keywords: list[str] | str | None = None
    stream: bool = False


async def transcriptions(call: Call[TranscriptionForm]) -> ASGI:
    """Transcribe speech in its own language."""
    body = call.body
    granularities = as_list(body.timestamp_granularities)
    if granularities and body.response_format != "verbose_json":
        if "word" in granularities:
            raise ApiError(
                400,
                "timestamp_granularities: word times need response_format verbose_json",
                "timestamp_granularities",
            )
        call.ignored.add("timestamp_granularities")
    logprobs = "logprobs" in as_list(body.include)
    if body.include is not None and (not logprobs or body.response_format not in _WITH_LOGPROBS):
        call.ignored.add("include")
    prompt = ", ".join(filter(None, [body.prompt, *as_list(body.keywords)]))
    options = {"language": code_of(body.language), "word_times": "word" in granularities}
    return await _answer(call, "transcribe", prompt, logprobs, body.stream, **options)


def code_of(language: str | None) -> str | None:
    """The code of a language without the region, which Whisper does not know: en of en-US."""
    return re.split("[-_]", language.lower())[0] if language else None


async def translations(call: Call[TranslationForm]) -> ASGI:
    """Translate speech to English."""
    return await _answer(call, "translate", call.body.prompt)


def as_list(value: list[Any] | Any | None) -> list[Any]:
    """The values of a field that a form may have once or several times."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


async def _answer(
    call: Call[Any], task: str, prompt: str, logprobs: bool = False, stream: bool = False,
    **options: object,
) -> ASGI:  # fmt: skip
    body, speech = call.body, _speech(call)
    if body.response_format == DIARIZED:
        raise ApiError(
            400,
            f"response_format: {DIARIZED} needs a model that distinguishes speakers, and "
            "Whisper does not; use verbose_json for segments with times",
            "response_format",
        )
    audio, body.file = body.file, b""
    pieces = speech.pieces if logprobs else None
    options |= {"task": task, "initial_prompt": prompt, "first_temperature": body.temperature}
    if stream:
        begun = speech.start(call.caller.client, audio, **options).begun
        return Stream(begun, partial(events, pieces=pieces))
    transcript = await speech.transcribe(call.caller.client, audio, **options)
    return whole(transcript, body.response_format, task, bool(options.get("word_times")), pieces)


def _speech(call: Call[Any]) -> Speech:
    """The server's speech model. Raises: ApiError 404 if the request names another one."""
    speech = call.service.speech
    if speech is None:
        raise ApiError(
            404,
            "there is no speech model; start the server with --speech-model",
            "model",
            "model_not_found",
        )
    speech.check_name(call.body.model, call.service.settings.any_model_name)
    return speech


_WITH_LOGPROBS = ("json", "verbose_json")
ENDPOINTS = tuple(
    endpoint
    for version in ("/v1", "")
    for endpoint in (
        Endpoint(
            "POST", f"{version}/audio/transcriptions", transcriptions,
            "What is said in a recording.", form=TranscriptionForm, answer=Transcription,
            event=TextDelta | TranscriptDone,
        ),
        Endpoint(
            "POST", f"{version}/audio/translations", translations,
            "What is said in a recording, in English.",
            form=TranslationForm, answer=Transcription,
        ),
    )
)  # fmt: skip
