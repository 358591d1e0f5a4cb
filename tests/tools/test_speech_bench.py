from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from trinity.errors import InputError
from trinity.tools import speech_bench
from trinity.tools.bench import Plan


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "encoders" / "whisper" / "hf"


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[trinity.SpeechModel]:
    with trinity.SpeechModel(folder, threads=2) as loaded:
        yield loaded


@pytest.mark.full
def test_what_is_measured(model: trinity.SpeechModel, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    with model.parts() as (encoder, decoder, _):
        encode, decode = encoder.run, decoder.run

        def encoded(team: Any, features: Any) -> Any:
            steps.append(features.shape)
            states = encode(team, features)
            assert np.isfinite(states).all()
            return states

        def decoded(team: Any, rows: Any, wanted: Any) -> Any:
            steps.append((len(rows), rows[0][1].length))
            return decode(team, rows, wanted)

        monkeypatch.setattr(encoder, "run", encoded)
        monkeypatch.setattr(decoder, "run", decoded)
    report = speech_bench.run_speech_bench(model, Plan((512,), (3, 0), (1, 5), rounds=2))
    window, positions = (model.config.frames, model.config.bands), model.config.encoder.positions
    texts = [(batch, length) for batch in (1, 5) for _ in range(3) for length in range(3)]
    assert steps == [window] * 3 + texts
    found, seconds = report.measurements, positions / 50
    assert [m.test for m in found] == [f"enc{seconds:g}s", "tg3", "tg3 b5"]
    assert [m.tokens for m in found] == [positions, 3, 15]
    assert [len(m.seconds) for m in found] == [2, 2, 2]
    assert [m.audio_seconds for m in found] == [seconds, None, None]
    assert (report.isa, report.threads) == (model.isa, 2)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (Plan(depths=(4,)), "remove --depth"),
        (Plan(speculate=True), "remove --speculate"),
        (Plan(profile=True), "remove --profile"),
        (Plan(generated_tokens=(100_000,)), "generated_tokens is 100000"),
    ],
)
def test_what_there_is_not_to_measure(model: trinity.SpeechModel, plan: Plan, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        speech_bench.run_speech_bench(model, plan)
