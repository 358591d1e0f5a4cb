"""docs/json_output.md lists exactly the keys of every --json output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.tiny_models import write_tiny_model
from tests.toy_model import ToyEngine

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "json_output.md"
# Objects whose keys are those of a file, a kind or a machine.
OPAQUE = {"summary", "header", "config", "metadata", "types", "machine", "versions"}


def documented() -> dict[str, set[str]]:
    """Return the keys of each section."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        found[section.partition("\n")[0]] = {
            key for cell in cells for key in re.findall("`([^`]*)`", cell)
        }
    return found


KEYS = documented()


def keys_of(value: object, place: str = "") -> Iterator[str]:
    """Return the paths of all values below ``value``."""
    if isinstance(value, dict) and place not in OPAQUE:
        for key, inner in value.items():
            yield from keys_of(inner, f"{place}.{key}" if place else key)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from keys_of(inner, f"{place}[]")
    elif isinstance(value, list):
        yield f"{place}[]"
    else:
        yield place


def check(command: str, *objects: object) -> None:
    found = {key for one in objects for key in keys_of(one)}
    # An empty array, or null in its place, says nothing of its elements.
    keys = KEYS[command]
    unknown = {key for key in found - keys if not any(one.startswith(key) for one in keys)}
    assert unknown == set()
    assert keys - found <= {f"{key}[]" for key in found} | {"logprobs[]"}


def told(run: Run, *arguments: str, input: str | None = None) -> object:
    result = run(*arguments, "--json", input=input)
    assert result.exit_code in (0, 1), result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    return str(path)


def test_every_command_with_json_is_documented() -> None:
    import typer.main

    from trinity.cli.application import application

    commands = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    having = {
        name
        for name, command in commands.items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert having == {section.partition(" ")[0] for section in KEYS}


def test_generate_tokenize_and_perplexity(run: Run, engine: ToyEngine, tmp_path: Path) -> None:
    named = ("-m", "toy.gguf")
    check("generate", told(run, "generate", *named, "ab", "--echo", "--logprobs", "2"))
    check("tokenize", told(run, "tokenize", *named, "ab"))
    engine.answer = None
    (tmp_path / "text.txt").write_text("All happy families are alike. " * 8)
    text = str(tmp_path / "text.txt")
    check("perplexity", told(run, "perplexity", *named, "-c", "32", "-f", text))


def test_embed(run: Run, engine: ToyEngine) -> None:
    engine.answer = None
    check("embed", told(run, "embed", "-m", "toy.gguf", "ab", "abc"))


def test_rank(run: Run, shared_data: Path) -> None:
    reranker = str(shared_data / "encoders/xlm_roberta_rerank/model.gguf")
    check("rank", told(run, "rank", "-m", reranker, "a query", "a text"))


def test_inspect(run: Run, model: str, tmp_path: Path) -> None:
    check("inspect", told(run, "inspect", model))
    data = bytearray(Path(model).read_bytes())
    data[-4:] = np.array([np.nan], "<f4").tobytes()
    (tmp_path / "damaged.gguf").write_bytes(data)
    damaged = str(tmp_path / "damaged.gguf")
    check("inspect --verify", told(run, "inspect", "--verify", damaged))
    check("inspect --diff", told(run, "inspect", model, "--diff", damaged))
    check("inspect --kernels", told(run, "inspect", model, "--kernels"))
    check("inspect --kernels", told(run, "inspect", "--kernels"))


def test_recommend_and_schema(run: Run, model: str) -> None:
    for subject in ((model,), ("--params", "7B")):
        check("recommend", told(run, "recommend", *subject, "--ram", "9GB", "--bandwidth", "9"))
    check("schema", told(run, "schema", "-", input='{"type": "null"}'))


@pytest.mark.full
def test_transcribe(run: Run, short_whisper: Path) -> None:
    options = ("-l", "en", "--no-fallback", "-t", "1")
    audio, named = str(short_whisper / "audio.wav"), ("-m", str(short_whisper / "hf"))
    words = ("--word-times",)
    found = [told(run, "transcribe", audio, *named, *options, *more) for more in ((), words)]
    check("transcribe", *found)


def test_bench(run: Run, model: str, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trinity_kernels.bandwidth.read_bandwidth", lambda threads: 1e9)
    sizes = ("-p", "4", "-n", "2", "-r", "1")
    check("bench", told(run, "bench", "-m", model, *sizes), {"models": [{"levels": [PROFILE]}]})


# The toy has none; test_bench.py of tests/tools has the real ones.
PROFILE = {
    "profiles": [
        {"test": "", "step_seconds": 0, "operations": [
            {"kernel": "", "tag": "", "rows": 0, "n": 0, "k": 0, "count": 0, "seconds": 0,
             "bytes": 0}
        ]}
    ]
}  # fmt: skip


def test_list(run: Run, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("TRINITY_CACHE_DIR", str(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "m.gguf").write_bytes(Path(model).read_bytes())
    check("list", told(run, "list"))


def test_doctor(run: Run) -> None:
    check("doctor", told(run, "doctor", "--no-bandwidth"), {"findings": [{"what": "", "do": ""}]})
