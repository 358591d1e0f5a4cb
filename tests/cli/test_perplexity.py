from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.toy_model import ToyEngine
from trinity.cli.perplexity import WINDOW
from trinity.runtime.likelihoods.perplexity import DEFAULT_WINDOW

TEXT = "All happy families are alike. " * 8
MODEL = ("perplexity", "-m", "toy.gguf", "-c", "32")


@pytest.fixture
def text(tmp_path: Path, engine: ToyEngine) -> str:
    engine.answer = None
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_result_on_stdout_and_the_way_to_it_on_stderr(run: Run, text: str) -> None:
    result = run(*MODEL, "-f", text)
    assert result.exit_code == 0, result.stderr
    first, second, third = result.stdout.splitlines()
    assert first.startswith("PPL = ")
    assert " +/- " in first
    assert second.endswith(" bits per byte")
    assert third == "105 tokens scored, in the second halves of 7 windows of 32"
    assert "7 of 7 windows: PPL " + first.split()[2] in result.stderr


def test_json_is_one_object(run: Run, text: str) -> None:
    found = json.loads(run(*MODEL, "-f", text, "--json").stdout)
    assert found["model"] == "toy.gguf"
    assert (found["windows"], found["window"], found["scored_tokens"]) == (7, 32, 105)
    assert found["perplexity"] > found["error"] > 0


def test_text_from_standard_input(run: Run, text: str) -> None:
    assert run(*MODEL, input=TEXT).stdout == run(*MODEL, "-f", text).stdout


def test_errors_say_what_to_do(run: Run, text: str, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for file, message in (
        ("latin.txt", "byte 3 is 0xe9, which is not UTF-8"),
        ("missing.txt", "No such file"),
    ):
        result = run(*MODEL, "-f", str(tmp_path / file))
        assert (result.exit_code, result.stdout) == (1, "")
        assert message in result.stderr
        assert file in result.stderr
    result = run("perplexity", "-m", "toy.gguf", "-c", "128", "-f", text)
    assert result.exit_code == 1
    assert f"{text}: the text is too short" in result.stderr
    assert "need at least 256" in result.stderr


def test_options_reach_the_model(run: Run, text: str, engine: ToyEngine) -> None:
    run(*MODEL, "-f", text, "-t", "1", "--kv-type", "f32", "--isa", "avx2")
    ((path, given),) = engine.loads
    assert path == "toy.gguf"
    assert (given["context_length"], given["threads"]) == (32, 1)
    assert (given["kv_type"], given["isa"]) == ("f32", "avx2")


def test_default_window_is_the_librarys() -> None:
    assert WINDOW == DEFAULT_WINDOW
