"""Files of older converters with other or fused tensors give the same logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.models import family_models as small
from tests.models.test_families import LARGEST_DIFFERENCE

Tensors = small.Tensors
Metadata = dict[str, Any]


def one_tensor_for_each_expert(metadata: Metadata, tensors: Tensors) -> None:
    """The first mixtral files."""
    for name in [name for name in tensors if "_exps" in name]:
        stem = name.removesuffix("_exps.weight")
        stack = tensors.pop(name)
        tensors |= {f"{stem}.{expert}.weight": part for expert, part in enumerate(stack)}


def one_tensor_for_gate_and_up(metadata: Metadata, tensors: Tensors) -> None:
    """The converter's --fuse-gate-up-exps."""
    for name in [name for name in tensors if "ffn_gate_exps" in name]:
        up = tensors.pop(name.replace("gate", "up"))
        fused = np.concatenate([tensors.pop(name), up], axis=1)
        tensors[name.replace("gate", "gate_up")] = fused


def one_tensor_for_q_k_and_v(metadata: Metadata, tensors: Tensors) -> None:
    """The converter's --fuse-qkv, biases and all."""
    for name in [name for name in tensors if "attn_q." in name]:
        parts = [tensors.pop(name.replace("attn_q", f"attn_{part}")) for part in "qkv"]
        tensors[name.replace("attn_q", "attn_qkv")] = np.concatenate(parts)


def one_row_without_its_dimension(metadata: Metadata, tensors: Tensors) -> None:
    """Of the score by which Qwen 2's shared expert is weighted."""
    for name in [name for name in tensors if "gate_inp_shexp" in name]:
        tensors[name] = tensors[name].reshape(-1)


def keys_and_values_of_every_head(metadata: Metadata, tensors: Tensors) -> None:
    """deepseek2 before latent attention was kept latent: one attn_kv_b, no keys ``*_mla``."""
    key_dim = metadata.pop("deepseek2.attention.key_length_mla")
    value_dim = metadata.pop("deepseek2.attention.value_length_mla")
    metadata |= {
        "deepseek2.attention.key_length": key_dim,
        "deepseek2.attention.value_length": value_dim,
        "deepseek2.attention.head_count_kv": metadata["deepseek2.attention.head_count"],
    }
    for name in [name for name in tensors if "attn_k_b" in name]:
        keys, values = tensors.pop(name), tensors.pop(name.replace("k_b", "v_b"))
        parts = [part for head in zip(keys, values, strict=True) for part in (head[0].T, head[1])]
        tensors[name.replace("k_b", "kv_b")] = np.concatenate(parts)


def every_form_of_keys_and_values(metadata: Metadata, tensors: Tensors) -> None:
    """Files of a fork, which have both."""
    latent = {name: tensors[name] for name in tensors if "attn_k_b" in name or "attn_v_b" in name}
    keys_and_values_of_every_head(metadata, tensors)
    tensors |= latent


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("mixtral", one_tensor_for_each_expert),
        ("mixtral", one_tensor_for_gate_and_up),
        ("qwen2", one_tensor_for_q_k_and_v),
        ("gemma2", one_tensor_for_q_k_and_v),
        ("olmo2", one_tensor_for_q_k_and_v),
        ("cohere2", one_tensor_for_q_k_and_v),
        ("phi2", one_tensor_for_q_k_and_v),
        ("gpt_oss", one_tensor_for_q_k_and_v),
        ("qwen2_moe", one_tensor_for_gate_and_up),
        ("qwen2_moe", one_tensor_for_q_k_and_v),
        ("qwen2_moe", one_row_without_its_dimension),
        ("qwen3_moe", one_tensor_for_q_k_and_v),
        ("granitemoe", one_tensor_for_gate_and_up),
        ("deepseek_v2", keys_and_values_of_every_head),
        ("deepseek_v2_lite", keys_and_values_of_every_head),
        ("deepseek_v2_yarn", keys_and_values_of_every_head),
        ("deepseek_v2", every_form_of_keys_and_values),
        ("deepseek_v2", one_tensor_for_gate_and_up),
    ],
)
def test_logits(family: str, change: Callable[[Metadata, Tensors], None], tmp_path: Path) -> None:
    metadata, tensors = small.metadata_of(family), small.tensors_of(family)
    before = set(tensors)
    change(metadata, tensors)
    assert set(tensors) != before or change is one_row_without_its_dimension
    small.write_family_model(tmp_path / "model.gguf", metadata, tensors)
    with trinity.load(tmp_path / "model.gguf", kv_type="f32") as model:
        found = model.logits(small.PROMPT)[small.KEPT]
    assert np.abs(found - small.golden(family)).max() < LARGEST_DIFFERENCE
