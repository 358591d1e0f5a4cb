"""The configurations of small language models within classes that have other networks, too."""

from __future__ import annotations

from typing import Any

from tests.formats.huggingface.config_parts import COMMON, VISION, WITHIN

MINICPM_V: dict[str, Any] = WITHIN | {
    "model_type": "qwen3_5_text", "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "layer_types": ["linear_attention", "full_attention"], "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "tie_word_embeddings": True, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0],
        "mrope_interleaved": True, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
KIMI: dict[str, Any] = WITHIN | {
    "model_type": "deepseek_v3", "num_hidden_layers": 3, "num_key_value_heads": 4,
    "q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 20, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": True, "routed_scaling_factor": 2.446, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}  # fmt: skip
VISION_CONFIGS: dict[str, dict[str, Any]] = {
    "exaone4_5": {
        "architectures": ["Exaone4_5_ForConditionalGeneration"], "model_type": "exaone4_5",
        "tie_word_embeddings": False, "vision_config": VISION | {
            "fullatt_block_indexes": [0], "num_key_value_heads": 1,
        },
        "text_config": WITHIN | {
            "model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 6,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "hidden_act": "silu",
        },
    },
    "glm4v": {
        "architectures": ["Glm4vForConditionalGeneration"], "model_type": "glm4v",
        "tie_word_embeddings": False, "vision_config": VISION,
        "text_config": WITHIN | {
            "model_type": "glm4v_text", "hidden_act": "silu", "partial_rotary_factor": 0.5,
            "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]},
        },
    },
    "glm_ocr": {
        "architectures": ["GlmOcrForConditionalGeneration"], "model_type": "glm_ocr",
        "tie_word_embeddings": False, "vision_config": VISION,
        "text_config": WITHIN | {
            "model_type": "glm_ocr_text", "hidden_act": "silu", "head_dim": 24,
            "rope_parameters": {
                "rope_type": "default", "mrope_section": [4, 4, 4], "rope_theta": 1e4,
                "partial_rotary_factor": 1.0,
            },
        },
    },
    "glm4v_moe": {
        "architectures": ["Glm4vMoeForConditionalGeneration"], "model_type": "glm4v_moe",
        "tie_word_embeddings": False, "vision_config": VISION,
        "text_config": WITHIN | {
            "model_type": "glm4v_moe_text", "hidden_act": "silu", "num_hidden_layers": 3,
            "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
            "n_shared_experts": 1, "routed_scaling_factor": 1.5, "partial_rotary_factor": 0.5,
            "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]},
        },
    },
    "paddleocr": {
        "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl",
        "tie_word_embeddings": True, "vision_config": VISION | {"num_attention_heads": 2},
        "text_config": WITHIN | {
            "model_type": "paddleocr_vl_text", "hidden_act": "silu", "head_dim": 24,
            "rope_parameters": {
                "rope_type": "default", "mrope_section": [4, 4, 4], "rope_theta": 5e5,
            },
        },
    },
    "kimi_vl": {
        "architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl",
        "vision_config": {"model_type": "moonvit", "num_hidden_layers": 1},
        "text_config": KIMI,
    },
    "voxtral": {
        "architectures": ["VoxtralForConditionalGeneration"], "model_type": "voxtral",
        "audio_config": {"model_type": "voxtral_encoder", "num_hidden_layers": 1},
        "text_config": WITHIN | {
            "model_type": "llama", "head_dim": 24, "hidden_act": "silu", "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
    },
    "phi4_vision": COMMON | {
        "architectures": ["Phi4ForCausalLMV"], "model_type": "phi4-siglip", "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "original_max_position_embeddings": 128, "sliding_window": None,
        "vision_config": {"hidden_size": 32, "num_hidden_layers": 1},
    },
    "minicpm_v4_6": {
        "architectures": ["MiniCPMV4_6ForConditionalGeneration"], "model_type": "minicpmv4_6",
        "tie_word_embeddings": True, "vision_config": {"num_hidden_layers": 1},
        "text_config": MINICPM_V,
    },
    "dots_ocr": COMMON | {
        "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr", "hidden_act": "silu",
        "attention_bias": True, "rms_norm_eps": 1e-6, "use_sliding_window": False,
        "vision_config": {"embed_dim": 32, "num_hidden_layers": 1},
    },
    "step_vl": {
        "architectures": ["StepVLForConditionalGeneration"], "model_type": "step_robotics",
        "vision_config": {"width": 32, "layers": 1},
        "text_config": WITHIN | {
            "model_type": "qwen3", "head_dim": 24, "hidden_act": "silu", "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False,
        },
    },
}  # fmt: skip
