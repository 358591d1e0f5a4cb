"""A configuration that every Hugging Face class accepts, and the tensors of any class."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from math import prod
from typing import Any

import numpy as np

from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.layer_numbers import number_names
from trinity.formats.huggingface.metadata import model_metadata
from trinity.formats.huggingface.stored import BLOCK, Stored, as_it_is
from trinity.formats.huggingface.table import TableRow
from trinity.models import families, read_model
from trinity.providers.huggingface_tensors import CheckpointLayout, names_of

Json = dict[str, Any]
Shape = tuple[int, ...]
# Each class takes what it knows.
_CONFIG: Json = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "head_dim": 16,
    "num_key_value_heads": 1, "num_hidden_layers": 2, "max_position_embeddings": 64,
    "num_experts": 3, "num_local_experts": 3, "n_routed_experts": 3, "num_experts_per_tok": 2,
    "top_k_experts": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32, "first_k_dense_replace": 1, "enable_moe_block": True,
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 12, "global_head_dim": 32, "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 8, "sliding_window": 16,
    "query_pre_attn_scalar": 16, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_DELTA_RULE: Json = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_MAMBA: Json = {"mamba_d_state": 8, "mamba_n_groups": 2, "mamba_n_heads": 4, "mamba_expand": 2}
_VISION: Json = {
    "depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32,
    "out_hidden_size": 32, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
    "num_attention_heads": 2, "num_hidden_layers": 1,
}  # fmt: skip
_SECTIONS: Json = {
    "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4},
}  # fmt: skip
_PHIMOE: Json = {
    "original_max_position_embeddings": 16, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 16, "short_mscale": 1.25, "long_mscale": 1.25,
    },
}  # fmt: skip
_STEP: Json = {
    "layer_types": ["full_attention", "sliding_attention"], "num_sliding_attention_heads": 3,
    "share_expert_dim": 32, "moe_layers_enum": "1", "rope_theta": [5e6, 1e4],
    "partial_rotary_factors": [0.5, 1.0], "query_pre_attn_scalar": None,
}  # fmt: skip
_KIMI: Json = {
    "n_routed_experts": 4, "num_local_experts": 4, "n_group": 2, "topk_group": 1,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
BY_CLASS: dict[str, Json] = {
    "BailingMoeForCausalLM": {"first_k_dense_replace": 0, "num_shared_experts": 1},
    "DeepseekForCausalLM": {"n_shared_experts": 1},
    "XverseForCausalLM": {"num_key_value_heads": 2},
    "SmallThinkerForCausalLM": {
        "moe_num_primary_experts": 4, "moe_num_active_primary_experts": 2,
        "moe_ffn_hidden_size": 64, "sliding_window_layout": [0, 1], "rope_layout": [0, 1],
    },
    "MiMoV2FlashForCausalLM": {
        "v_head_dim": 8, "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {
                "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
            },
        },
    },
    "YoutuForCausalLM": {"num_key_value_heads": 2, "head_dim": 8, "rope_interleave": True},
    "OlmoForCausalLM": {"clip_qkv": 0.5},
    "Glm4vForConditionalGeneration": _SECTIONS,
    "GlmOcrForConditionalGeneration": _SECTIONS,
    "Glm4vMoeForConditionalGeneration": {
        "rope_parameters": {
            "rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
        },
    },
    "PaddleOCRVLForConditionalGeneration": _SECTIONS,
    "KimiVLForConditionalGeneration": _KIMI,
    "KimiK25ForConditionalGeneration": _KIMI,
    "MiniCPM3ForCausalLM": {"num_key_value_heads": 2},
    "Qwen2VLForConditionalGeneration": _SECTIONS,
    "Qwen2_5_VLForConditionalGeneration": _SECTIONS,
    "FalconForCausalLM": {"ffn_hidden_size": 64},
    "MuseGlimmerForConditionalGeneration": {"num_hidden_layers": 4},
    "GPT2LMHeadModel": {"n_inner": 64},
    "Qwen3MoeForCausalLM": {"norm_topk_prob": True},
    "DeepseekV2ForCausalLM": {"num_key_value_heads": 2},
    "DeepseekV3ForCausalLM": {**_KIMI, "rope_interleave": True},
    "Qwen3NextForCausalLM": _DELTA_RULE,
    "Qwen3_5ForCausalLM": _DELTA_RULE,
    "Qwen3_5MoeForCausalLM": _DELTA_RULE,
    "GraniteMoeHybridForCausalLM": {
        "layer_types": ["mamba", "attention"], "position_embedding_type": "nope", **_MAMBA,
    },
    "NemotronHForCausalLM": {
        "hybrid_override_pattern": "ME*", "num_hidden_layers": 3, "mamba_num_heads": 4,
        "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 32,
    },
    "Glm4MoeLiteForCausalLM": {"num_key_value_heads": 2, "rope_interleave": True, "head_dim": 8},
    "StableLmForCausalLM": {"qk_layernorm": True},
    "AfmoeForCausalLM": {"mup_enabled": True},
    "LagunaForCausalLM": {
        "layer_types": ["full_attention", "sliding_attention"],
        "num_attention_heads_per_layer": [2, 3], "moe_routed_scaling_factor": 2.5,
    },
    "Mistral4ForCausalLM": {
        "num_key_value_heads": 2, "rope_interleave": True, "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0,
            "original_max_position_embeddings": 16, "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "Step3p5ForCausalLM": _STEP,
    "Step3p7ForConditionalGeneration": _STEP,
    "HunYuanMoEV1ForCausalLM": {"moe_topk": 2, "moe_intermediate_size": [64, 64]},
    "MapleForCausalLM": {"nope_on_global_attention": True, "norm_topk_prob": True},
    "MiniCPMForCausalLM": {"num_experts": 0},
    "BailingMoeV2ForCausalLM": {
        "num_experts": 4, "n_routed_experts": 4, "num_local_experts": 4, "n_group": 2,
        "topk_group": 1, "num_shared_experts": 1,
    },
    "SarvamMLAForCausalLM": {"num_key_value_heads": 2, "head_dim": 24, "q_lora_rank": None},
    "SarvamMoEForCausalLM": {"num_shared_experts": 1, "partial_rotary_factor": 1.0},
    "PhiMoEForCausalLM": _PHIMOE,
    "PhimoeForCausalLM": _PHIMOE,
    "Cohere2MoeForCausalLM": {
        "prefix_dense_intermediate_size": 64, "num_shared_experts": 1, "num_hidden_layers": 3,
        "expert_selection_fn": "sigmoid", "sliding_window_pattern": 2,
    },
    "GraniteSWAForCausalLM": {"layer_types": ["full_attention", "sliding_attention"]},
    "GraniteMoeSWAForCausalLM": {"layer_rope_theta": [0, 1e4], "num_hidden_layers": 2},
    "ApertusForCausalLM": {"head_dim": None},
    "Llama4ForCausalLM": {"intermediate_size_mlp": 64, "num_hidden_layers": 4},
    "MambaForCausalLM": {"state_size": 8, "expand": 2},
    "FalconMambaForCausalLM": {"state_size": 8, "expand": 2, "time_step_rank": 4},
    "JambaForCausalLM": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_expand": 2,
    },
    "Mamba2ForCausalLM": {
        "num_heads": 4, "state_size": 8, "n_groups": 2, "chunk_size": 4, "expand": 2,
    },
    "InternLM2ForCausalLM": {"bias": False},
    "Rwkv6ForCausalLM": {"head_size": 16, "context_length": 64},
    "RWKV7ForCausalLM": {
        "norm_eps": 4e-5, "decay_low_rank_dim": 8, "a_low_rank_dim": 8, "v_low_rank_dim": 8,
        "gate_low_rank_dim": 8,
    },
    "QWenLMHeadModel": {"seq_length": 64},
    "Dots1ForCausalLM": {"n_shared_experts": 1},
    "Lfm2ForCausalLM": {"layer_types": ["conv", "full_attention"]},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1,
                           "norm_topk_prob": True},
    "FalconH1ForCausalLM": {
        **_MAMBA, "mamba_d_ssm": 64, "key_multiplier": 0.5, "lm_head_multiplier": 2.0,
    },
    "Gemma3TextModel": {"use_bidirectional_attention": True},
    "DeepseekV32ForCausalLM": {
        "n_routed_experts": 4, "num_local_experts": 4, "n_group": 2, "topk_group": 1,
        "num_key_value_heads": 2, "head_dim": 8,
        "index_topk": 32, "index_n_heads": 2, "index_head_dim": 16,
    },
    "GlmMoeDsaForCausalLM": {
        "num_key_value_heads": 2, "index_topk": 32, "index_n_heads": 2, "index_head_dim": 16,
    },
    "KimiLinearForCausalLM": {
        "num_key_value_heads": 2, "n_shared_experts": 1, "linear_attn_config": {
            "full_attn_layers": [2], "kda_layers": [1], "head_dim": 8, "num_heads": 2,
            "short_conv_kernel_size": 4,
        }, "q_lora_rank": None,
    },
    "Gemma3nForCausalLM": {"layer_types": ["sliding_attention", "full_attention"]},
    "Gemma4ForCausalLM": {"layer_types": ["sliding_attention", "full_attention"]},
    "Gemma4UnifiedForCausalLM": {"layer_types": ["sliding_attention", "full_attention"]},
    "Ministral3ForCausalLM": {
        "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
            "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
        }
    },
    "Phi3ForCausalLM": {
        "original_max_position_embeddings": 16, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        },
    },
}  # fmt: skip


def classes() -> list[str]:
    """Return every class of every family that stands for itself."""
    return [name for family in families() for name in family.classes]


def wrappers() -> list[str]:
    """Return every class of every family that has a language model and another network."""
    return [name for family in families() for name in family.wrappers]


def configuration(class_name: str, vocab_size: int) -> Json:
    """Return config.json's object of a small model of the class."""
    family = next(f for f in families() if class_name in (*f.classes, *f.wrappers))
    values = _CONFIG | deepcopy(BY_CLASS.get(class_name, {}))
    activation = {family.activation: family.activations[0]}
    sizes = {"vocab_size": vocab_size, "vocab_size_per_layer_input": vocab_size}
    named, values = {"architectures": [class_name]}, {**values, **activation, **sizes}
    if class_name in family.classes:
        return named | values
    projector = {"projector_hidden_size": 32, "out_hidden_size": 32}
    return {**named, **projector, "text_config": values, "vision_config": deepcopy(_VISION)}


