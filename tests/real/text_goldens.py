"""Results of llama.cpp and transformers that tests/goldens/real_text_goldens.py wrote."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.real.prompts import PROMPTS
from tests.real.texts import prose, texts

DATA = Path(__file__).parents[1] / "data" / "real"
TEXT_MODELS = ("smollm2", "gemma3-270m")
Arrays = dict[str, np.ndarray[Any, Any]]


def inputs_digest() -> str:
    """SHA-256 of all inputs: results of other inputs must not be compared."""
    return hashlib.sha256("\0".join([*texts(), prose(), *PROMPTS]).encode()).hexdigest()


def text_goldens(name: str) -> Arrays:
    """The arrays of a model."""
    with np.load(DATA / f"text_{name}.npz") as file:
        found = dict(file)
    assert found["inputs"] == inputs_digest(), "run tests/goldens/real_text_goldens.py"
    return found


def chat_goldens(name: str) -> list[dict[str, Any]]:
    """The renderings of tests.real.conversations, each without and with the prompt of an answer."""
    found: list[dict[str, Any]] = json.loads((DATA / f"chat_{name}.json").read_text("utf-8"))
    return found
