"""Options of transcription."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from trinity.options.option import Option, check_options

MOST_BEAMS = 8


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """Options of ``SpeechModel.transcribe``. Raises: InputError for a value out of range."""

    language: Annotated[
        str | None,
        Option(
            "The language spoken, as a code such as en; detected from the first 30 s by default.",
            ("--language", "-l"),
            values="a code of the model's",
            metavar="CODE",
        ),
    ] = None
    task: Annotated[
        str, Option("Transcribe, or translate into English.", choices=("transcribe", "translate"))
    ] = "transcribe"
    times: Annotated[
        bool,
        Option("Print the times of segments within a window of 30 s.", ("--times/--no-times",)),
    ] = True
    word_times: Annotated[
        bool, Option("Add the times of each word to --json.", ("--word-times/--no-word-times",))
    ] = False
    beams: Annotated[
        int,
        Option(
            "Number of beams; 1 is greedy decoding, which is faster and makes more mistakes.",
            low=1,
            high=MOST_BEAMS,
        ),
    ] = 5
    first_temperature: Annotated[
        float,
        Option(
            "Sampling temperature of the first attempt; 0 is greedy or beam search.", low=0, high=1
        ),
    ] = 0.0
    initial_prompt: Annotated[
        str, Option("Names and words that occur in the audio, for their spelling.", ("--prompt",))
    ] = ""
    carry: Annotated[
        bool,
        Option(
            "Give the model the text so far: names stay consistent, but so do errors.",
            ("--carry/--no-carry",),
        ),
    ] = False
    fallback: Annotated[
        bool,
        Option(
            "Decode a window again with sampling if its text repeats itself or is improbable.",
            ("--fallback/--no-fallback",),
        ),
    ] = True

    def __post_init__(self) -> None:
        check_options(self)