class _Everything(dict[str, str]):
    """The names of a checkpoint with every optional tensor."""

    def __contains__(self, name: object) -> bool:
        return True


def stored_tensors(values: Json, form: int = 0) -> Iterator[tuple[str, Shape, bool]]:
    """Name and shape of each tensor that the checkpoint of a configuration has; True: bytes.

    ``form``: which of the forms of a tensor, counted over again where there are fewer.
    """
    model = read_model(values, "config.json")
    found: dict[str, tuple[Stored, list[Shape]]] = {}
    tensors = list(_tensors(model))
    usual = {
        name for source, _, row, shape in tensors for name in names_of(row.forms[0], source, shape)
    }
    for source, _, entry, shape in tensors:
        chosen = entry.forms[form % len(entry.forms)]
        names = names_of(chosen, source, shape)
        if chosen is not entry.forms[0] and usual.issuperset(names):  # another row's (RWKV 7)
            chosen = entry.forms[0]
            names = names_of(chosen, source, shape)
        for name in names:
            divided = "{}" in chosen.names[0] or len(names) > 1
            own = shape[1:] if divided and not chosen.blocks else shape
            found.setdefault(name, (chosen, []))[1].append(own)
    for name, (chosen, shapes) in found.items():
        stored = _stored_shape(name, chosen, shapes, model)
        if chosen.blocks:
            *rows, columns = stored
            stored = (*rows, columns // BLOCK)
            stored = (*stored, BLOCK // 2) if name.endswith("_blocks") else stored
        yield name, stored, chosen.blocks
    for names in number_names(model).values():
        scalars = names[0].endswith((".beta", ".eps"))
        yield from ((name, () if scalars else (1,), False) for name in names)
    if model.tied is not True:
        yield "lm_head.weight", (model.config.vocab_size, model.config.hidden_size), False


def _stored_shape(name: str, form: Stored, shapes: list[Shape], model: HFModel) -> Shape:
    """The shape of a checkpoint's tensor of which a model's tensors of these shapes are taken."""
    *_, last = shapes
    total = sum(map(prod, shapes))
    if "position_embeddings" in name:
        return model.config.context_length, model.config.hidden_size
    if "token_type_embeddings" in name:
        return model.values.size("type_vocab_size", "num_layers", 2), model.config.hidden_size
    if name.endswith(("conv1d.weight", "conv.conv.weight")):
        return total // last[-1], 1, last[-1]
    if name.endswith("self_attn.A_log"):
        return 1, 1, total, 1
    if name.endswith(("A_log", ".D", "norm.weight", ".dt_bias")) and form.views != (as_it_is,):
        return (total,)
    if "kv_b_proj" in name:
        return total // last[-1], last[-1]
    if name.endswith("_bias") and len(last) == 2:
        return last[0], total // last[0]
    if name.endswith("moe_statics.e_score_correction_bias"):
        return 1, *last
    if len(last) == 1:
        return last
    *stack, _, columns = last
    matrix = total // prod(stack) // columns, columns
    return (*stack, *(matrix[::-1] if form.turned else matrix))


def description(values: Json) -> str:
    """Return everything that a configuration says of a model; equal ones compute the same."""
    model = read_model(values, "config.json")
    tensors = [
        (source, name, shape, entry.permuted, entry.factors, [form.names for form in entry.forms])
        for source, name, entry, shape in _tensors(model)
    ]
    metadata = {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in model_metadata(model, "x").items()
    }
    rest = model.config, model.rope, model.tied, model.ternary, model.values.source
    factors = {name: found.tolist() for name, found in model.rope_factors().items()}
    head_factor = model.family.head_factor(model.values)
    return repr((rest, metadata, tensors, factors, head_factor))


def _tensors(model: HFModel) -> Iterator[tuple[str, str, TableRow, Shape]]:
    """Of the ends and the layers: what is before the name in a checkpoint, and the name here."""
    for group, named in CheckpointLayout(model, _Everything()).groups():
        if not group.prefix or group.layer >= 0:
            for name, (entry, shape) in named.items():
                yield group.source, name, entry, shape
