from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.full
def test_windows_of_audio_and_tokens(
    run: Run, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trinity_kernels.bandwidth.read_bandwidth", lambda threads: 1e9)
    folder = shared_data / "encoders" / "whisper" / "hf"
    given = ["bench", "-m", str(folder), "-n", "4", "-t", "2", "-r", "2"]
    result = run(*given, "--json")
    assert result.exit_code == 0, result.stderr
    (model,) = json.loads(result.stdout)["models"]
    encoder, decoder = model["levels"][0]["tests"]
    speed = encoder["tokens_per_second_mean"] / 50
    assert encoder["audio_seconds_per_second_mean"] == pytest.approx(speed)
    assert decoder["test"] == "tg4"
    assert decoder["audio_seconds_per_second_mean"] is None
    result = run(*given, "-m", "trinity/data/demo.gguf", "-p", "8")
    assert "seconds of audio per second" in result.stdout
    assert "| tg4 |" in result.stdout
    result = run(*given, "--ctx", "1024")
    assert result.exit_code == 2
    assert "--ctx does not apply to speech models" in result.stderr
