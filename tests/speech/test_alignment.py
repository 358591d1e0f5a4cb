"""Word times, compared with transformers, and the division of texts into words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import trinity
from trinity.errors import FormatError
from trinity.speech.alignment import jumps, smoothed
from trinity.speech.audio import open_audio
from trinity.speech.clip import Clip
from trinity.speech.search import Search, SpeechHypothesis
from trinity.speech.tokens import SpeechTokens
from trinity.speech.words import words_of

# transformers 5.23.0 in float32 on the small model: attention of the alignment heads to prompt,
# ids and end, cut to the sound's frames; its _median_filter and _dynamic_time_warping; rows and
# normalization as openai/whisper has them.
PROMPT = [321, 322, 329, 333]
SPEECH = [
    217, 163, 130, 69, 78, 10, 19, 4, 44, 208, 166, 233, 128, 155, 248, 186, 161, 139, 143, 239, 71,
    208, 171, 0,
]  # fmt: skip
SPEECH_TIMES = [
    0.0, 0.12, 0.14, 1.22, 1.22, 1.22, 1.22, 1.22, 1.22, 1.22, 1.28, 1.54, 1.54, 1.6, 1.68, 1.86,
    2.14, 2.14, 2.22, 2.22, 2.22, 2.22, 2.9, 2.98, 2.98,
]  # fmt: skip
NOISE = [
    121, 131, 193, 243, 8, 36, 210, 242, 63, 79, 222, 108, 69, 211, 65, 104, 164, 140, 21, 7, 221,
    192, 214, 137,
]  # fmt: skip
NOISE_TIMES = [
    0.0, 1.72, 1.74, 5.76, 7.08, 7.1, 7.1, 7.1, 7.1, 9.52, 9.52, 9.52, 9.86, 9.86, 9.86, 9.94, 9.94,
    9.94, 9.94, 9.94, 9.94, 9.94, 9.94, 9.98, 9.98,
]  # fmt: skip


def noise() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    rising = np.linspace(0, 0.3, 160000)
    return (np.random.default_rng(0).normal(size=160000) * rising).astype(np.float32)


@pytest.mark.few(1)
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:-1]], ids=["without times", "with times"])
def test_times_of_tokens(model: trinity.SpeechModel, folder: Path, prompt: list[int]) -> None:
    """Timestamps are computed for a text without them, whatever options produced it."""
    for blocks, ids, wanted in (
        (open_audio(folder / "audio.wav"), SPEECH, SPEECH_TIMES),
        (open_audio(noise()), NOISE, NOISE_TIMES),
    ):
        clip = Clip(blocks, 80, 3000)
        model._encoder.run(model._team, clip.features(0, silence=True))
        assert model._alignment.times(prompt, ids, clip.frames) == wanted


def test_the_way_through_a_matrix() -> None:
    matrix = np.full((3, 9), -1, np.float32)
    for row, (first, last) in enumerate(((0, 2), (2, 6), (6, 9))):
        matrix[row, first:last] = 1
    assert jumps(matrix).tolist() == [0, 2, 6]
    assert jumps(np.ones((4, 1), np.float32)).tolist() == [0, 0, 0, 0]
    assert jumps(np.ones((1, 7), np.float32)).tolist() == [0]


def test_the_median_is_mirrored_at_the_ends() -> None:
    """The reference sorts; input shorter than half the window stays unchanged."""
    values = np.random.default_rng(0).normal(size=(2, 3, 11)).astype(np.float32)
    wide = np.pad(values, ((0, 0), (0, 0), (3, 3)), "reflect")
    wanted = [np.sort(wide[..., i : i + 7])[..., 3] for i in range(11)]
    np.testing.assert_array_equal(smoothed(values), np.stack(wanted, -1))
    np.testing.assert_array_equal(smoothed(values[..., :3]), values[..., :3])


class Spelled(SpeechTokens):
    """Tokens that are given as bytes, by number."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def text(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces[one] for one in ids).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("pieces", "language", "wanted"),
    [
        (
            [b" Hel", b"lo", b",", b" \xc2", b"\xbf", b"wor", b"ld", b"?", b"!"],
            "en",
            [(" Hello,", 0, 3), (" \u00bfworld?!", 3, 9)],
        ),
        ([b" don", b"'t", b' "', b"go", b'"'], "en", [(" don't", 0, 2), (' "go"', 2, 5)]),
        (
            ["\u4f60".encode(), "\u597d".encode()[:2], "\u597d".encode()[2:], "\u3002".encode()],
            "zh",
            [("\u4f60", 0, 1), ("\u597d\u3002", 1, 4)],
        ),
        ([b"a", b"\xff", b"b"], "en", [("a\ufffdb", 0, 3)]),
        ([b" a", b"\xe4\xbd"], "en", [(" a\ufffd", 0, 2)]),
    ],
    ids=["punctuation", "quotes", "without spaces", "no text", "half a character"],
)
def test_words(pieces: list[bytes], language: str, wanted: list[tuple[str, float, float]]) -> None:
    times = [float(number) for number in range(len(pieces) + 1)]
    found = words_of(range(len(pieces)), times, Spelled(pieces), language)
    assert [(one.text, one.start, one.end) for one in found] == wanted


def test_words_of_a_transcript(model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are in order, within their segment, and join to its text; by default there are none."""
    first = 334
    texts = [[first + 10, *range(40, 56), first + 300, first + 300, *range(66, 76), first + 450]]
    monkeypatch.setattr(Search, "beams", lambda *_: SpeechHypothesis([*texts[0]], -0.5))
    for language, counts in (("zh", [16, 10]), ("en", [1, 1])):
        found = model.transcribe(noise(), word_times=True, language=language)
        assert [len(one.words) for one in found.segments] == counts
        for one in found.segments:
            assert "".join(word.text for word in one.words) == one.text
            times = [time for word in one.words for time in (word.start, word.end)]
            assert times == sorted(times)
            assert one.start <= times[0]
            assert times[-1] <= one.end
        prompt = [321, model._tokens.language(language), 329]
        ids = [one for one in texts[0] if one < first]
        begins = np.clip(model._alignment.times(prompt, ids, 1000), 0.2, 6.0)  # of the first piece
        words = found.segments[0].words
        assert [one.start for one in words] == begins[: counts[0]].tolist()
        assert words[-1].end == begins[16]
    plain = model.transcribe(noise(), language="en")
    assert [one.text for one in plain.segments] == [one.text for one in found.segments]
    assert all(one.words == () for one in plain.segments)


@pytest.mark.full
def test_weights_that_give_no_numbers(
    model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = model._alignment._key
    monkeypatch.setattr(model._alignment, "_key", lambda *of: np.full_like(key(*of), np.inf))
    with pytest.raises(FormatError, match="words have no times"):
        model.transcribe(noise(), word_times=True, language="en")
