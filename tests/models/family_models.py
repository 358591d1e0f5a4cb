"""Deterministic small models of the families.

Their weights are drawn, and their tensors follow from the family. tests/data stores only the
logits, which ``tests/goldens/family_goldens.py`` computes with another library.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.tiny_models import sentencepiece_vocabulary
from trinity.formats.configuration import config_from_metadata
from trinity.formats.gguf_writer import GGUFWriter
from trinity.models import ARCHITECTURES
from trinity.models.decoder import Decoder

Tensors = dict[str, NDArray[np.float32]]
PROMPT = [1, 300, 17, 263, 301, 5, 260, 300, 333, 44, 290, 282]  # crosses the window
KEPT = [3, 7, 11]  # positions whose logits are kept
HEADS, KV_HEADS, HEAD_DIM, HIDDEN, FFN, EXPERT_FFN = 4, 2, 24, 64, 96, 32
EPS = 1e-6
CONTEXT, WINDOW = 64, 4
_BIASES = ("attn_q.bias", "attn_k.bias", "attn_v.bias")
_MORE_BIASES = (*_BIASES, "attn_output.bias", "ffn_up.bias", "ffn_down.bias")
_EXPERTS = {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": EXPERT_FFN}
_SCALES = {
    "attention.scale": 0.21,
    "embedding_scale": 2.0,
    "residual_scale": 0.9,
    "logit_scale": 1.7,
}
_LATENT = {
    "attention.head_count_kv": 1, "attention.kv_lora_rank": 32, "rope.dimension_count": 8,
    "attention.key_length": 40, "attention.value_length": 32,
    "attention.key_length_mla": HEAD_DIM, "attention.value_length_mla": 20,
    "leading_dense_block_count": 1, "expert_shared_count": 2, "expert_weights_scale": 1.0,
}  # fmt: skip


_YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 16,
}


@dataclass(frozen=True, slots=True)
class Family:
    """What differs from family to family.

    ``keys`` go before those that all have. ``optional``: tensors of a layer, ``beside``: of the
    model, that the family can do without. ``tied``: there is no weight of its own for logits.
    """

    architecture: str
    keys: dict[str, object] = field(default_factory=dict)
    layers: int = 2
    head_dim: int = HEAD_DIM
    optional: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    factors: tuple[float, ...] = ()
    tied: bool = True
    epsilon: str = "attention.layer_norm_rms_epsilon"


_MEAN = "attention.layer_norm_epsilon"
_WINDOWED: dict[str, object] = {"attention.sliding_window": WINDOW}
FAMILIES = {
    "qwen2": Family("qwen2", {"rope.freq_base": 1e6}, head_dim=16, optional=_BIASES),
    "qwen3": Family("qwen3", {"rope.freq_base": 1e6}),
    "qwen3_yarn": Family("qwen3", dict(_YARN)),
    "gemma": Family("gemma"),
    "gemma2": Family(
        "gemma2",  # the other library has no window there
        {"attention.sliding_window": CONTEXT, "attn_logit_softcapping": 4.0,
         "final_logit_softcapping": 9.0},
    ),
    "gemma3": Family(
        "gemma3", _WINDOWED | {"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4}, layers=7
    ),
    "phi3": Family(
        "phi3",
        {"rope.dimension_count": 12, "rope.scaling.original_context_length": 8,
         "rope.scaling.attn_factor": math.sqrt(1 + math.log(CONTEXT / 8) / math.log(8))},
        head_dim=16, optional=("attn_qkv.weight",), factors=(1.0, 1.2, 1.5, 2.0, 3.0, 4.5),
    ),
    "granite": Family("granite", dict(_SCALES), head_dim=16),
    "smollm3": Family("smollm3", {"rope.freq_base": 5e4}, layers=4, head_dim=16),
    "ministral3": Family(
        "mistral3",
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 16.0,
         "rope.scaling.original_context_length": 4, "rope.scaling.yarn_beta_fast": 32.0,
         "rope.scaling.yarn_beta_slow": 1.0, "rope.scaling.yarn_log_multiplier": 1.0,
         "attention.temperature_scale": 0.3},
    ),
    "olmo2": Family("olmo2", {"rope.freq_base": 5e5}, head_dim=16, tied=False),
    "olmo3": Family(
        "olmo2",
        _WINDOWED | {"rope.freq_base": 5e5,
                     "attention.sliding_window_pattern": np.array([True, True, True, False])},
        layers=4, head_dim=16, tied=False,
    ),
    "glm4": Family("glm4", {"rope.dimension_count": 12}, optional=_BIASES, tied=False),
    "exaone4": Family(
        "exaone4",
        _WINDOWED | {"rope.freq_base": 1e6,
                     "attention.sliding_window_pattern": np.array([True, True, True, False])},
        layers=4, head_dim=16,
    ),
    "command-r": Family("command-r", {"logit_scale": 0.75}, head_dim=16, epsilon=_MEAN),
    "command-r-plus": Family(
        "command-r", {"logit_scale": 0.75}, head_dim=16, epsilon=_MEAN,
        optional=("attn_q_norm.weight", "attn_k_norm.weight"),
    ),
    "cohere2": Family(
        "cohere2", _WINDOWED | {"logit_scale": 0.75}, layers=4, head_dim=16, epsilon=_MEAN
    ),
    "starcoder2": Family(
        "starcoder2", head_dim=16, epsilon=_MEAN,
        optional=(*_MORE_BIASES, "attn_norm.bias", "ffn_norm.bias"), beside=("output_norm.bias",),
    ),
    "phi2": Family(
        "phi2", {"attention.head_count_kv": HEADS, "rope.dimension_count": 8}, head_dim=16,
        epsilon=_MEAN, optional=(*_MORE_BIASES, "attn_norm.bias"),
        beside=("output_norm.bias", "output.bias"), tied=False,
    ),
    "mixtral": Family("llama", {"expert_count": 6, "expert_used_count": 2}, head_dim=16),
    "qwen2_moe": Family(
        "qwen2moe", _EXPERTS | {"expert_shared_feed_forward_length": 48}, head_dim=16,
        optional=_BIASES, tied=False,
    ),
    "qwen3_moe": Family("qwen3moe", dict(_EXPERTS), tied=False),
    "gpt_oss": Family(
        "gpt-oss", _EXPERTS | _YARN | _WINDOWED, tied=False,
        optional=(*_BIASES, "attn_output.bias", "ffn_gate_inp.bias", "ffn_gate_exps.bias",
                  "ffn_up_exps.bias", "ffn_down_exps.bias"),
    ),
    "granitemoe": Family(
        "granitemoe", _SCALES | {"expert_count": 6, "expert_used_count": 2}, head_dim=16
    ),
    "deepseek_v2": Family(
        "deepseek2", _EXPERTS | _LATENT | {"attention.q_lora_rank": 40},
        optional=("attn_k_b.weight",), tied=False,
    ),
    "deepseek_v2_lite": Family(
        "deepseek2", _EXPERTS | _LATENT, optional=("attn_k_b.weight",), tied=False
    ),
    "deepseek_v2_yarn": Family(
        "deepseek2", _EXPERTS | _LATENT | _YARN | {"rope.scaling.yarn_log_multiplier": 0.0707},
        optional=("attn_k_b.weight",), tied=False,
    ),
    "deepseek_v3": Family(
        "deepseek2",
        _EXPERTS | _LATENT | {
            "expert_count": 8, "expert_group_count": 2, "expert_group_used_count": 1,
            "expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5},
        optional=("attn_k_b.weight", "exp_probs_b.bias"), tied=False,
    ),
}  # fmt: skip


def metadata_of(name: str) -> dict[str, object]:
    """Return the model's keys without its tokenizer's."""
    family = FAMILIES[name]
    keys: dict[str, object] = {
        "vocab_size": vocab_size(), "context_length": CONTEXT, "embedding_length": HIDDEN,
        "block_count": family.layers, "feed_forward_length": FFN,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": family.head_dim, "attention.value_length": family.head_dim,
        "rope.freq_base": 1e4, "rope.dimension_count": family.head_dim, family.epsilon: EPS,
    }  # fmt: skip
    architecture = family.architecture
    return {"general.architecture": architecture} | {
        f"{architecture}.{key}": value for key, value in (keys | family.keys).items()
    }


def vocab_size() -> int:
    """The number of tokens."""
    return len(sentencepiece_vocabulary()[0])


def tensors_of(name: str) -> Tensors:
    """Return the float32 tensors under GGUF's names, each drawn separately."""
    family = FAMILIES[name]
    config = config_from_metadata(
        metadata_of(name),
        {} if family.tied else {"output.weight": ()},
        source=name,
        num_tokens=vocab_size(),
    )
    optional = {f"blk.{i}.{tensor}" for i in range(family.layers) for tensor in family.optional}
    optional |= {*family.beside}
    architecture = ARCHITECTURES[family.architecture]
    decoder = Decoder(architecture, architecture.completed(config), optional)
    more = decoder.optional_tensors()
    shapes = decoder.tensors() | {tensor: more[tensor] for tensor in optional & more.keys()}
    tensors = {tensor: _drawn(name, tensor, shape) for tensor, shape in shapes.items()}
    if family.factors:
        tensors["rope_factors_long.weight"] = np.array(family.factors, np.float32)
        tensors["rope_factors_short.weight"] = np.ones(len(family.factors), np.float32)
    return tensors


