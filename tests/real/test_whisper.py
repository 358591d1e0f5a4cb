"""Whisper base on 20 spoken clips in four languages, beside transformers and faster-whisper.

tests/goldens/spoken_clips.py made the clips, tests/goldens/whisper_goldens.py the references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.conftest import GetModel
from trinity.speech.transcript import Transcript

soundfile = pytest.importorskip("soundfile")
FOLDER = Path(__file__).resolve().parents[1] / "data" / "real" / "spoken"
RATE = 16000
CLIPS: dict[str, str] = {
    one["name"]: one["text"]
    for one in json.loads((FOLDER / "texts.json").read_text(encoding="utf-8"))
}
REFERENCES = json.loads((FOLDER / "references.json").read_text(encoding="utf-8"))
Times = list[tuple[float, float, str]]


def samples_of(name: str) -> NDArray[np.float32]:
    samples, rate = soundfile.read(FOLDER / f"{name}.opus", dtype="float32")
    assert rate == RATE
    return np.asarray(samples)


class Ears:
    """Whisper base, which hears each clip once for each number of beams."""

    def __init__(self, path: Path) -> None:
        self.model = trinity.SpeechModel(path)
        self.hear = cache(self._hear)

    def _hear(self, name: str, beams: int) -> Transcript:
        return self.model.transcribe(
            samples_of(name), language=name[:2], beams=beams, fallback=False
        )

    def times(self, name: str, beams: int) -> Times:
        return [(one.start, one.end, one.text) for one in self.hear(name, beams).segments]


@pytest.fixture(scope="module")
def ears(real_model: GetModel) -> Iterator[Ears]:
    made = Ears(real_model("whisper-base"))
    with made.model:
        yield made


def referred(library: str, name: str) -> Times:
    segments = REFERENCES[library][name]["segments"]
    return [(one["start"], one["end"], one["text"]) for one in segments]


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def errors(said: list[str], heard: list[str]) -> int:
    """Words that are replaced, left out and added, at least (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i, one in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def error_rate(heard: dict[str, Times]) -> float:
    wrong = sum(
        errors(words(text), words(" ".join(one for *_, one in heard[name])))
        for name, text in CLIPS.items()
    )
    return wrong / sum(len(words(text)) for text in CLIPS.values())


@pytest.mark.parametrize("library", ["transformers", "faster_whisper", "faster_whisper_5_beams"])
def test_the_word_error_rate_is_not_above_that_of_the_references(ears: Ears, library: str) -> None:
    """With the default of 5 beams; the first two references are greedy."""
    assert len(CLIPS) == 20
    ours = error_rate({name: ears.times(name, 5) for name in CLIPS})
    assert ours <= error_rate({name: referred(library, name) for name in CLIPS})


@pytest.mark.parametrize(
    ("library", "beams"), [("faster_whisper", 1), ("faster_whisper_5_beams", 5)]
)
def test_texts_and_times_are_those_of_faster_whisper(ears: Ears, library: str, beams: int) -> None:
    """If a token leads by less than rounding, the level may decide the text of a clip."""
    equal = 0
    for name in CLIPS:
        ours, theirs = ears.times(name, beams), referred(library, name)
        if [text for *_, text in ours] == [text for *_, text in theirs]:
            equal += 1
            assert times_of(ours) == pytest.approx(times_of(theirs), abs=0.1), name
    assert equal >= 18


def test_times_of_equal_segments_are_those_of_transformers(ears: Ears) -> None:
    """transformers pads recordings differently, so only some texts are equal."""
    compared = 0
    for name in CLIPS:
        theirs = {text: (start, end) for start, end, text in referred("transformers", name)}
        for start, end, text in ears.times(name, 1):
            if text in theirs:
                assert (start, end) == pytest.approx(theirs[text], abs=0.1), (name, text)
                compared += 1
    assert compared >= 15


def times_of(segments: Times) -> list[float]:
    return [time for start, end, _ in segments for time in (start, end)]


def test_the_languages_are_those_that_transformers_detects(ears: Ears) -> None:
    found = {name: next(iter(ears.model.detect_language(samples_of(name)))) for name in CLIPS}
    assert found == {name: REFERENCES["transformers"][name]["detected"] for name in CLIPS}


def noise(seed: int, seconds: float) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=round(seconds * RATE))


def pink(seed: int, seconds: float) -> NDArray[np.float64]:
    """Noise whose power falls with the frequency."""
    spectrum = np.fft.rfft(noise(seed, seconds))
    found = np.fft.irfft(spectrum / np.maximum(1, np.sqrt(np.arange(len(spectrum)))))
    return found / np.abs(found).max()


def hum(seconds: float) -> NDArray[np.float64]:
    return np.sin(2 * np.pi * 50 * np.arange(round(seconds * RATE)) / RATE)


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("silence", np.zeros(RATE)),
        ("more than a window of silence", np.zeros(40 * RATE)),
        ("white noise", 0.1 * noise(0, 10)),
        ("soft white noise", 0.001 * noise(0, 10)),
        ("pink noise", 0.1 * pink(5, 10)),
        ("loud pink noise", 0.5 * pink(5, 30)),
        ("mains hum", 0.1 * hum(10)),
        ("mains hum and noise", 0.2 * hum(20) + 0.001 * noise(5, 20)),
    ],
)
def test_silence_and_noise_have_no_words(
    ears: Ears, name: str, samples: NDArray[np.float64]
) -> None:
    assert ears.model.transcribe(samples.astype(np.float32)).text == ""
