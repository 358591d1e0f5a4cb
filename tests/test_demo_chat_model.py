"""The packaged chat model: its format, and PyTorch's results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import trinity
from trinity.cli.application import application
from trinity.runtime.likelihoods.scoring import Likelihoods
from trinity.runtime.scheduling.inbox import Inbox

REFERENCE = Path(__file__).parent / "data" / "demo_chat_reference.json"
LARGEST = 3_000_000


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """A conversation with PyTorch's figure for each token, and PyTorch's greedy answer."""
    found: dict[str, Any] = json.loads(REFERENCE.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def model() -> Iterator[trinity.Model]:
    with trinity.load(trinity.chat_model(), kv_type="f32") as loaded:
        yield loaded


def test_it_is_small_and_ends_its_answers(model: trinity.Model) -> None:
    assert Path(trinity.chat_model()).stat().st_size <= LARGEST
    (end,) = model.tokenize("<|end|>", add_bos=False, parse_special=True)
    assert end in model.tokenizer.eog_ids


def test_a_conversation_is_written_as_in_training(
    model: trinity.Model, reference: dict[str, Any]
) -> None:
    """Text and tokens are those of the training script and the tokenizers library."""
    assert model.chat_prompt(reference["messages"]).text == reference["text"]
    assert model.apply_chat_template(reference["messages"]) == reference["token_ids"]


def test_likelihoods_are_those_of_pytorch(model: trinity.Model, reference: dict[str, Any]) -> None:
    """Bounds of tests/test_demo_model.py."""
    inbox = Inbox()
    ids = np.array(reference["token_ids"], np.int32)
    found = model._client.result(Likelihoods(ids, inbox), inbox)
    expected = np.array(reference["nlls"])[-len(found) :]
    assert np.abs(found - expected).max() < 0.3
    assert np.abs(found - expected).mean() < 0.02


def test_the_greedy_answer_is_that_of_pytorch(
    model: trinity.Model, reference: dict[str, Any]
) -> None:
    found = model.chat(reference["messages"], max_tokens=60, temperature=0.0)
    assert found.text == reference["answer"]
    assert found.finish_reason == "stop"


def test_chat_takes_it_and_says_so(reference: dict[str, Any]) -> None:
    done = CliRunner().invoke(application(), ["chat", "--temp", "0"], input="Who is Natasha?\n")
    assert done.exit_code == 0, done.output
    assert "using the demo chat model" in done.stderr
    assert "Natasha" in done.stdout
