"""Every family against the logits that other libraries compute of one small model of each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.models import family_models as small

FAMILIES = ("qwen2", "qwen3", "gemma3", "phi3", "phi3_longrope_short", "phi3_longrope_long")
LARGEST_DIFFERENCE = 1e-3  # of a float32 engine, says the data's README


@pytest.mark.parametrize("family", small.FAMILIES)
def test_logits_are_those_of_mlx(family: str, tmp_path: Path) -> None:
    """scripts/family_goldens.py"""
    path = tmp_path / "model.gguf"
    small.write_family_model(path, family)
    with np.load(Path(__file__).parents[1] / "data" / "families.npz") as goldens:
        expected = goldens[family]
    with trinity.load(path, kv_type="f32") as model:
        found = model.logits(small.PROMPT)
    assert np.abs(found - expected).max() < LARGEST_DIFFERENCE


def context_of(family: str, needed: int) -> int:
    """A context that the golden's choice of rotation factors belongs to."""
    return 24 if family == "phi3_longrope_short" else max(64, needed)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens(family: str, shared_data: Path) -> None:
    """By transformers, of models that llama.cpp's converter wrote."""
    folder = shared_data / "architectures" / family
    golden = json.loads((folder / "golden.json").read_text("utf-8"))
    prompt, greedy = golden["prompt_ids"], golden["greedy_ids"]
    context = context_of(family, len(prompt) + len(greedy))
    with trinity.load(folder / "model.gguf", context_length=context, kv_type="f32") as model:
        expected = np.load(folder / "logits.npy")
        found = model.logits(prompt[:context])
        assert np.abs(found - expected[: len(found)]).max() < LARGEST_DIFFERENCE
        if len(prompt) + len(greedy) <= context:
            answer = model.generate(
                prompt, max_tokens=len(greedy), temperature=0.0, ignore_eos=True
            )
            assert answer.token_ids == greedy
