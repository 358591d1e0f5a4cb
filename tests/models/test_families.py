"""Every family against the logits that other libraries compute of one small model of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.models import family_models as small
from trinity.formats import GGUFProvider, GGUFWriter
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
    "granitemoe": "granitemoe",
    "llama3_rope": "llama",
    "ministral3": "mistral3",
    "mistral_window": "llama",
    "mixtral": "llama",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "phi2": "phi2",
    "phi3": "phi3",
    "phi3_longrope_long": "phi3",
    "phi3_longrope_short": "phi3",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "smollm3": "smollm3",
    "starcoder2": "starcoder2",
}
# Layers with a recurrent state.
LEFT = {
    "falcon_h1", "granitehybrid", "granitehybrid_dense", "lfm2", "lfm2_moe", "nemotron_h",
    "nemotron_h_moe", "qwen3_5", "qwen3_5_moe", "qwen3_next",
}  # fmt: skip
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
    """By transformers, of models that llama.cpp's converter wrote."""
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
    """The prompt, the greedy tokens behind it, and the logits of the prompt's tokens."""
    golden = json.loads((folder / "golden.json").read_text("utf-8"))
    greedy, file = golden["greedy_ids"], "logits.npy"
    if folder.name in OF_THE_FILE_ALONE:
        other = golden[f"alt_{OF_THE_FILE_ALONE[folder.name]}"]
        greedy, file = other["greedy_ids"], other["file"]
    return golden["prompt_ids"], greedy, np.load(folder / file)


def dequantized(path: Path, copy: Path) -> Path:
    """The same file with every tensor in float32."""
    with GGUFProvider(path) as provider, GGUFWriter(copy) as writer:
        for key in provider.metadata:
            writer.add_encoded(key, provider.metadata.encoded(key))
        for name in provider.tensor_names():
            tensor = provider.tensor(name)
            values = tensor.dequantize().astype(np.float32)
            writer.add_tensor(name, tensor.shape, "F32", values.reshape(-1).view(np.uint8))
    return copy


@pytest.mark.parametrize("level", available_levels())
def test_experts_in_mxfp4(level: str, shared_data: Path) -> None:
    """Activations are rounded to 8 bits, as llama.cpp does, which is off by 0.037 on average.

    A router can then choose another expert, so the largest difference says nothing.
    """
    folder = shared_data / "architectures" / "gpt_oss_mxfp4"
    prompt, greedy, expected = answers(folder)
    with trinity.load(folder / "model.gguf", kv_type="f32", isa=level) as model:
        assert np.abs(model.logits(prompt) - expected).mean() < 0.05
        answer = model.generate(prompt, max_tokens=len(greedy), temperature=0.0, ignore_eos=True)
    assert answer.token_ids == greedy


def test_no_folder_is_left_out(shared_data: Path) -> None:
    assert set(FOLDERS.values()) <= ARCHITECTURES.keys()
    found = {path.parent.name for path in (shared_data / "architectures").glob("*/golden.json")}
    assert found == FOLDERS.keys() | LEFT


@pytest.mark.parametrize("family", small.FAMILIES)
def test_logits_are_those_of_mlx(family: str, tmp_path: Path) -> None:
    """scripts/family_goldens.py"""
    with np.load(Path(__file__).parents[1] / "data" / "families.npz") as goldens:
        expected = goldens[family]
    found = logits_of_small(tmp_path, family)[small.KEPT]
    assert np.abs(found - expected).max() < LARGEST_DIFFERENCE


def logits_of_small(
    folder: Path,
    family: str,
    tensors: small.Tensors | None = None,
    changes: Mapping[str, object] | None = None,
) -> NDArray[np.float32]:
    """Of all tokens of the prompt, from a file with these tensors and keys."""
    small.write_family_model(folder / "model.gguf", family, tensors, changes)
    with trinity.load(folder / "model.gguf", kv_type="f32") as model:
        return model.logits(small.PROMPT)


@pytest.mark.parametrize("family", ["qwen2", "gemma2", "olmo2", "cohere2", "phi2", "gpt_oss"])
def test_one_weight_for_q_k_and_v(family: str, tmp_path: Path) -> None:
    tensors = small.tensors_of(family)
    expected = logits_of_small(tmp_path, family, tensors)
    for layer in range(small.FAMILIES[family].layers):
        for kind in ("weight", "bias"):
            names = [f"blk.{layer}.attn_{part}.{kind}" for part in "qkv"]
            if names[0] in tensors:
                joined = np.concatenate([tensors.pop(name) for name in names])
                tensors[f"blk.{layer}.attn_qkv.{kind}"] = joined
    assert not any(name.endswith("attn_q.weight") for name in tensors)
    assert np.array_equal(logits_of_small(tmp_path, family, tensors), expected)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v2"])
def test_one_weight_for_gates_and_ups_of_experts(family: str, tmp_path: Path) -> None:
    tensors = small.tensors_of(family)
    expected = logits_of_small(tmp_path, family, tensors)
    for name in [name for name in tensors if name.endswith("ffn_gate_exps.weight")]:
        halves = tensors.pop(name), tensors.pop(name.replace("gate", "up"))
        tensors[name.replace("gate", "gate_up")] = np.concatenate(halves, axis=1)
    assert np.array_equal(logits_of_small(tmp_path, family, tensors), expected)


def test_a_weight_for_each_expert(tmp_path: Path) -> None:
    """As the first files of Mixtral have them."""
    tensors = small.tensors_of("mixtral")
    expected = logits_of_small(tmp_path, "mixtral", tensors)
    for name in [name for name in tensors if "_exps" in name]:
        for expert, values in enumerate(tensors.pop(name)):
            tensors[name.replace("_exps", f".{expert}")] = values
    assert np.array_equal(logits_of_small(tmp_path, "mixtral", tensors), expected)


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v2_lite", "deepseek_v2_yarn"])
def test_latent_attention_of_older_files(family: str, tmp_path: Path) -> None:
    """One weight makes keys and values of all heads, and no key tells of the latent ones."""
    tensors = small.tensors_of(family)
    expected = logits_of_small(tmp_path, family, tensors)
    for name in [name for name in tensors if name.endswith("attn_k_b.weight")]:
        halves = tensors.pop(name).transpose(0, 2, 1), tensors.pop(name.replace("k_b", "v_b"))
        joined = np.concatenate(halves, axis=1)
        tensors[name.replace("k_b", "kv_b")] = joined.reshape(-1, joined.shape[-1])
    keys = {
        "head_count_kv": small.HEADS, "key_length": small.HEAD_DIM, "value_length": 20,
        "key_length_mla": None, "value_length_mla": None,
    }  # fmt: skip
    changes = {f"deepseek2.attention.{key}": value for key, value in keys.items()}
    found = logits_of_small(tmp_path, family, tensors, changes)
    assert np.abs(found - expected).max() < BETWEEN_STEPS
