"""Directories of DeepSeek V3 and GLM 4.5 give transformers' logits and greedy tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.formats.huggingface.routed_models import CONFIGS, PROMPT, TOKENS, write
from tests.tools.golden_models import edit_json
from trinity.errors import UnsupportedError
from trinity.tools.convert import convert

GOLDEN = Path(__file__).parents[2] / "data" / "routed.npz"
LARGEST_DIFFERENCE = 1e-3


# llama.cpp does not read rope_freqs of this architecture, so no GGUF file is made.
NO_GGUF = {"deepseek_v3_llama3": "its RoPE scaling divides frequencies by a tensor"}


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) for name in CONFIGS for form in ("directory", "gguf")
     if form == "directory" or name not in NO_GGUF],
)  # fmt: skip
def test_logits_and_greedy_tokens(name: str, form: str, tmp_path: Path) -> None:
    path = write(name, tmp_path / "model")
    if form == "gguf":
        path = tmp_path / "model.gguf"
        convert(tmp_path / "model", path, outtype="f32")
    with np.load(GOLDEN) as golden:
        logits, greedy = golden[name], golden[f"{name} greedy"]
    with trinity.load(path, kv_type="f32") as model:
        assert np.abs(model.logits(PROMPT) - logits).max() < LARGEST_DIFFERENCE
        answer = model.generate(PROMPT, max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    assert answer.token_ids == greedy.tolist()


@pytest.mark.parametrize("name", NO_GGUF)
def test_what_llama_cpp_would_compute_otherwise_is_not_converted(name: str, tmp_path: Path) -> None:
    folder = write(name, tmp_path / "model")
    with pytest.raises(UnsupportedError, match=NO_GGUF[name]):
        convert(folder, tmp_path / "model.gguf", outtype="f32")
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method is 'greedy'"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave is False"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq is 2"),
    ],
)
def test_other_routing_is_refused(
    name: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = write(name, tmp_path / "model")
    edit_json(folder / "config.json", **changes)
    with pytest.raises(UnsupportedError, match=f"config.json: {said}"):
        trinity.load(folder)
