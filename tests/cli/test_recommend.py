from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.tiny_models import write_tiny_model


def test_of_a_size(run: Run) -> None:
    result = run("recommend", "--params", "7B", "--ram", "16GB", "--bandwidth", "30")
    assert result.exit_code == 0, result.stderr
    assert "Take Q4_K_M: " in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("Q4_K_M"))
    assert row.endswith("take this")
    assert "4.08 GB" in row


def test_of_a_file_as_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, hidden_size=256, intermediate_size=512)
    result = run("recommend", str(path), "--for", "quality", "--bandwidth", "30", "--json")
    found = json.loads(result.stdout)
    assert found["take"] == "Q8_0"
    assert found["usable_bytes"] > 0
    assert (found["model"], found["path"]) == (str(path), str(path))
    sizes = [row["bytes"] for row in found["types"]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--params"),
        (("x.gguf", "--params", "7B"), "--params"),
        (("--params", "many"), "many"),
        (("--params", "7B", "--ram", "lots"), "lots"),
        (("--params", "7B", "--for", "fun"), "fun"),
        (("--params", "7B", "--bandwidth", "0"), "--bandwidth"),
        (("--params", "7B", "--bandwidth", "30", "--ctx", "0"), "--ctx"),
        (("missing.gguf", "--bandwidth", "30"), "missing.gguf"),
    ],
)
def test_wrong_questions(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    result = run("recommend", *arguments)
    assert result.exit_code == (1 if arguments[0:1] == ("missing.gguf",) else 2)
    assert expected in result.stderr


def test_not_all_memory_is_the_models(run: Run) -> None:
    """16 GB of memory hold a file of 14.3 GB and nothing else."""
    arguments = ("--params", "13B", "--for", "quality", "--bandwidth", "30", "--ctx", "512")
    result = run("recommend", *arguments, "--ram", "16GB")
    assert "Memory: 16.00 GB, 14.00 GB of it for the model." in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("Q8_0"))
    assert row.endswith("too large")
    assert "Take Q6_K: Q8_0 does not fit" in result.stdout
