"""The configurations of small models of transformers' classes."""

from __future__ import annotations

from typing import Any

from tests.formats.huggingface.config_parts import COMMON, FULL_FIRST, VISION, WITHIN
from tests.formats.huggingface.vision_configs import VISION_CONFIGS

_GPT_NEOX = COMMON | {
    "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_act": "gelu",
    "intermediate_size": 256, "rotary_pct": 0.25, "rotary_emb_base": 10000,
    "use_parallel_residual": True,
}  # fmt: skip
_FALCON: dict[str, Any] = {
    "architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 258, "alibi": False,
    "bias": False, "parallel_attn": True, "rope_theta": 1e4, "max_position_embeddings": 128,
    "bos_token_id": 256, "eos_token_id": 257, "dtype": "float32", "tie_word_embeddings": True,
}  # fmt: skip
_MINICPM = COMMON | {
    "architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "hidden_act": "silu",
    "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 32, "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
_GRANITE_SWA = COMMON | {
    "hidden_act": "silu", "num_hidden_layers": 4, "sliding_window": 6, "attention_multiplier": 0.2,
    "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
}  # fmt: skip
_DSA = COMMON | {
    "hidden_act": "silu",
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 40,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "head_dim": 8,
    "moe_intermediate_size": 40,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "index_topk": 64,
    "index_n_heads": 2,
    "index_head_dim": 64,
}
_MAMBA: dict[str, Any] = {
    "hidden_size": 64, "vocab_size": 258, "num_hidden_layers": 2, "state_size": 16, "expand": 2,
    "conv_kernel": 4, "tie_word_embeddings": True, "bos_token_id": 256, "eos_token_id": 257,
    "pad_token_id": None, "dtype": "float32",
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "hy_v3": COMMON | {
        "architectures": ["HYV3ForCausalLM"], "model_type": "hy_v3", "hidden_act": "silu",
        "head_dim": 16, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 3,
        "num_shared_experts": 2, "moe_intermediate_size": 40, "router_scaling_factor": 2.826,
        "first_k_dense_replace": 1, "route_norm": True, "rms_norm_eps": 1e-5,
    },
    "olmo": COMMON | {"architectures": ["OlmoForCausalLM"], "model_type": "olmo"},
    "olmo_limited": COMMON | {
        "architectures": ["OLMoForCausalLM"], "model_type": "olmo", "clip_qkv": 0.3,
        "tie_word_embeddings": True,
    },
    "deepseek": COMMON | {
        "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "hidden_act": "silu",
        "num_key_value_heads": 4, "num_hidden_layers": 3, "n_routed_experts": 8,
        "num_experts_per_tok": 3, "n_shared_experts": 2, "moe_intermediate_size": 40,
        "first_k_dense_replace": 1, "norm_topk_prob": False, "rms_norm_eps": 1e-6,
    },
    "bailingmoe": COMMON | {
        "architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe",
        "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 2,
        "moe_intermediate_size": 40, "first_k_dense_replace": 0, "norm_topk_prob": True,
        "norm_head": False, "rms_norm_eps": 1e-6,
    },
    "orion": {key: value for key, value in COMMON.items() if key != "max_position_embeddings"} | {
        "architectures": ["OrionForCausalLM"], "model_type": "orion", "hidden_act": "silu",
        "max_sequence_length": 128, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    },
    "xverse": COMMON | {
        "architectures": ["XverseForCausalLM"], "model_type": "xverse", "hidden_act": "silu",
        "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
    },
    "pangu_embedded": COMMON | {
        "architectures": ["PanguEmbeddedForCausalLM"], "model_type": "PanguEmbedded",
        "hidden_act": "silu", "bias": True, "rms_norm_eps": 1e-5,
    },
    "maincoder": COMMON | {
        "architectures": ["MaincoderForCausalLM"], "model_type": "maincoder", "head_dim": 24,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    },
    "jais2": COMMON | {
        "architectures": ["Jais2ForCausalLM"], "model_type": "jais2", "hidden_act": "relu2",
        "num_key_value_heads": 4, "layer_norm_eps": 1e-5,
    },
    "chatglm": COMMON | {
        "architectures": ["GlmForCausalLM"], "model_type": "glm", "hidden_act": "silu",
        "head_dim": 16, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
    },
    "solar_open": COMMON | {
        "architectures": ["SolarOpenForCausalLM"], "model_type": "solar_open", "head_dim": 24,
        "hidden_act": "silu", "n_routed_experts": 8, "num_experts_per_tok": 3,
        "n_shared_experts": 1, "moe_intermediate_size": 40, "routed_scaling_factor": 1.5,
        "norm_topk_prob": True, "rms_norm_eps": 1e-5,
    },
    "youtu": COMMON | {
        "architectures": ["YoutuForCausalLM"], "model_type": "youtu", "hidden_act": "silu",
        "num_key_value_heads": 4, "q_lora_rank": 40, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 20, "rope_interleave": True,
        "tie_word_embeddings": True,
    },
    "kormo": COMMON | {
        "architectures": ["KORMoForCausalLM"], "model_type": "kormo", "hidden_act": "silu",
        "head_dim": 24, "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-5,
    },
    "iquest_coder": COMMON | {
        "architectures": ["IQuestCoderForCausalLM"], "model_type": "iquestcoder",
        "hidden_act": "silu", "head_dim": 24, "clip_qkv": None, "rms_norm_eps": 1e-5,
    },
    "smallthinker": COMMON | {
        "architectures": ["SmallThinkerForCausalLM"], "model_type": "smallthinker",
        "num_hidden_layers": 5, "head_dim": 24, "moe_num_primary_experts": 8,
        "moe_num_active_primary_experts": 3, "moe_ffn_hidden_size": 40,
        "moe_primary_router_apply_softmax": False, "rope_layout": [0, 1, 1, 1, 0],
        "sliding_window_layout": [0, 1, 1, 1, 0], "sliding_window_size": 4096,
        "rms_norm_eps": 1e-6,
    },
    "smallthinker_softmax": COMMON | {
        "architectures": ["SmallThinkerForCausalLM"], "model_type": "smallthinker",
        "head_dim": 16, "moe_num_primary_experts": 8, "moe_num_active_primary_experts": 3,
        "moe_ffn_hidden_size": 40, "moe_primary_router_apply_softmax": True,
        "rope_layout": [1, 1], "sliding_window_layout": [0, 0], "rms_norm_eps": 1e-6,
    },
    "mimo2": {key: value for key, value in COMMON.items() if key != "rope_theta"} | {
        "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash",
        "hidden_act": "silu", "num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 24,
        "v_head_dim": 16, "sliding_window": 6, "attention_value_scale": 0.7,
        "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
        "layer_types": [*FULL_FIRST], "rms_norm_eps": 1e-5,
    },
    "nemotron": COMMON | {
        "architectures": ["NemotronForCausalLM"], "model_type": "nemotron", "hidden_act": "relu2",
        "norm_eps": 1e-5, "partial_rotary_factor": 0.5, "attention_bias": False, "mlp_bias": False,
        "head_dim": 16,
    },
    "exaone": {
        "architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "hidden_size": 64,
        "activation_function": "silu", "intermediate_size": 96, "vocab_size": 258, "num_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "rope_theta": 1e4,
        "layer_norm_epsilon": 1e-5, "max_position_embeddings": 128, "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        "bos_token_id": 256, "eos_token_id": 257,
    },
    "arcee": COMMON | {
        "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2",
        "head_dim": 24,
    },
    "arcee_yarn": COMMON | {  # AFM's scaling
        "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2",
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "yarn", "factor": 20.0, "original_max_position_embeddings": 32,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "rope_theta": 1e4,
        },
    },
    "gptneox": _GPT_NEOX,
    "gptneox_in_turn": _GPT_NEOX | {"use_parallel_residual": False},
    "olmoe": COMMON | {
        "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_act": "silu",
        "num_key_value_heads": 4, "intermediate_size": 32, "num_experts": 8,
        "num_experts_per_tok": 3, "norm_topk_prob": False, "rms_norm_eps": 1e-5,
    },
    "seed_oss": COMMON | {
        "architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "hidden_act": "silu",
        "head_dim": 24, "attention_bias": True, "attention_out_bias": False,
    },
    "ernie4_5": COMMON | {
        "architectures": ["Ernie4_5ForCausalLM"], "model_type": "ernie4_5", "hidden_act": "silu",
        "head_dim": 24, "use_bias": False, "tie_word_embeddings": True,
    },
    "hunyuan": COMMON | {
        "architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense",
        "hidden_act": "silu", "head_dim": 24, "attention_bias": False, "rms_norm_eps": 1e-5,
        "rope_scaling": {"alpha": 50.0, "factor": 1.0, "type": "dynamic"},
    },
    "hunyuan_moe": COMMON | {
        "architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe",
        "hidden_act": "silu", "head_dim": 16, "intermediate_size": 32, "num_experts": 8,
        "moe_topk": 3, "moe_intermediate_size": [32, 32], "num_shared_expert": [1, 1],
        "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
    },
    "maple": COMMON | {
        "architectures": ["MapleForCausalLM"], "model_type": "maple", "hidden_act": "silu",
        "num_hidden_layers": 3, "head_dim": 24, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 32, "norm_topk_prob": True, "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "nope_on_global_attention": True, "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
        },
    },
    "minicpm": _MINICPM,
    "minicpm_long": _MINICPM | {  # as in MiniCPM4
        "tie_word_embeddings": False,
        "rope_scaling": {
            "rope_type": "longrope", "original_max_position_embeddings": 16,
            "long_factor": [1 + i / 4 for i in range(8)],
            "short_factor": [1 + i / 8 for i in range(8)],
        },
    },
    "minicpm3": COMMON | {
        "architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", "hidden_act": "silu",
        "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256,
        "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
    },
    "dots1": COMMON | {
        "architectures": ["Dots1ForCausalLM"], "model_type": "dots1", "hidden_act": "silu",
        "num_key_value_heads": 4, "num_hidden_layers": 3, "moe_intermediate_size": 32,
        "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    },
    "qwen2_vl": COMMON | {  # without an inner object, as Qwen2-VL was published
        "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
        "rms_norm_eps": 1e-6, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        "vision_config": VISION | {"hidden_size": 64},
    },
    "qwen2_5_vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
        "tie_word_embeddings": True, "vision_config": VISION | {"fullatt_block_indexes": [0]},
        "text_config": WITHIN | {
            "model_type": "qwen2_5_vl_text", "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
                "mrope_section": [2, 3, 3], "rope_theta": 1e4,
            },
        },
    },
    "qwen3_vl": {
        "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
        "tie_word_embeddings": False,
        "vision_config": VISION | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        "text_config": WITHIN | {
            "model_type": "qwen3_vl_text", "head_dim": 24,
            "rope_parameters": {
                "rope_type": "default", "mrope_section": [4, 4, 4], "mrope_interleaved": True,
                "rope_theta": 1e4,
            },
        },
    },
    "qwen3_vl_moe": {
        "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
        "tie_word_embeddings": False,
        "vision_config": VISION | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        "text_config": WITHIN | {
            "model_type": "qwen3_vl_moe_text", "head_dim": 16, "tie_word_embeddings": False,
            "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
            "rope_scaling": {
                "rope_type": "default", "mrope_section": [3, 3, 2], "mrope_interleaved": True,
            },
        },
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_layer": 2,
        "n_head": 4, "n_positions": 128, "vocab_size": 258, "activation_function": "gelu_new",
        "bos_token_id": 256, "eos_token_id": 257, "dtype": "float32",
    },
    "falcon_7b": _FALCON | {"multi_query": True, "new_decoder_architecture": False},
    "falcon_40b": _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon_11b": _FALCON | {
        "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1,
        "ffn_hidden_size": 96, "tie_word_embeddings": False,
    },
    "stablelm": COMMON | {
        "architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "use_qkv_bias": True,
        "partial_rotary_factor": 0.25, "layer_norm_eps": 1e-5, "rms_norm_eps": 1e-5,
    },
    "stablelm_12b": COMMON | {
        "architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "qk_layernorm": True,
        "use_parallel_residual": True, "partial_rotary_factor": 0.5,
    },
    "minimax_m2": COMMON | {
        "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "head_dim": 24,
        "intermediate_size": 40, "num_local_experts": 8, "num_experts_per_tok": 3,
        "rotary_dim": 12, "scoring_func": "sigmoid", "use_qk_norm": True,
    },
    "afmoe": COMMON | {
        "architectures": ["AfmoeForCausalLM"], "model_type": "afmoe", "head_dim": 24,
        "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 40, "num_dense_layers": 1, "num_shared_experts": 1,
        "route_scale": 2.826, "route_norm": True, "mup_enabled": True, "sliding_window": 6,
        "global_attn_every_n_layers": 4,
    },
    "exaone_moe": COMMON | {
        "architectures": ["ExaoneMoeForCausalLM"], "model_type": "exaone_moe", "head_dim": 24,
        "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 3, "n_group": 2,
        "topk_group": 1, "moe_intermediate_size": 40, "first_k_dense_replace": 1,
        "num_shared_experts": 1, "routed_scaling_factor": 2.5, "sliding_window": 6,
        "sliding_window_pattern": "LLLG",
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "mlp_layer_types": ["dense"] + ["sparse"] * 3,
    },
    "ernie4_5_moe": COMMON | {
        "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe",
        "num_hidden_layers": 4, "moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 40,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_interval": 2,
        "tie_word_embeddings": True,
    },
    "mellum": COMMON | {
        "architectures": ["MellumForCausalLM"], "model_type": "mellum", "head_dim": 24,
        "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 40, "norm_topk_prob": True, "sliding_window": 6,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
                "rope_theta": 5e5,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "muse_glimmer": {
        "architectures": ["MuseGlimmerForConditionalGeneration"], "model_type": "muse_glimmer",
        "tie_word_embeddings": False, "out_hidden_size": 64, "projector_hidden_size": 32,
        "vision_config": {
            "num_attention_heads": 2, "num_hidden_layers": 1, "hidden_size": 32,
            "intermediate_size": 32,
        },
        "text_config": WITHIN | {
            "model_type": "muse_glimmer_text", "head_dim": 24, "num_hidden_layers": 4,
            "sliding_window": 6, "hidden_activation": "silu", "rms_norm_eps": 1e-5,
        },
    },
    "glm4_moe_lite": COMMON | {
        "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite",
        "num_hidden_layers": 3, "num_key_value_heads": 4, "q_lora_rank": 40, "kv_lora_rank": 32,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20, "rope_interleave": True,
        "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
        "n_shared_experts": 1, "routed_scaling_factor": 1.8, "norm_topk_prob": True,
        "mlp_layer_types": ["dense"] + ["sparse"] * 2,
    },
    "mistral4": COMMON | {
        "architectures": ["Mistral4ForCausalLM"], "model_type": "mistral4", "num_hidden_layers": 3,
        "num_key_value_heads": 4, "q_lora_rank": 40, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 20, "rope_interleave": True, "n_routed_experts": 8,
        "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_shared_experts": 1,
        "norm_topk_prob": True, "first_k_dense_replace": 0, "routed_scaling_factor": 1.5,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "original_max_position_embeddings": 8, "mscale": 1.0,
            "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 1 / 3,
        },
    },
    "internlm3": COMMON | {
        "architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3", "head_dim": 24,
        "rms_norm_eps": 1e-5, "qkv_bias": False, "bias": False,
        "rope_scaling": {"rope_type": "dynamic", "factor": 6.0},
    },
    "mamba2": {
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 64,
        "vocab_size": 258, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "expand": 2,
        "state_size": 16, "n_groups": 2, "conv_kernel": 4, "chunk_size": 8, "rms_norm": True,
        "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257,
        "pad_token_id": None, "dtype": "float32",
    },
    "granite_swa": _GRANITE_SWA | {
        "architectures": ["GraniteSWAForCausalLM"], "model_type": "granite_swa",
        "intermediate_size": 96, "layer_rope_theta": [0, 1e4, 1e4, 1e4],
        "tie_word_embeddings": True,
    },
    "granitemoe_swa": _GRANITE_SWA | {
        "architectures": ["GraniteMoeSWAForCausalLM"], "model_type": "granitemoe_swa",
        "intermediate_size": 40, "num_local_experts": 8, "num_experts_per_tok": 3,
        "shared_intermediate_size": 48,
    },
    "cohere2_moe": COMMON | {
        "architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe", "head_dim": 24,
        "num_hidden_layers": 4, "intermediate_size": 40, "prefix_dense_intermediate_size": 96,
        "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 2,
        "expert_selection_fn": "sigmoid", "sliding_window": 6, "first_k_dense_replace": 1,
        "sliding_window_pattern": 3, "tie_word_embeddings": True,
    },
    "cohere2_moe_softmax": COMMON | {
        "architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe", "head_dim": 24,
        "num_hidden_layers": 4, "intermediate_size": 40, "num_experts": 8,
        "num_experts_per_tok": 3, "sliding_window": 6, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "layer_types": ["full_attention"] + ["sliding_attention"] * 3,
    },
    "bailingmoe2": COMMON | {
        "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe_v2",
        "head_dim": 16, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 40, "num_shared_experts": 1, "first_k_dense_replace": 1,
        "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
        "partial_rotary_factor": 0.5, "use_qkv_bias": False, "use_bias": False,
        "score_function": "sigmoid", "rms_norm_eps": 1e-6,
    },
    "sarvam": COMMON | {
        "architectures": ["modeling_sarvam_moe.SarvamMoEForCausalLM"], "model_type": "sarvam_moe",
        "head_dim": 16, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 40, "num_shared_experts": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.5, "norm_topk_prob": True, "use_qkv_bias": False,
        "rope_theta": 8e6, "rms_norm_eps": 1e-6,
    },
    "sarvam_mla": COMMON | {
        "architectures": ["SarvamMLAForCausalLM"], "model_type": "sarvam_mla",
        "num_hidden_layers": 3, "num_key_value_heads": 4, "head_dim": 40, "q_head_dim": 24,
        "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 24,
        "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
        "num_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
        "norm_topk_prob": True, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_scaling": {
            "type": "deepseek_yarn", "factor": 40.0, "original_max_position_embeddings": 16,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    },
    "phimoe": COMMON | {
        "architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe", "num_local_experts": 8,
        "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True,
        "rms_norm_eps": 1e-5, "router_jitter_noise": 0.01, "sliding_window": 128,
        "original_max_position_embeddings": 128, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
            "long_factor": [2.0] * 8, "short_mscale": 1.24, "long_mscale": 1.24,
            "original_max_position_embeddings": 128,
        },
    },
    "phimoe_plain": COMMON | {
        "architectures": ["PhimoeForCausalLM"], "model_type": "phimoe", "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 6, "tie_word_embeddings": True,
    },
    "laguna": COMMON | {
        "architectures": ["LagunaForCausalLM"], "model_type": "laguna", "head_dim": 16,
        "num_hidden_layers": 5, "num_attention_heads_per_layer": [4, 6, 6, 6, 4],
        "layer_types": [*FULL_FIRST, "full_attention"], "sliding_window": 6, "gating": True,
        "mlp_layer_types": ["dense"] + ["sparse"] * 4, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 40, "shared_expert_intermediate_size": 48,
        "moe_routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6, "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 5e5, "factor": 32.0, "beta_fast": 64.0,
                "beta_slow": 1.0, "original_max_position_embeddings": 16, "attention_factor": 1.0,
                "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {
                "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0,
            },
        },
    },
    "laguna_elements": COMMON | {
        "architectures": ["LagunaForCausalLM"], "model_type": "laguna", "head_dim": 16,
        "num_hidden_layers": 3, "gating": "per-element", "gating_types": ["per_element"] * 3,
        "mlp_layer_types": ["dense", "dense", "sparse"], "num_experts": 8,
        "num_experts_per_tok": 3, "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 40, "moe_routed_scaling_factor": 1.0,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0,
                "original_max_position_embeddings": 32, "partial_rotary_factor": 1.0,
            },
        },
    },
    "step35": {key: value for key, value in COMMON.items() if key != "num_key_value_heads"} | {
        "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "head_dim": 16,
        "num_hidden_layers": 4, "num_nextn_predict_layers": 1, "num_attention_groups": 2,
        "layer_types": [*FULL_FIRST, "sliding_attention"],
        "attention_other_setting": {
            "attention_type": "sliding_attention", "num_attention_heads": 6,
            "num_attention_groups": 2, "head_dim": 16, "true_head_dim": 16,
        },
        "sliding_window": 6, "rope_theta": [5e6, 1e4, 1e4, 1e4, 1e4],
        "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0, 1.0], "yarn_only_types": ["full_attention"],
        "rope_scaling": {
            "rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 16,
            "low_freq_factor": 1.0, "high_freq_factor": 32.0,
        },
        "moe_layers_enum": "1,2,3", "moe_num_experts": 8, "moe_top_k": 3,
        "moe_intermediate_size": 40, "share_expert_dim": 48, "moe_router_scaling_factor": 3.0,
        "norm_expert_weight": True, "moe_router_activation": "sigmoid", "use_moe_router_bias": True,
        "use_qk_norm": True, "use_head_wise_attn_gate": True, "zero_centered": True, "sink": False,
        "use_rope_layers": [], "pad_token_id": 1, "swiglu_limits": [0.0, 0.0, 0.05, 0.1, 0.0],
        "swiglu_limits_shared": [0.2, 0.0, 0.0, 0.1, 0.0], "rms_norm_eps": 1e-5,
    },
    "internlm2": COMMON | {
        "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False,
        "rms_norm_eps": 1e-5, "rope_scaling": {"type": "dynamic", "factor": 2.0},
    },
    "qwen": {
        "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 64,
        "intermediate_size": 192, "vocab_size": 258, "num_hidden_layers": 2, "kv_channels": 16,
        "num_attention_heads": 4, "max_position_embeddings": 256, "seq_length": 128,
        "layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000, "rotary_pct": 1.0, "no_bias": True,
        "scale_attn_weights": True, "use_dynamic_ntk": True, "use_logn_attn": True,
        "tie_word_embeddings": False, "onnx_safe": None, "bos_token_id": 256, "eos_token_id": 257,
    },
    "mamba": _MAMBA | {"architectures": ["MambaForCausalLM"], "model_type": "mamba"},
    "falcon_mamba": _MAMBA | {
        "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba",
        "time_step_rank": 6, "tie_word_embeddings": False,
    },
    "apertus": COMMON | {
        "architectures": ["ApertusForCausalLM"], "model_type": "apertus", "hidden_act": "xielu",
        "rms_norm_eps": 1e-5, "attention_bias": False,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
        },
    },
    "llama4": COMMON | {
        "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "hidden_act": "silu",
        "num_hidden_layers": 4, "head_dim": 16, "intermediate_size": 40,
        "intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 2,
        "interleave_moe_layer_step": 2, "attention_chunk_size": 8, "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
            "original_max_position_embeddings": 32,
        },
    },
    "llama4_scout": COMMON | {
        "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "hidden_act": "silu",
        "num_hidden_layers": 4, "head_dim": 16, "intermediate_size": 40,
        "intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 1,
        "rms_norm_eps": 1e-5, "attention_chunk_size": 8192,
    },
    "gemma3n": COMMON | {
        "architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text",
        "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 5, "head_dim": 16,
        "intermediate_size": [96] * 5, "num_kv_shared_layers": 2, "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"] * 1
        + ["sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.9, 0.5, 0.0, 0.0, 0.0], "tie_word_embeddings": True,
        "vocab_size_per_layer_input": 256, "hidden_size_per_layer_input": 16,
        "altup_correct_scale": True, "rms_norm_eps": 1e-6, "rope_theta": 1e5,
    },
    "kimi_linear": COMMON | {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
        "hidden_act": "silu", "num_hidden_layers": 4, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
        "v_head_dim": 24, "moe_intermediate_size": 40, "num_experts": 8,
        "num_experts_per_token": 3, "num_shared_experts": 1, "first_k_dense_replace": 1,
        "moe_renormalize": True, "routed_scaling_factor": 2.446, "head_dim": 16,
        "linear_attn_config": {
            "full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 24, "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
    },
    "deepseek_v32": _DSA | {
        "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
        "n_group": 2, "topk_group": 1,
    },
    "glm_moe_dsa": _DSA | {
        "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
        "indexer_types": ["full", "shared", "full"], "n_group": 1, "topk_group": 1,
    },
    "jamba": COMMON | {
        "architectures": ["JambaForCausalLM"], "model_type": "jamba", "num_hidden_layers": 4,
        "attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 2,
        "expert_layer_offset": 1, "num_experts": 8, "num_experts_per_tok": 3,
        "mamba_d_state": 8, "mamba_dt_rank": 6, "intermediate_size": 40,
    },
    "rwkv7": {
        "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "hidden_size": 128,
        "hidden_act": "sqrelu", "hidden_ratio": 1.0, "intermediate_size": None, "vocab_size": 258,
        "num_hidden_layers": 3, "head_dim": 64, "num_heads": None, "norm_eps": 1e-5,
        "norm_bias": True, "norm_first": True, "attn": None, "fuse_norm": False,
        "decay_low_rank_dim": 8, "a_low_rank_dim": 12, "v_low_rank_dim": 10,
        "gate_low_rank_dim": 16, "max_position_embeddings": 2048, "tie_word_embeddings": False,
        "bos_token_id": 256, "eos_token_id": 257,
    },
    "rwkv6": {
        "architectures": ["Rwkv6ForCausalLM"], "model_type": "rwkv6", "hidden_size": 128,
        "attention_hidden_size": 128, "intermediate_size": None, "vocab_size": 258,
        "num_hidden_layers": 3, "head_size": 64, "head_size_divisor": 8, "rescale_every": 2,
        "layer_norm_epsilon": 1e-5, "context_length": 4096, "tie_word_embeddings": False,
        "bos_token_id": 256, "eos_token_id": 257,
    },
    "nemotron_3_super": COMMON | {
        "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "head_dim": 16,
        "num_hidden_layers": 3, "layers_block_type": ["mamba", "moe", "attention"],
        "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2,
        "conv_kernel": 4, "chunk_size": 8, "mlp_hidden_act": "relu2", "n_routed_experts": 8,
        "num_experts_per_tok": 3, "moe_intermediate_size": 40, "moe_latent_size": 24,
        "moe_shared_expert_intermediate_size": 48, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
    },
    **VISION_CONFIGS,
}  # fmt: skip
