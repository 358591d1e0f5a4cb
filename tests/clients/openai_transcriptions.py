"""The openai package: transcriptions and translations."""

# packages: openai==3.57.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
from openai import OpenAI
from rows import SPEECH, URL, main, row

client = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
CLIP = Path(__file__).parents[1] / "data" / "real" / "spoken" / "en2.opus"
WORDS = "leave your coat by the door"


def transcribe(**body: Any) -> Any:
    return client.audio.transcriptions.create(
        **{"model": SPEECH, "file": CLIP, "language": "en", "temperature": 0, **body}
    )


def check(text: str) -> None:
    assert WORDS in text, text


@row("transcriptions json")
def _() -> None:
    check(transcribe().text)


@row("transcriptions text")
def _() -> None:
    check(transcribe(response_format="text"))


@row("transcriptions srt")
def _() -> None:
    found = transcribe(response_format="srt")
    assert found.startswith("1\n00:00:00,000 --> 00:00:03,"), found
    check(found)


@row("transcriptions vtt")
def _() -> None:
    found = transcribe(response_format="vtt")
    assert found.startswith("WEBVTT"), found
    check(found)


@row("transcriptions verbose_json")
def _() -> None:
    found = transcribe(response_format="verbose_json")
    check(found.text)
    assert 3 < found.duration < 5
    assert found.segments[0].start == 0
    assert 3 < found.segments[-1].end < 5


@row("transcriptions diarized_json")
def _() -> None:
    told = ""
    try:
        transcribe(response_format="diarized_json")
    except openai.BadRequestError as error:
        told = str(error)
    assert "response_format" in told, "speakers cannot be told apart, so an error must say so"


@row("transcriptions words, language, prompt, temperature")
def _() -> None:
    found = transcribe(
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        prompt="At home.",
    )
    assert WORDS in " ".join(one.word.strip(" .,").lower() for one in found.words)
    assert all(one.start <= one.end for one in found.words)


@row("transcriptions stream=True")
def _() -> None:
    events = list(transcribe(stream=True))
    check("".join(one.delta for one in events if one.type == "transcript.text.delta"))
    assert events[-1].type == "transcript.text.done"
    check(events[-1].text)


@row("transcriptions chunking_strategy=auto, include logprobs")
def _() -> None:
    found = transcribe(chunking_strategy="auto", include=["logprobs"])
    check(found.text)
    assert all(one.logprob <= 0 for one in found.logprobs)
    check("".join(one.token for one in found.logprobs))


@row("translations")
def _() -> None:
    clip = CLIP.with_name("de1.opus")
    assert client.audio.translations.create(model=SPEECH, file=clip).text


@row("transcriptions model gpt-4o-transcribe (name built in)")
def _() -> None:
    check(transcribe(model="gpt-4o-transcribe").text)


@row("transcriptions of no audio: a clear error")
def _() -> None:
    told = ""
    try:
        transcribe(file=("a.wav", b"RIFF" + bytes(40)))
    except openai.BadRequestError as error:
        told = str(error)
    assert "file" in told


if __name__ == "__main__":
    main()
