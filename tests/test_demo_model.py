"""The packaged demo model: its format, and PyTorch's results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import trinity
from tests.matrix import some
from trinity.cli.application import application
from trinity.runtime.likelihoods.perplexity import cut_windows
from trinity.runtime.likelihoods.scoring import Likelihoods
from trinity.runtime.scheduling.inbox import Inbox
from trinity_kernels.isa import available_levels

REFERENCE = Path(__file__).parent / "data" / "demo_reference.json"
LARGEST = 6_000_000


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """A piece of text that training never saw, with PyTorch's figure for each scored token."""
    found: dict[str, Any] = json.loads(REFERENCE.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def model() -> Iterator[trinity.Model]:
    with trinity.load(trinity.demo_model(), kv_type="f32") as loaded:
        yield loaded


def test_it_is_an_ordinary_file() -> None:
    """Architecture, types and size equal those of files from bitnet.cpp's converter."""
    path = Path(trinity.demo_model())
    assert path.stat().st_size <= LARGEST
    provider = trinity.open_weights(path)
    types = {name: provider.tensor(name).type for name in provider.tensor_names()}
    assert provider.config.architecture == "bitnet-b1.58"
    assert types.pop("token_embd.weight") == "F16"
    assert "output.weight" not in types
    for name, type_name in types.items():
        assert type_name == ("F32" if name.endswith("norm.weight") else "I2_S"), name
    provider.close()


def test_tokens_are_those_of_the_tokenizers_library(
    model: trinity.Model, reference: dict[str, Any]
) -> None:
    assert model.tokenize(reference["text"]) == reference["token_ids"]
    assert model.detokenize(reference["token_ids"][1:]) == reference["text"]


@pytest.mark.parametrize("isa", some(available_levels(), available_levels()[:1]))
def test_likelihoods_are_those_of_pytorch(isa: str, reference: dict[str, Any]) -> None:
    """Token by token.

    Activations near a half round one way here and another there, and later layers make more of
    it: the float64 forward pass of tests/naive.py is 0.005 from PyTorch in the mean, too.
    """
    with trinity.load(trinity.demo_model(), kv_type="f32", isa=isa) as model:
        bos = model.tokenizer.bos_id
        windows = cut_windows(reference["token_ids"], reference["window"], bos)
        found = np.concatenate([likelihoods(model, window) for window in windows])
        expected = np.array(reference["nlls"])
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 0.3
        assert np.abs(found - expected).mean() < 0.02
        assert np.exp(found.mean()) == pytest.approx(reference["perplexity"], rel=0.005)


def likelihoods(model: trinity.Model, window: NDArray[np.int32]) -> NDArray[np.float64]:
    inbox = Inbox()
    found: NDArray[np.float64] = model._client.result(Likelihoods(window, inbox), inbox)
    return found


def test_perplexity_is_that_of_pytorch(reference: dict[str, Any]) -> None:
    """It also agrees with the half-precision cache that generation uses."""
    with trinity.load(trinity.demo_model()) as model:
        found = model.perplexity(reference["text"], window=reference["window"])
    assert found.perplexity == pytest.approx(reference["perplexity"], rel=0.005)
    assert found.scored_tokens == len(reference["nlls"])


def test_it_writes_words_of_its_book(model: trinity.Model, reference: dict[str, Any]) -> None:
    """Most words of a sample are common ones; random text would not have them."""
    words = model.generate("Prince Andrew", max_tokens=200, seed=1).text.split()
    common = {"the", "a", "of", "to", "and", "he", "in", "that", "his", "was", "with", "had"}
    assert len(words) > 50
    assert sum(word.strip('.,;:!?"').lower() in common for word in words) > len(words) / 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "--prompt", "Prince Andrew", "-n", "4", "--quiet"],
        ["tokenize", "Prince Andrew"],
        ["perplexity", "--ctx", "128", "--file", "{text}"],
        ["bench", "-p", "8", "-n", "4", "-r", "1"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_use_it_and_say_so(
    arguments: list[str],
    tmp_path: Path,
    reference: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trinity_kernels.bandwidth.read_bandwidth", lambda threads: 1e10)
    text = tmp_path / "text.txt"
    text.write_text(reference["text"], encoding="utf-8")
    result = CliRunner().invoke(application(), [word.format(text=text) for word in arguments])
    assert result.exit_code == 0, result.output
    notes = [line for line in result.stderr.splitlines() if "demo model" in line]
    assert notes == ["using the demo model; give --model FILE for another"]
    assert result.stdout.strip()
