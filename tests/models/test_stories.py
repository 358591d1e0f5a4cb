"""A quantized model of stories gives llama.cpp's logits and greedy tokens.

stories260K is by Andrej Karpathy (karpathy/tinyllamas, MIT); llama.cpp quantized it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import trinity

FOLDER = Path(__file__).parents[1] / "data" / "stories260K"
ROUNDED = 0.3  # both round activations to 8 bits, each in its own way


def test_text_and_logits_are_those_of_llama_cpp() -> None:
    golden = json.loads((FOLDER / "Q4_0.json").read_text("utf-8"))
    prompt, greedy = golden["prompt_ids"], golden["greedy_ids"]
    expected = np.load(FOLDER / "Q4_0.logits.npy")
    with trinity.load(FOLDER / "Q4_0.gguf") as model:
        assert model.tokenize("Once upon a time") == prompt
        answer = model.generate("Once upon a time", max_tokens=len(greedy), temperature=0.0)
        assert answer.token_ids == greedy
        found = model.logits((prompt + greedy)[: len(expected)])
    assert np.abs(found - expected).max() < ROUNDED
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))
