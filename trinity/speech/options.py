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
            "The language spoken, as a code such as en; found out from the first 30 s if not "
            "given.",
            ("--language", "-l"),
            values="a code of the model's",
            metavar="CODE",
        ),
    ] = None
    task: Annotated[
        str,
        Option(
            "Write what is said, or translate it into English.",
            ("--task",),
            choices=("transcribe", "translate"),
        ),
    ] = "transcribe"
    times: Annotated[
        bool,
        Option("Times of pieces within a window of 30 s.", ("--times/--no-times",)),
    ] = True
    word_times: Annotated[
        bool,
        Option("Times of each word, too, in --json.", ("--word-times/--no-word-times",)),
    ] = False
    beams: Annotated[
        int,
        Option(
            "Texts that are followed at the same time; 1 takes the best token each time, which is "
            "faster and makes more mistakes.",
            ("--beams",),
            low=1,
            high=MOST_BEAMS,
        ),
    ] = 5
    first_temperature: Annotated[
        float,
        Option(
            "How freely tokens are drawn in the first try; 0 takes the best ones.",
            ("--first-temperature",),
            low=0,
            high=1,
        ),
    ] = 0.0
    initial_prompt: Annotated[
        str,
        Option("What the audio is about: names and words that it has.", ("--prompt",)),
    ] = ""
    carry: Annotated[
        bool,
        Option(
            "Show the model the text so far: names stay the same, but so do its mistakes.",
            ("--carry/--no-carry",),
        ),
    ] = False
    fallback: Annotated[
        bool,
        Option(
            "Try a window again with random draws where its text repeats itself or is improbable.",
            ("--fallback/--no-fallback",),
        ),
    ] = True

    def __post_init__(self) -> None:
        check_options(self)
