"""Adapters of every module of every family give the logits of merged weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.matrix import some
from tests.models.adapter_files import (
    Arrays,
    add_experts,
    mlx_directory,
    peft_directory,
    random_pairs,
)
from tests.models.test_families import FOLDERS
from tests.tools.family_directories import arrays_of, directory
from trinity.errors import UnsupportedError
from trinity.tools.convert import convert

LARGEST_DIFFERENCE = 1e-3
# Experts that are blocks of MXFP4, which no sum can be written as; multipliers within weights.
LEFT = {"gpt_oss_mxfp4", "falcon_h1"}
# Experts' parameters are (experts, in, out).
TURNED = {"gpt_oss"}
KEPT = {"deepseek_v2", "gemma4_e", "gpt_oss", "mixtral", "phi3", "llama3_rope", "qwen3_5", "lfm2"}


@pytest.mark.few(2)
@pytest.mark.parametrize("folder", some(sorted(FOLDERS.keys() - LEFT), KEPT))
def test_as_merged(folder: str, shared_data: Path, tmp_path: Path) -> None:
    family = shared_data / "architectures" / folder
    if not (family / "hf" / "model.safetensors").exists():
        pytest.skip(f"the reference data has no checkpoint of {folder}")
    arrays = arrays_of(family)
    tied = "lm_head.weight" not in arrays
    # Merging would change a tied output, too, which PEFT leaves as it is.
    chosen = {
        name: array
        for name, array in arrays.items()
        if not (tied and name == "model.embed_tokens.weight")
    }
    peft, mlx, merged = random_pairs(chosen, seed=1)
    experts = add_experts(arrays, merged, folder in TURNED, seed=2)
    whole = {**arrays, **merged}
    base, other = tmp_path / "base.gguf", tmp_path / "merged.gguf"
    convert(family / "hf", base, "f32")
    convert(directory(family, tmp_path / "merged", whole), other, "f32")
    prompt = json.loads((family / "golden.json").read_text("utf-8"))["prompt_ids"]
    targets = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"] if experts else None
    files = [
        peft_directory(tmp_path / "peft", peft | experts, target_parameters=targets),
        *([] if experts else [mlx_directory(tmp_path / "mlx", mlx)]),
    ]
    with trinity.load(other, context_length=64, kv_type="f32") as model:
        expected = model.logits(prompt)
    with trinity.load(base, context_length=64, kv_type="f32") as model:
        assert np.abs(model.logits(prompt) - expected).max() > 0.1
    for file in files:
        with trinity.load(base, context_length=64, kv_type="f32", lora=[file]) as model:
            found = model.logits(prompt)
        assert np.abs(found - expected).max() < LARGEST_DIFFERENCE, file


@pytest.mark.few(1)
@pytest.mark.parametrize("folder", ["gemma3", "qwen3"])
def test_tied_embedding(folder: str, shared_data: Path, tmp_path: Path) -> None:
    """mlx-lm adapters also change the output, as PEFT's do with ensure_weight_tying."""
    family = shared_data / "architectures" / folder
    arrays = arrays_of(family)
    name = "model.embed_tokens.weight"
    peft, mlx, merged = random_pairs({name: arrays[name]}, seed=3)
    whole: Arrays = {**arrays, **merged}
    if "lm_head.weight" in whole:
        whole["lm_head.weight"] = whole[name]
    base, other = tmp_path / "base.gguf", tmp_path / "merged.gguf"
    convert(family / "hf", base, "f32")
    convert(directory(family, tmp_path / "merged", whole), other, "f32")
    prompt = json.loads((family / "golden.json").read_text("utf-8"))["prompt_ids"]
    with trinity.load(other, context_length=64, kv_type="f32") as model:
        expected = model.logits(prompt)
    tying = peft_directory(tmp_path / "peft", peft, ensure_weight_tying=True)
    for file in (tying, mlx_directory(tmp_path / "mlx", mlx)):
        with trinity.load(base, context_length=64, kv_type="f32", lora=[file]) as model:
            found = model.logits(prompt)
        assert np.abs(found - expected).max() < LARGEST_DIFFERENCE, file


def test_falcon_h1s_multipliers_are_refused(shared_data: Path, tmp_path: Path) -> None:
    family = shared_data / "architectures" / "falcon_h1"
    name = "model.layers.0.self_attn.q_proj.weight"
    peft, _, _ = random_pairs({name: arrays_of(family)[name]}, seed=4)
    file = peft_directory(tmp_path / "peft", peft)
    with pytest.raises(UnsupportedError, match="include multipliers of config"):
        trinity.load(family / "model.gguf", lora=[file])
