"""What transformers reads instead of a class that it lacks, and names in published checkpoints."""

from __future__ import annotations

from typing import Any

from tests.formats.huggingface.class_configs import CONFIGS
from tests.formats.huggingface.vision_configs import KIMI, MINICPM_V

# What transformers reads instead of a class that it lacks, and that computes the same.
_AS_GRANITE: dict[str, Any] = {
    "architectures": ["GraniteForCausalLM"], "model_type": "granite", "embedding_multiplier": 12.0,
    "residual_multiplier": 1.4 / 2**0.5, "attention_multiplier": 0.25, "logits_scaling": 2.0,
}  # fmt: skip
_AS_LLAMA: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
REFERENCES: dict[str, dict[str, Any]] = {
    "xverse": _AS_LLAMA, "iquest_coder": _AS_LLAMA, "kormo": _AS_LLAMA,
    "pangu_embedded": _AS_LLAMA | {"attention_bias": True},
    "dots_ocr": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "step_vl": CONFIGS["step_vl"]["text_config"] | {"architectures": ["Qwen3ForCausalLM"]},
    "voxtral": CONFIGS["voxtral"]["text_config"] | _AS_LLAMA,
    "phi4_vision": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"},
    "minicpm_v4_6": MINICPM_V | {"architectures": ["Qwen3_5ForCausalLM"]},
    "kimi_vl": KIMI | {"architectures": ["DeepseekV3ForCausalLM"]},
    "olmo_limited": {"architectures": ["OlmoForCausalLM"]},
    "minicpm": _AS_GRANITE, "minicpm_long": _AS_GRANITE,
    "internlm3": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "internlm2": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "exaone": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5,
        "num_hidden_layers": 2, "hidden_act": "silu",
    },
    "qwen": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "intermediate_size": 96,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
    },
    "bailingmoe2": {
        "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "use_qk_norm": True,
        "n_routed_experts": 8, "n_shared_experts": 1,
    },
    "sarvam": {"architectures": ["Glm4MoeForCausalLM"]},
    "sarvam_mla": {"architectures": ["DeepseekV3ForCausalLM"]},
    "phimoe": {"architectures": ["PhimoeForCausalLM"]},
}  # fmt: skip


# The names of a class's tensors in the class that transformers reads instead. A tensor of q, k and
# v has the rows of each one together, or those of each key head.
REFERENCE_NAMES: dict[str, dict[str, str]] = {
    "kormo": {
        "pre_attention_layernorm": "input_layernorm",
        "pre_mlp_layernorm": "post_attention_layernorm",
    },
    "kimi_vl": {"language_model.": ""},
    "voxtral": {"language_model.": ""},
    "minicpm_v4_6": {"model.language_model.": "model."},
    "exaone": {
        "transformer.h.": "model.layers.", "transformer.wte": "model.embed_tokens",
        "transformer.ln_f": "model.norm", "ln_1": "input_layernorm",
        "ln_2": "post_attention_layernorm", "attn.attention.out_proj": "self_attn.o_proj",
        "attn.attention": "self_attn", "mlp.c_fc_0": "mlp.gate_proj", "mlp.c_fc_1": "mlp.up_proj",
        "mlp.c_proj": "mlp.down_proj",
    },
    "internlm2": {
        "tok_embeddings": "embed_tokens", "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm", "attention.wo": "self_attn.o_proj",
        "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
        "feed_forward.w3": "mlp.up_proj", "attention.wqkv": "heads of q, k and v",
    },
    "qwen": {
        "transformer.h.": "model.layers.", "transformer.wte": "model.embed_tokens",
        "transformer.ln_f": "model.norm", "ln_1": "input_layernorm",
        "ln_2": "post_attention_layernorm", "mlp.w1": "mlp.up_proj", "mlp.w2": "mlp.gate_proj",
        "mlp.c_proj": "mlp.down_proj", "attn.c_proj": "self_attn.o_proj",
        "attn.c_attn": "q, k and v",
    },
    "bailingmoe2": {
        "word_embeddings": "embed_tokens", "attention.dense": "self_attn.o_proj",
        "attention.query_layernorm": "self_attn.q_norm",
        "attention.key_layernorm": "self_attn.k_norm",
        "mlp.gate.expert_bias": "mlp.gate.e_score_correction_bias",
        "attention.query_key_value": "q, k and v",
    },
}  # fmt: skip

# The beginnings of names in published checkpoints, where the family's table has others.
PUBLISHED: dict[str, dict[str, str]] = {
    "gpt_neox": {
        "model.": "gpt_neox.", "embed_in": "gpt_neox.embed_in",
        "final_layer_norm": "gpt_neox.final_layer_norm", "lm_head": "embed_out",
    },
    "qwen2_5_vl": {"model.": "model.language_model."},
    "qwen3_vl": {"model.": "model.language_model."},
    "qwen3_vl_moe": {"model.": "model.language_model."},
    "gpt2": {"model.layers.": "h."},
    "falcon": {
        "model.layers.": "transformer.h.", "word_embeddings": "transformer.word_embeddings",
        "ln_f": "transformer.ln_f",
    },
    "exaone": {"model.layers.": "transformer.h."},
    "rwkv6": {"model.layers.": "rwkv.blocks.", "lm_head": "head"},
    "qwen": {
        "model.layers.": "transformer.h.", "wte": "transformer.wte", "ln_f": "transformer.ln_f",
    },
    **{
        model_type: {"model.": "model.language_model."}
        for model_type in (
            "muse_glimmer", "exaone4_5", "glm4v", "glm_ocr", "glm4v_moe", "minicpmv4_6"
        )
    },
    **{
        model_type: {"model.": "language_model.model.", "lm_head": "language_model.lm_head"}
        for model_type in ("kimi_vl", "voxtral")
    },
    "mamba2": {"model.": "backbone."},
    "mamba": {"model.": "backbone."},
    "falcon_mamba": {"model.": "backbone."},
}  # fmt: skip