def _drawn(name: str, tensor: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    rng = np.random.RandomState(zlib.crc32(f"{name} {tensor}".encode()))  # never changes
    values = rng.standard_normal(shape)
    if tensor.endswith(".bias"):
        values = values * 0.2
    elif "norm" in tensor:
        values = 1 + 0.2 * values
    else:
        values = values / 8
    return values.astype(np.float32)


def vocabulary() -> dict[str, object]:
    """Return the keys of a model's tokenizer."""
    tokens, scores, types = sentencepiece_vocabulary()
    keys: dict[str, object] = {
        "model": "llama", "tokens": tokens, "scores": np.array(scores, np.float32),
        "token_type": np.array(types, np.int32), "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def write_family_model(
    path: str | os.PathLike[str], metadata: Mapping[str, object], tensors: Tensors
) -> None:
    """Write a model as GGUF, in float32."""
    with GGUFWriter(path) as writer:
        for key, value in (dict(metadata) | vocabulary()).items():
            writer.add(key, value)
        for tensor, values in tensors.items():
            writer.add_tensor(tensor, values.shape, "F32", np.ascontiguousarray(values))


def golden(name: str) -> NDArray[np.float32]:
    """Return MLX's logits after the stored tokens."""
    with np.load(Path(__file__).parents[1] / "data" / "families.npz") as goldens:
        found: NDArray[np.float32] = goldens[name]
    return found
