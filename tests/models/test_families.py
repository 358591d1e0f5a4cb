"""A small model of every family gives the logits of another library."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.models import family_models as small
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.models import ARCHITECTURES
from trinity.runtime.interface import Rows
from trinity_kernels.isa import available_levels

LARGEST_DIFFERENCE = 1e-3  # of a float32 engine, says the data's README
BETWEEN_STEPS = 1e-4  # of a prompt at once and token by token

# Folders of the reference data, and the architecture that each is of.
FOLDERS = {
    "cohere": "command-r",
    "cohere2": "cohere2",
    "deepseek_v2": "deepseek2",
    "falcon_h1": "falcon-h1",
    "deepseek_v2_lite": "deepseek2",
    "exaone4": "exaone4",
    "exaone4_window": "exaone4",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma4": "gemma4",
    "gemma4_e": "gemma4",
    "gemma4_moe": "gemma4",
    "glm4": "glm4",
    "gpt_oss": "gpt-oss",
    "gpt_oss_mxfp4": "gpt-oss",
    "granite": "granite",
    "granitehybrid": "granitehybrid",
    "granitehybrid_dense": "granitehybrid",
    "granitemoe": "granitemoe",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "llama3_rope": "llama",
    "ministral3": "mistral3",
    "mistral_window": "llama",
    "mixtral": "llama",
    "nemotron_h": "nemotron_h",
    "nemotron_h_moe": "nemotron_h_moe",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "phi2": "phi2",
    "phi3": "phi3",
    "phi3_longrope_long": "phi3",
    "phi3_longrope_short": "phi3",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_5": "qwen35",
    "qwen3_5_moe": "qwen35moe",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "smollm3": "smollm3",
    "starcoder2": "starcoder2",
}
# What no GGUF says, so that its reader computes something else: the data's README.
OF_THE_FILE_ALONE = {
    "mistral_window": "nowindow",
    "gpt_oss": "truncated_yarn",
    "gpt_oss_mxfp4": "truncated_yarn",
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("folder", FOLDERS)
def test_logits_and_greedy_tokens(
    folder: str, level: str, threads: int, shared_data: Path, tmp_path: Path
) -> None:
    """The references come from transformers; llama.cpp's converter wrote the models."""
    path = shared_data / "architectures" / folder / "model.gguf"
    prompt, greedy, expected = answers(path.parent)
    if folder == "gpt_oss_mxfp4":  # whose products round activations: here are its float32 values
        path = dequantized(path, tmp_path / "float.gguf")
    with trinity.load(
        path, context_length=len(prompt) + len(greedy), kv_type="f32", isa=level, threads=threads
    ) as model:
        found = model.logits(prompt)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < LARGEST_DIFFERENCE
        answer = model.generate(prompt, max_tokens=len(greedy), temperature=0.0, ignore_eos=True)
        assert answer.token_ids == greedy
        with model.exclusive() as engine:
            cache = engine.new_cache()
            single = np.concatenate([engine.step([Rows(cache, [token])]) for token in prompt])
    assert np.abs(single - found).max() < BETWEEN_STEPS


def answers(folder: Path) -> tuple[list[int], list[int], NDArray[np.float32]]:
    """Return the prompt, the greedy tokens after it, and the logits of the prompt's tokens."""
    golden = json.loads((folder / "golden.json").read_text("utf-8"))
    greedy, file = golden["greedy_ids"], "logits.npy"
    if folder.name in OF_THE_FILE_ALONE:
        other = golden[f"alt_{OF_THE_FILE_ALONE[folder.name]}"]
        greedy, file = other["greedy_ids"], other["file"]
    return golden["prompt_ids"], greedy, np.load(folder / file)


def dequantized(path: Path, copy: Path) -> Path:
    """Write the same file with every tensor in float32."""
    with GGUFProvider(path) as provider, GGUFWriter(copy) as writer:
        for key in provider.metadata:
            writer.add_encoded(key, provider.metadata.encoded(key))
        for name in provider.tensor_names():
            tensor = provider.tensor(name)
            values = tensor.dequantize().astype(np.float32)
            writer.add_tensor(name, tensor.shape, "F32", values.reshape(-1).view(np.uint8))
    return copy


@pytest.mark.full
@pytest.mark.parametrize("level", available_levels())
def test_experts_in_mxfp4(level: str, shared_data: Path) -> None:
    """Activations are rounded to 8 bits, as llama.cpp does, which is off by 0.037 on average.

    Where two experts' scores are near each other that takes the other one, so the largest
    difference says nothing.
    """
    folder = shared_data / "architectures" / "gpt_oss_mxfp4"
    prompt, greedy, expected = answers(folder)
    with trinity.load(folder / "model.gguf", kv_type="f32", isa=level) as model:
        found = model.logits(prompt)
        answer = model.generate(prompt, max_tokens=len(greedy), temperature=0.0, ignore_eos=True)
    assert answer.token_ids == greedy
    assert np.abs(found - expected).mean() < 0.05
    errors = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert np.quantile(errors, 0.9) < 0.03, errors


def test_no_folder_is_left_out(shared_data: Path) -> None:
    assert set(FOLDERS.values()) <= ARCHITECTURES.keys()
    found = {path.parent.name for path in (shared_data / "architectures").glob("*/golden.json")}
    assert found == FOLDERS.keys()


@pytest.mark.few(12)
@pytest.mark.parametrize("family", small.FAMILIES)
def test_logits_are_those_of_mlx(family: str, tmp_path: Path) -> None:
    """tests/goldens/family_goldens.py"""
    path = tmp_path / "model.gguf"
    small.write_family_model(path, small.metadata_of(family), small.tensors_of(family))
    with trinity.load(path, kv_type="f32") as model:
        found = model.logits(small.PROMPT)[small.KEPT]
    assert np.abs(found - small.golden(family)).max() < LARGEST_DIFFERENCE
