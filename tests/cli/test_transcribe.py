from __future__ import annotations

import json
from pathlib import Path

import pytest

import trinity
from tests.cli.conftest import Run


@pytest.fixture
def given(short_whisper: Path) -> list[str]:
    audio, model = str(short_whisper / "audio.wav"), str(short_whisper / "hf")
    return ["transcribe", audio, "-m", model, "-l", "en", "--no-fallback", "-t", "1"]


@pytest.fixture
def start(given: list[str]) -> str:
    """Format the start of the first segment as seconds and milliseconds."""
    options = {"language": "en", "fallback": False}
    with trinity.SpeechModel(given[3], threads=1) as model:
        (segment, *_) = model.transcribe(given[1], **options).segments
    return f"{segment.start:06.3f}"


@pytest.mark.full
def test_a_line_for_each_piece(run: Run, given: list[str], start: str) -> None:
    result = run(*given)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"[00:00:{start} --> 00:00:03.000] ")
    assert "3.0 s of audio, language en" in result.stderr


@pytest.mark.full
def test_json_is_one_object(run: Run, given: list[str], start: str) -> None:
    found = json.loads(run(*given, "--json").stdout)
    assert list(found) == ["model", "text", "language", "duration", "segments", "complete"]
    assert (found["language"], found["duration"], found["complete"]) == ("en", 3.0, True)
    assert found["segments"][0]["start"] == float(start)


@pytest.mark.full
def test_subtitles(run: Run, given: list[str], start: str) -> None:
    comma = start.replace(".", ",")
    assert run(*given, "--srt").stdout.startswith(f"1\n00:00:{comma} --> 00:00:03,000\n")
    assert run(*given, "--vtt").stdout.startswith(f"WEBVTT\n\n00:00:{start} --> 00:00:03.000\n")
    result = run(*given, "--vtt", "--srt")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


@pytest.mark.full
def test_a_gguf_file_and_times_of_words(run: Run, given: list[str], tmp_path: Path) -> None:
    made = run("convert", given[3], str(tmp_path / "a.gguf"))
    assert made.exit_code == 0, made.stderr
    assert "whisper, 89 tensors" in made.stderr
    options = ["-m", str(tmp_path / "a.gguf"), *given[4:]]
    assert run("transcribe", given[1], *options).stdout == run(*given).stdout
    found = json.loads(run("transcribe", given[1], *options, "--json", "--word-times").stdout)
    (word,) = found["segments"][0]["words"]
    assert list(word) == ["start", "end", "text"]
    assert 0 <= word["start"] <= word["end"] <= 3.0
    result = run(*given, "--srt", "--word-times")
    assert result.exit_code == 2
    assert "--json" in result.stderr
    refused = run("generate", "-m", str(tmp_path / "a.gguf"), "-p", "a")
    assert refused.exit_code == 1
    assert "trinity transcribe" in refused.stderr


@pytest.mark.full
def test_errors_say_what_to_do(run: Run, given: list[str], tmp_path: Path) -> None:
    for audio, message in (
        ("missing.wav", "No such file or directory); give an audio file"),
        ("config.json", "soundfile cannot read it"),
    ):
        path = tmp_path / audio if audio.startswith("missing") else Path(given[3]) / audio
        result = run("transcribe", str(path), *given[2:])
        assert (result.exit_code, result.stdout) == (1, "")
        assert message in result.stderr
        assert audio in result.stderr
