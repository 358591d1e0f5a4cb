"""A Hugging Face configuration in GGUF's keys, which are the canonical ones.

With these keys and the tensors' shapes, ``config_from_metadata`` gives the ModelConfig, as it does
for a GGUF file. Source: llama.cpp conversion/base.py, TextModel.set_gguf_parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from trinity.config import ModelConfig, RopeScaling
from trinity.formats.config_limits import gguf_keys
from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.rope import DynamicNtk, YarnScaling

# Architectures whose layers have a window that GGUF has no key for.
_WINDOWED = frozenset(
    ("llama", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "mistral3", "starcoder2")
)


def model_metadata(model: HFModel, name: str) -> dict[str, object]:
    """Return the model's keys without its tokenizer's; ``name`` is general.name."""
    config, rope = model.config, model.rope
    epsilon = "rms_epsilon" if model.family.epsilon == "rms_norm_eps" else "epsilon"
    keys: dict[str, object] = {
        "num_layers": config.num_layers,
        "context_length": usable_context(model),
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "value_dim": config.head_dim,
        f"attention.layer_norm_{epsilon}": config.rms_norm_eps,
        "rope_dim": config.rope_dim,
        "rope_theta": config.rope_theta,
        "vocab_size": config.vocab_size,
    }
    if rope.theta_swa is not None:
        keys["rope_theta_swa"] = rope.theta_swa
    if config.experts is not None:
        keys["num_experts"] = config.experts.num_experts
        keys["num_experts_per_tok"] = config.experts.num_experts_per_tok
        keys["expert_intermediate_size"] = config.experts.intermediate_size
    keys |= rope.scaling.keys()
    keys |= model.own_fields
    general: dict[str, object] = {"general.architecture": config.architecture, "general.name": name}
    # Placeholders for numbers that are tensors in the checkpoint.
    zeros = np.zeros(config.num_layers, np.float32)
    general |= dict.fromkeys(gguf_keys(model.family.numbers), zeros)
    return general | {
        f"{config.architecture}.{key}": value
        for key, value in gguf_keys(keys).items()
        if value is not None
    }


def drafting_keys(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return the keys of ``metadata`` that change if an MTP layer follows the last layer."""
    architecture = metadata["general.architecture"]
    count, recurrent = f"{architecture}.block_count", f"{architecture}.attention.recurrent_layers"
    layers = metadata[count]
    assert isinstance(layers, int)
    keys: dict[str, object] = {count: layers + 1, f"{architecture}.nextn_predict_layers": 1}
    if recurrent in metadata:
        keys[recurrent] = np.append(np.asarray(metadata[recurrent]), np.False_)
    return keys


def usable_context(model: HFModel) -> int:
    """Return the context length within which attention is as it was trained.

    If GGUF cannot store a sliding window, full attention is the same up to the window's length.
    """
    config = model.config
    windows = model.family.windows
    window = 0 if windows is None or windows.gguf else config.sliding_window
    return min(window, config.context_length) if window else config.context_length


def beyond_gguf(known: ModelConfig, model: HFModel) -> ModelConfig:
    """Add to ``known``, made from GGUF's keys, what these keys cannot express."""
    config, scaling = model.config, model.rope.scaling
    rows = model.values.values.get("vocab_size_per_layer_input")
    if known.per_layer_input_size and isinstance(rows, int) and rows < known.vocab_size:
        known = replace(known, per_layer_vocab_size=rows)
    if known.architecture in _WINDOWED and usable_context(model) != config.context_length:
        known = replace(
            known,
            context_length=config.context_length,
            sliding_window=config.sliding_window,
            sliding_window_pattern=config.sliding_window_pattern,
        )
    if known.architecture == "laguna" and model.values.values.get("gating") == "per-element":
        known = replace(known, gates_elements=True)
    if isinstance(scaling, DynamicNtk):
        known = replace(known, rope_scaling=RopeScaling(type="dynamic"))
    if isinstance(scaling, YarnScaling) and not scaling.truncate:
        known = replace(known, rope_scaling=replace(known.rope_scaling, yarn_truncate=False))
    return known
