from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.tiny_models import write_tiny_model
from trinity.cli.inspect import plain, printable


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspect") / "tiny.gguf"
    write_tiny_model(path)
    return path


def test_json(run: Run, model: Path) -> None:
    result = run("inspect", str(model), "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["path"] == str(model)
    assert found["header"]["version"] == 3
    assert found["config"]["num_layers"] == 2
    assert found["metadata"]["general.architecture"] == "llama"
    assert found["metadata"]["tokenizer.ggml.tokens"]["array"] == "array[string]"
    embedding = next(t for t in found["tensors"] if t["name"] == "token_embd.weight")
    assert embedding["bytes"] == 4 * int(np.prod(embedding["shape"]))
    assert found["tensor_bytes"] == sum(t["bytes"] for t in found["tensors"])


def test_tables_on_a_pipe(run: Run, model: Path) -> None:
    result = run("inspect", str(model))
    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout
    row = next(line for line in result.stdout.splitlines() if "token_embd.weight" in line)
    assert "F32" in row
    assert " x " in row
    for expected in ("hidden_size", "general.architecture", "array[string], ", "parameters in"):
        assert expected in result.stdout


def test_vocabulary_without_configuration_still_shows(run: Run, shared_data: Path) -> None:
    path = shared_data / "vocab" / "ggml-vocab-llama-spm.gguf"
    assert run("inspect", str(path)).exit_code == 0
    assert json.loads(run("inspect", str(path), "--json").stdout)["tensors"] == []


def test_not_a_model_is_1(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"hello world, this is no model at all")
    result = run("inspect", str(path))
    assert result.exit_code == 1
    assert str(path) in result.stderr


def test_a_file_cannot_control_the_terminal() -> None:
    assert "\x1b" not in printable("\x1b[31mred")
    assert printable("a\nb") == r'"a\nb"'
    assert printable("plain") == "plain"
    assert len(printable("x" * 1000)) < 120


def test_json_has_no_nan() -> None:
    assert plain(np.array([1.0, np.nan])) == [1.0, "nan"]
