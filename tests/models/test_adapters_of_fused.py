"""Adapters of modules that the model's file fuses or splits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.models.adapter_files import (
    ALPHA,
    RANK,
    Arrays,
    add_experts,
    mlx_directory,
    peft_directory,
    random_pairs,
)
from tests.tools.family_directories import arrays_of, directory
from trinity.errors import FormatError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.tools.convert import convert, convert_adapter

LARGEST_DIFFERENCE = 1e-3
Logits = NDArray[np.float32]


def logits(path: Path, prompt: list[int], lora: list[Any] | None = None) -> Logits:
    with trinity.load(path, context_length=64, kv_type="f32", lora=lora) as model:
        return model.logits(prompt)


def prompt_of(family: Path) -> list[int]:
    found: list[int] = json.loads((family / "golden.json").read_text("utf-8"))["prompt_ids"]
    return found


def fused(path: Path, copy: Path, whole: str, parts: tuple[str, ...]) -> Path:
    """Write the same file with some tensors of each layer fused, as converters may do."""
    with GGUFProvider(path) as provider, GGUFWriter(copy) as writer:
        for key in provider.metadata:
            writer.add_encoded(key, provider.metadata.encoded(key))
        for name in provider.tensor_names():
            stem = name.rpartition(".")[0].rpartition(".")[2]
            if stem in parts[1:]:
                continue
            values, own = provider.tensor(name).dequantize(), name
            if stem == parts[0]:
                others = (name.replace(stem, part) for part in parts[1:])
                arrays = [values, *(provider.tensor(other).dequantize() for other in others)]
                values, own = (
                    np.concatenate(arrays, axis=-min(2, values.ndim)),
                    name.replace(stem, whole),
                )
            values = np.ascontiguousarray(values, np.float32)
            writer.add_tensor(own, values.shape, "F32", values.reshape(-1).view(np.uint8))
    return copy


QKV = "attn_qkv", ("attn_q", "attn_k", "attn_v")
GATE_UP = "ffn_gate_up_exps", ("ffn_gate_exps", "ffn_up_exps")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("folder", "change"),
    [
        ("llama3_rope", QKV),  # whose rows of Q and K GGUF permutes
        ("qwen2", QKV),
        ("mixtral", GATE_UP),
        ("mixtral", QKV),
        ("qwen3_moe", GATE_UP),
    ],
)
def test_file_that_holds_modules_together(
    folder: str, change: tuple[str, tuple[str, ...]], shared_data: Path, tmp_path: Path
) -> None:
    """The result equals that of separate modules, with adapters of every format."""
    family = shared_data / "architectures" / folder
    arrays = {n: a for n, a in arrays_of(family).items() if "embed_tokens" not in n}
    peft, mlx, merged = random_pairs(arrays, seed=4)
    experts = add_experts(arrays, merged, False, seed=5)
    targets = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"] if experts else None
    base = tmp_path / "base.gguf"
    convert(family / "hf", base, "f32")
    other = fused(base, tmp_path / "fused.gguf", *change)
    first = peft_directory(tmp_path / "peft", peft | experts, target_parameters=targets)
    files = [first, tmp_path / "split.gguf"]
    convert_adapter(first, files[1], base)
    if not experts:
        files.append(mlx_directory(tmp_path / "mlx", mlx))
    convert_adapter(first, tmp_path / "fused-adapter.gguf", other)
    prompt = prompt_of(family)
    expected = logits(base, prompt, [first])
    assert np.abs(logits(other, prompt) - expected).max() > 0.1
    for file in (*files, tmp_path / "fused-adapter.gguf"):
        found = logits(other, prompt, [file])
        assert np.abs(found - expected).max() < LARGEST_DIFFERENCE, file


SPLIT = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}


def pair(out: int, width: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = rng.standard_normal((RANK, width)), 0.2 * rng.standard_normal((out, RANK))
    return (a / np.sqrt(width)).astype("f4"), b.astype("f4")


@pytest.mark.parametrize("folder", ["glm4", "phi3"])
@pytest.mark.parametrize("left", [(), ("self_attn.k_proj", "mlp.gate_proj")], ids=["all", "some"])
def test_parts_of_modules_that_the_family_has_together(
    folder: str, left: tuple[str, ...], shared_data: Path, tmp_path: Path
) -> None:
    """The adapter was trained on the Llama-like form: it changes some rows of a fused module."""
    family = shared_data / "architectures" / folder
    arrays, rng = arrays_of(family), np.random.default_rng(6)
    config = json.loads((family / "hf" / "config.json").read_text("utf-8"))
    heads = config["num_attention_heads"]
    query = heads * config.get("head_dim", config["hidden_size"] // heads)
    merged, tensors, patterns = dict(arrays), Arrays(), dict[str, float]()
    for name, weight in arrays.items():
        whole = next((w for w in SPLIT if name.endswith(f"{w}.weight")), None)
        if whole is None:
            continue
        half = len(weight) // 2
        sizes = (
            (half, half) if len(SPLIT[whole]) == 2 else (query, *[(len(weight) - query) // 2] * 2)
        )
        parts = []
        for part, size in zip(SPLIT[whole], sizes, strict=True):
            a, b = pair(size, weight.shape[1], rng)
            module = name.replace(f"{whole}.weight", part)
            if part in left:
                parts.append(np.zeros((size, weight.shape[1])))
                continue
            # Scales of their own, too.
            alpha = patterns.setdefault(part, ALPHA + len(patterns))
            parts.append(alpha / RANK * (b @ a))
            tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
        merged[name] = (weight + np.concatenate(parts)).astype("f4")
    other = tmp_path / "merged.gguf"
    convert(directory(family, tmp_path / "merged", merged), other, "f32")
    base = tmp_path / "base.gguf"
    convert(family / "hf", base, "f32")
    lora = peft_directory(tmp_path / "peft", tensors, alpha_pattern=patterns)
    prompt = prompt_of(family)
    expected = logits(other, prompt)
    for model in (base, family / "hf"):
        found = logits(model, prompt, [lora])
        plain = logits(model, prompt)
        assert np.abs(found - plain).max() > 0.1
        assert np.abs(found - expected).max() < LARGEST_DIFFERENCE, model


@pytest.mark.few(1)
@pytest.mark.parametrize("folder", ["llama3_rope", "qwen2"])
def test_module_that_the_family_has_apart(folder: str, shared_data: Path, tmp_path: Path) -> None:
    """One pair is given; its second matrix is split by rows."""
    family = shared_data / "architectures" / folder
    arrays, rng = arrays_of(family), np.random.default_rng(7)
    merged, tensors = dict(arrays), Arrays()
    for whole, parts in SPLIT.items():
        for name in [name for name in arrays if name.endswith(f"{parts[0]}.weight")]:
            names = [name.replace(parts[0], part) for part in parts]
            ends = np.cumsum([len(arrays[one]) for one in names])
            a, b = pair(int(ends[-1]), arrays[name].shape[1], rng)
            module = name.replace(f"{parts[0]}.weight", whole)
            tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
            for one, rows in zip(names, np.split(ALPHA / RANK * (b @ a), ends[:-1]), strict=True):
                merged[one] = arrays[one] + rows
    base, other = tmp_path / "base.gguf", tmp_path / "merged.gguf"
    convert(family / "hf", base, "f32")
    convert(directory(family, tmp_path / "merged", merged), other, "f32")
    lora = peft_directory(tmp_path / "peft", tensors)
    prompt = prompt_of(family)
    expected = logits(other, prompt)
    for model in (base, family / "hf"):
        found = logits(model, prompt, [lora])
        assert np.abs(found - expected).max() < LARGEST_DIFFERENCE, model


def refused(model: Path, folder: Path, tensors: Mapping[str, NDArray[Any]], what: str) -> None:
    lora = peft_directory(folder, tensors)
    with pytest.raises(FormatError, match=what):
        trinity.load(model, lora=[lora])


def test_parts_that_do_not_fit(shared_data: Path, tmp_path: Path) -> None:
    model = shared_data / "architectures" / "phi3" / "model.gguf"
    with trinity.load(model) as loaded:
        config = loaded.config
    hidden, query = config.hidden_size, config.num_heads * config.head_dim
    layer = "model.layers.0.self_attn"

    def of(module: str, out: int, rank: int = RANK) -> Arrays:
        return {
            f"{layer}.{module}.lora_A.weight": np.ones((rank, hidden), "f4"),
            f"{layer}.{module}.lora_B.weight": np.ones((out, rank), "f4"),
        }

    refused(
        model,
        tmp_path / "1",
        of("q_proj", query + 1),
        f"the model's module has {hidden} inputs and",
    )
    both = of("q_proj", query) | of("qkv_proj", query + 2 * config.num_kv_heads * config.head_dim)
    refused(model, tmp_path / "2", both, "a second pair for tensor 'blk.0.attn_qkv.weight'")
    refused(model, tmp_path / "3", of("q_proj", query, 5000), "1 to 4096")
