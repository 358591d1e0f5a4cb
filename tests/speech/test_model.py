from __future__ import annotations

import json
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.speech.test_audio import tone, write_wav
from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.speech.clip import Clip
from trinity.speech.search import Search, SpeechHypothesis


def said(monkeypatch: pytest.MonkeyPatch, *texts: list[int]) -> list[list[int]]:
    """Let windows have these ids, one after the other; the prompts that they are given."""
    prompts: list[list[int]] = []
    left = list(texts)

    def sample(self: Search, prompt: list[int], *_: object) -> SpeechHypothesis:
        prompts.append(list(prompt))
        return SpeechHypothesis(left.pop(0) if left else [], -0.5)

    searched(monkeypatch, sample)
    return prompts


def searched(monkeypatch: pytest.MonkeyPatch, found: Callable[..., SpeechHypothesis]) -> None:
    """Let every search have this result, with beams and without."""
    for name in ("sample", "beams"):
        monkeypatch.setattr(Search, name, found)


FIRST = 334


@pytest.mark.full
def test_windows_follow_the_times_that_were_found(
    model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second window begins at the first one's last pair, the third after all of the second."""
    begins: list[int] = []
    features = Clip.features
    monkeypatch.setattr(Clip, "features", lambda self, at: begins.append(at) or features(self, at))
    prompts = said(
        monkeypatch,
        [FIRST, 40, FIRST + 500, FIRST + 500, 41, FIRST + 1000, FIRST + 1000],
        [FIRST, 42, FIRST + 600],
        [FIRST + 50, 43],
    )
    found = model.transcribe(tone(16000, 55.0), language="de", carry=True, initial_prompt="M")
    assert begins == [0, 2000, 5000]
    times = [(one.start, one.end) for one in found.segments]
    assert times == [(0, 10), (10, 20), (20, 32), (51, 55)]
    assert [one.seek for one in found.segments] == [0, 0, 2000, 5000]
    assert [one.text for one in found.segments] == ["I", "J", "K", "L"]
    assert found.text == "I J K L"
    begin = [321, 324, 329]
    assert prompts[0] == [331, *prompts[0][1:-3], *begin]
    shown = prompts[0][1:-3]
    assert prompts[1:] == [[331, *shown, 40, 41, *begin], [331, *shown, 40, 41, 42, *begin]]


def test_a_text_that_repeats_itself_is_tried_again(
    model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(monkeypatch, [FIRST] + [40] * 60 + [FIRST + 100], [FIRST] + [41] * 60, [FIRST, 42])
    (found,) = model.transcribe(tone(16000, 2.0), language="en").segments
    assert (found.text, found.temperature) == ("K", 0.4)
    said(monkeypatch, [FIRST] + [40] * 60 + [FIRST + 100])
    (found,) = model.transcribe(tone(16000, 2.0), language="en", fallback=False).segments
    assert (found.text, found.temperature) == ("I" * 60, 0.0)


REPEATED = [FIRST, *[40] * 60, FIRST + 100]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("tries", "text", "temperature"),
    [
        ([([42], -1.08), ([41], -6.1), ([43], -3), ([41], -4), ([41], -5), ([41], -6)], "K", 0.0),
        (
            [(REPEATED, -0.1), ([41], -6.1), ([42], -1.5), ([41], -4), ([41], -5), ([41], -6)],
            "K",
            0.4,
        ),
        ([(REPEATED, -3.0), *[(REPEATED, -0.1 - one) for one in range(5)]], "I" * 60, 0.2),
        ([([41], -1.1), ([42], -0.9)], "K", 0.2),
    ],
)
def test_of_tries_that_all_look_wrong_the_most_probable_is_kept(
    model: trinity.SpeechModel,
    monkeypatch: pytest.MonkeyPatch,
    tries: list[tuple[list[int], float]],
    text: str,
    temperature: float,
) -> None:
    """As in faster-whisper's generate_with_fallback: repetitive attempts rank last."""
    left = iter(tries)

    def sample(*_: object) -> SpeechHypothesis:
        ids, mean = next(left)
        ids = ids if ids is REPEATED else [FIRST, *ids, FIRST + 100]
        return SpeechHypothesis(ids, mean * (len(ids) + 1))

    searched(monkeypatch, sample)
    (found,) = model.transcribe(tone(16000, 2.0), language="en").segments
    assert (found.text, found.temperature) == (text, temperature)
    assert next(left, None) is None


def test_a_kept_first_try_after_a_hot_last_one_is_not_carried(
    model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As faster-whisper's prompt_reset_on_temperature, which uses the last temperature."""
    prompts: list[list[int]] = []

    def sample(self: Search, prompt: list[int], *_: object) -> SpeechHypothesis:
        prompts.append(list(prompt))
        ids = [FIRST, 40, FIRST + 1400]
        return SpeechHypothesis(ids, (-1.5 if len(prompts) < 7 else -0.5) * (len(ids) + 1))

    searched(monkeypatch, sample)
    found = model.transcribe(tone(16000, 50.0), language="en", carry=True)
    assert [one.temperature for one in found.segments] == [0.0, 0.0]
    assert prompts[6] == prompts[0]


POST_PROCESSOR = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<|startoftranscript|>", "type_id": 0}},
        {"SpecialToken": {"id": "<|notimestamps|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
    ],
    "pair": [
        {"SpecialToken": {"id": "<|startoftranscript|>", "type_id": 0}},
        {"SpecialToken": {"id": "<|notimestamps|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 1}},
        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 1}},
    ],
}


@pytest.mark.full
def test_the_post_processor_of_openais_directories(
    folder: Path, model: trinity.SpeechModel, tmp_path: Path
) -> None:
    """The tokenizer.json of openai/whisper-* adds special tokens around each text."""
    copied = tmp_path / "hf"
    shutil.copytree(folder / "hf", copied)
    tokenizer = json.loads((copied / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {one["content"]: one["id"] for one in tokenizer["added_tokens"]}
    names = [
        part["SpecialToken"]["id"]
        for part in POST_PROCESSOR["single"]
        if len(part) and "SpecialToken" in part
    ]
    specials = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in names}
    tokenizer["post_processor"] = {**POST_PROCESSOR, "special_tokens": specials}
    (copied / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    options: dict[str, Any] = {
        "language": "en",
        "initial_prompt": "a name",
        "fallback": False,
        "beams": 1,
    }
    with trinity.SpeechModel(copied, threads=1) as loaded:
        found = loaded.transcribe(folder / "audio.wav", **options)
    assert found == model.transcribe(folder / "audio.wav", **options)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("mean", "no_speech", "text"),
    [(-3.0, 0.9, ""), (-1.1, 0.61, ""), (-0.9, 0.61, "I"), (-0.6, 0.71, ""), (-0.4, 0.9, "I")],
)
def test_silence_is_no_text(
    model: trinity.SpeechModel,
    monkeypatch: pytest.MonkeyPatch,
    mean: float,
    no_speech: float,
    text: str,
) -> None:
    searched(monkeypatch, lambda *_: SpeechHypothesis([FIRST, 40], mean * 3, no_speech=no_speech))
    found = model.transcribe(np.zeros(16000 * 20), language="en")
    assert (found.text, len(found.segments)) == (text, len(text))
    assert (found.duration, found.complete) == (20.0, True)


@pytest.mark.full
def test_silence_shortness_and_noise_have_some_result(model: trinity.SpeechModel) -> None:
    """The random model's texts mean nothing, but times are within the audio."""
    noise = np.random.default_rng(0).normal(size=16000).astype(np.float32)
    for audio in (np.zeros(16000), np.ones(1), 1e30 * noise, np.full(100, -1.0), noise):
        found = model.transcribe(audio, beams=2, fallback=False)
        assert found.duration == len(audio) / 16000
        assert all(0 <= one.start < one.end <= found.duration for one in found.segments)


def test_stereo_of_8_khz_in_a_file(model: trinity.SpeechModel, tmp_path: Path) -> None:
    samples = tone(8000, 1.0)
    write_wav(tmp_path / "a.wav", np.stack([samples, samples], 1), 8000)
    options: dict[str, Any] = {"language": "en", "fallback": False, "beams": 1}
    found = model.transcribe(tmp_path / "a.wav", **options)
    assert found.duration == 1.0
    # The 16 bits change some hundred-thousandths, and no token.
    assert found.text == model.transcribe(samples, rate=8000, **options).text


def test_draws_are_the_same_each_time(model: trinity.SpeechModel) -> None:
    noise = np.random.default_rng(1).normal(size=16000)
    options: dict[str, Any] = {"language": "en", "first_temperature": 0.8, "fallback": False}
    found = [model.transcribe(noise, **options) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].segments[0].temperature > 0


@pytest.mark.full
def test_long_audio_takes_no_more_memory(
    model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 minutes are 77 MB of samples and 38 MB of features; windows hold 30 s of them."""
    said(monkeypatch)
    monkeypatch.setattr("trinity.speech.encoder.SpeechEncoder.run", lambda *_: None)
    block = np.random.default_rng(0).normal(size=16000).astype(np.float32)
    monkeypatch.setattr(
        "trinity.speech.model.open_audio", lambda *_: lambda: (block for _ in range(1200))
    )
    tracemalloc.start()
    found = model.transcribe("any", language="en")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.duration, found.complete) == (1200.0, True)
    assert peak < 60e6


def test_cancelled_between_windows(
    model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(monkeypatch, [FIRST, 40, FIRST + 1400], [FIRST, 41, FIRST + 1400])
    cancel = threading.Event()
    stream = model.stream(tone(16000, 70.0), language="en", cancel=cancel)
    assert next(stream).text == "I"
    cancel.set()
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == ("en", 70.0, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "xx"}, "language is 'xx'; this model knows en, zh, de"),
        ({"task": "summarize"}, "task is 'summarize'; it must be transcribe or translate"),
        ({"beams": 0}, "beams is 0; it must be an integer from 1"),
        ({"beam": 2}, "unknown option 'beam'; options are language, task"),
        (
            {"initial_prompt": "word " * 300},
            "initial_prompt has .* tokens; it must have at most 223",
        ),
        ({"rate": 10}, "rate is 10"),
    ],
)
def test_wrong_options(model: trinity.SpeechModel, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.transcribe(tone(16000, 0.1), **options)


@pytest.mark.full
def test_what_is_no_speech_model(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="there is no such file or model"):
        trinity.SpeechModel(tmp_path / "missing")
    with pytest.raises(TrinityError, match=r"config\.json"):
        trinity.SpeechModel(tmp_path)
    with pytest.raises(UnsupportedError, match="is not a speech model"):
        trinity.SpeechModel(trinity.demo_model())
    write_wav(tmp_path / "a.wav", np.zeros(0), 16000)
    with pytest.raises(FormatError, match="no samples"):
        trinity.transcribe(tmp_path / "a.wav", folder / "hf")


def test_a_closed_model_says_so(folder: Path) -> None:
    model = trinity.SpeechModel(folder / "hf", threads=1)
    model.close()
    model.close()
    with pytest.raises(InputError, match="the model is closed"):
        model.transcribe(tone(16000, 0.1))
