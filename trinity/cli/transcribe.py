"""trinity transcribe: transcribe an audio file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.interrupt import interruptible
from trinity.cli.loading import progress
from trinity.cli.parameters import Argument, BadParameter, Exit, Flag
from trinity.cli.terminal import json_line, put, say
from trinity.options.option import declared
from trinity.processes.command_line import INTERRUPTED
from trinity.speech.options import SpeechOptions

if TYPE_CHECKING:
    from trinity.speech.model import SpeechModel
    from trinity.speech.transcript import Segment, Transcript


SPEECH = options.flagged(declared(SpeechOptions))


@options.takes(speech=SPEECH, loading=options.only(options.LOADING, "threads", "isa", "quantize"))
def transcribe(
    audio: Annotated[
        str,
        Argument(
            "A WAV file; FLAC, Ogg and MP3 with soundfile, M4A and WebM with av.", metavar="AUDIO"
        ),
    ],
    model: Annotated[
        str,
        Flag(
            "A Whisper model: a GGUF file, a Hugging Face directory, or hf:USER/REPO.",
            "--model",
            "-m",
            metavar="MODEL",
        ),
    ],
    *,
    speech: options.Given,
    as_json: options.Json = False,
    srt: Annotated[bool, Flag("Print subtitles as SubRip.")] = False,
    vtt: Annotated[bool, Flag("Print subtitles as WebVTT.")] = False,
    loading: options.Given,
) -> None:
    """Transcribe an audio file with a Whisper model.

    Each segment is a line with its times, printed as soon as it is known. Ctrl-C ends the
    transcription and keeps what was found.
    """
    if as_json + srt + vtt > 1:
        raise BadParameter("--json, --srt and --vtt exclude each other: give one of them")
    if speech.get("word_times") and not as_json:
        raise BadParameter("--word-times needs --json, which prints them: give both")
    with loaded(model, **loading) as speech_model, interruptible() as cancel:
        if as_json or srt or vtt:
            result = speech_model.transcribe(audio, cancel=cancel, **speech)
            show_whole(result, model, as_json, srt)
            complete = result.complete
        else:
            complete = show_lines(speech_model, audio, cancel, speech)
    if not complete:
        say("stopped; the transcript is incomplete")
        raise Exit(INTERRUPTED)


@contextmanager
def loaded(path: str, **loading: int | str | None) -> Iterator[SpeechModel]:
    """Yield the model at ``path``, and show progress while it is loaded."""
    with progress(f"loading {path}") as show:
        from trinity.speech.model import SpeechModel

        model = SpeechModel(path, progress=show, **loading)  # type: ignore[arg-type]
    with model:
        yield model


def show_lines(model: SpeechModel, audio: str, cancel: Event, speech: options.Given) -> bool:
    """Print segments as they arrive; return whether the transcript is complete."""
    stream = model.stream(audio, cancel=cancel, **speech)
    while True:
        try:
            segment = next(stream)
        except StopIteration as end:
            language, duration, complete = end.value
            say(f"{duration:.1f} s of audio, language {language}")
            return bool(complete)
        put(line_of(segment))
        sys.stdout.flush()


def line_of(segment: Segment) -> str:
    """Format a segment with its times as a line."""
    from trinity.speech.transcript import clock

    text = " ".join(segment.text.split())
    return f"[{clock(segment.start, '.')} --> {clock(segment.end, '.')}] {text}"


def show_whole(result: Transcript, model: str, as_json: bool, as_srt: bool) -> None:
    """Print a transcript as JSON or subtitles."""
    from trinity.speech.transcript import srt, vtt

    if as_json:
        put(json_line({"model": model, **asdict(result)}))
    else:
        put((srt if as_srt else vtt)(result.segments).rstrip("\n"), keep="\n")
