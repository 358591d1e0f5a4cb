"""What llama.cpp's loader reads of the models of class_configs.py beside the usual keys."""

from __future__ import annotations

from typing import Any

KEYS: dict[str, dict[str, Any]] = {
    "arcee": {"rope.dimension_count": 24, "attention.key_length": 24},
    "arcee_yarn": {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 20.0,
        "rope.scaling.original_context_length": 32,
    },
    "gptneox": {
        "use_parallel_residual": True, "rope.dimension_count": 4,
        "attention.layer_norm_epsilon": 1e-5,
    },
    "gptneox_in_turn": {"use_parallel_residual": False},
    "olmoe": {"expert_count": 8, "expert_used_count": 3, "feed_forward_length": 32},
    "seed_oss": {"attention.key_length": 24},
    "ernie4_5": {"attention.key_length": 24, "rope.freq_base": 1e4},
    "hunyuan": {
        "rope.freq_base": 1e4 * 50 ** (24 / 22), "rope.scaling.type": "none",
        "context_length": 262144, "attention.key_length": 24,
    },
    "hunyuan_moe": {
        "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 32, "expert_shared_count": 1,
    },
    "maple": {
        "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32,
        "rope.dimension_count": 12, "attention.sliding_window": 8,
        "attention.sliding_window_pattern": [True, False, True], "swiglu_clamp_exp": [7.0] * 3,
    },
    "minicpm": {
        "embedding_scale": 12.0, "residual_scale": 1.4 / 2**0.5, "logit_scale": 2.0,
        "rope.dimension_count": 16,
    },
    "minicpm_long": {
        "rope.scaling.type": "longrope", "rope.scaling.original_context_length": 16,
    },
    "minicpm3": {
        "attention.q_lora_rank": 24, "attention.kv_lora_rank": 32, "attention.key_length": 24,
        "rope.dimension_count": 8, "attention.head_count_kv": 4,
    },
    "dots1": {
        "leading_dense_block_count": 1, "expert_feed_forward_length": 32, "expert_count": 8,
        "expert_shared_count": 2, "expert_weights_scale": 2.5, "expert_weights_norm": True,
        "expert_gating_func": 2, "expert_used_count": 3,
    },
    "qwen2_vl": {"rope.dimension_sections": [2, 3, 3, 0], "rope.freq_base": 1e4},
    "qwen2_5_vl": {
        "rope.dimension_sections": [2, 3, 3, 0], "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32,
    },
    "qwen3_vl": {"rope.dimension_sections": [4, 4, 4, 0], "n_deepstack_layers": 1},
    "qwen3_vl_moe": {
        "rope.dimension_sections": [3, 3, 2, 0], "n_deepstack_layers": 1, "expert_count": 8,
        "expert_used_count": 3, "expert_feed_forward_length": 40,
    },
    "gpt2": {"feed_forward_length": 256, "attention.layer_norm_epsilon": 1e-5},
    "falcon_7b": {"attention.head_count_kv": 1, "tensor_data_layout": "jploski"},
    "falcon_40b": {"attention.head_count_kv": 2, "feed_forward_length": 256},
    "falcon_11b": {"feed_forward_length": 96, "attention.layer_norm_epsilon": 1e-5},
    "stablelm": {"use_parallel_residual": False, "rope.dimension_count": 4},
    "stablelm_12b": {"use_parallel_residual": True, "attention.layer_norm_epsilon": 1e-5},
    "minimax_m2": {
        "rope.dimension_count": 12, "expert_feed_forward_length": 40, "expert_gating_func": 2,
    },
    "afmoe": {
        "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_norm": True,
        "expert_weights_scale": 2.826, "expert_gating_func": 2, "attention.sliding_window": 6,
    },
    "exaone_moe": {
        "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "expert_gating_func": 2, "attention.sliding_window": 6,
        "expert_shared_feed_forward_length": 40,
    },
    "ernie4_5_moe": {
        "interleave_moe_layer_step": 2, "leading_dense_block_count": 1, "expert_shared_count": 2,
        "expert_shared_feed_forward_length": 80, "expert_feed_forward_length": 40,
    },
    "mellum": {
        "attention.sliding_window": 6, "rope.freq_base": 5e5, "rope.freq_base_swa": 1e4,
        "rope.scaling.type": "yarn", "expert_feed_forward_length": 40,
        "attention.sliding_window_pattern": [True, True, True, False],
    },
    "muse_glimmer": {
        "attention.sliding_window": 6, "logit_scale": 0.19611613513818404,
        "final_logit_softcapping": 20.0,
        "attention.sliding_window_pattern": [True, True, True, False],
    },
    "glm4_moe_lite": {
        "leading_dense_block_count": 1, "expert_weights_scale": 1.8, "expert_gating_func": 2,
        "attention.kv_lora_rank": 32, "attention.q_lora_rank": 40,
    },
    "mistral4": {
        "leading_dense_block_count": 0, "expert_weights_scale": 1.5, "expert_weights_norm": True,
        "attention.kv_lora_rank": 32, "attention.q_lora_rank": 40, "rope.dimension_count": 8,
        "rope.scaling.yarn_log_multiplier": 0.1, "attention.temperature_scale": 0.1,
        "attention.temperature_length": 8,
    },
    "internlm3": {"attention.key_length": 24, "rope.dimension_count": 24},
    "llama4": {
        "interleave_moe_layer_step": 2, "expert_feed_forward_length": 40, "feed_forward_length": 96,
        "attention.sliding_window": 8,
    },
    "llama4_scout": {
        "interleave_moe_layer_step": 1, "expert_used_count": 1, "attention.sliding_window": 8192,
    },
    "gemma3n": {
        "embedding_length_per_layer_input": 16, "attention.shared_kv_layers": 2,
        "altup.num_inputs": 4, "final_logit_softcapping": 30.0, "rope.freq_base": 1e5,
        "attention.sliding_window_pattern": [True, False, True, True, False],
    },
    "kimi_linear": {
        "attention.head_count_kv": [0, 0, 0, 1], "kda.head_dim": 24, "ssm.conv_kernel": 4,
        "attention.key_length_mla": 24, "attention.value_length_mla": 24,
        "attention.kv_lora_rank": 32, "expert_gating_func": 2, "leading_dense_block_count": 1,
    },
    "deepseek_v32": {
        "attention.indexer.top_k": 64, "attention.indexer.head_count": 2, "context_length": 128,
        "attention.indexer.key_length": 64, "expert_group_count": 2,
    },
    "glm_moe_dsa": {
        "attention.indexer.top_k": 64, "attention.indexer.types": [True, False, True],
        "leading_dense_block_count": 1,
    },
    "apertus": {"feed_forward_length": 96, "rope.freq_base": 1e4},
    "mamba": {
        "ssm.time_step_rank": 4, "ssm.inner_size": 128, "ssm.dt_b_c_rms": False,
        "attention.head_count": 0,
    },
    "falcon_mamba": {"ssm.time_step_rank": 6, "ssm.dt_b_c_rms": True},
    "jamba": {
        "attention.head_count_kv": [0, 2, 0, 0], "ssm.state_size": 8, "expert_count": 8,
        "feed_forward_length": 40,
    },
    "nemotron_3_super": {"moe_latent_size": 24, "expert_feed_forward_length": 40},
    "granite_swa": {
        "attention.rope_pattern": [False, True, True, True], "rope.freq_base": 1e4,
        "attention.sliding_window": 6, "residual_scale": 0.22, "logit_scale": 8.0,
        "attention.sliding_window_pattern": [False, True, True, True],
    },
    "granitemoe_swa": {
        "expert_shared_feed_forward_length": 48, "feed_forward_length": 40, "expert_count": 8,
    },
    "cohere2_moe": {
        "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "feed_forward_length": 96, "expert_feed_forward_length": 40, "expert_shared_count": 2,
        "expert_shared_feed_forward_length": 80, "logit_scale": 0.0625,
        "attention.sliding_window_pattern": [False, True, True, False],
    },
    "cohere2_moe_softmax": {
        "leading_dense_block_count": 0, "expert_gating_func": 3,
        "attention.layer_norm_rms_epsilon": 1e-5,
    },
    "bailingmoe2": {
        "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "expert_shared_feed_forward_length": 40,
        "expert_group_count": 4, "expert_group_used_count": 2, "rope.dimension_count": 8,
    },
    "sarvam": {
        "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "expert_shared_feed_forward_length": 40,
        "expert_shared_count": 1, "rope.dimension_count": 16, "rope.freq_base": 8e6,
        "vocab_size": 258,
    },
    "sarvam_mla": {
        "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "attention.kv_lora_rank": 32, "attention.key_length": 40,
        "attention.key_length_mla": 24, "attention.value_length_mla": 24,
        "rope.scaling.type": "yarn", "rope.scaling.yarn_log_multiplier": 0.1,
    },
    "phimoe": {
        "feed_forward_length": 96, "expert_count": 8, "expert_used_count": 2,
        "attention.layer_norm_rms_epsilon": 1e-5, "attention.sliding_window": 128,
        "rope.scaling.attn_factor": 1.24, "rope.scaling.original_context_length": 128,
    },
    "phimoe_plain": {"attention.sliding_window": 6, "rope.freq_base": 1e4},
    "laguna": {
        "attention.head_count": [4, 6, 6, 6, 4], "attention.head_count_kv": 2,
        "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "expert_shared_feed_forward_length": 48,
        "attention.sliding_window": 6, "rope.dimension_count": 8, "rope.dimension_count_swa": 16,
        "rope.freq_base": 5e5, "rope.freq_base_swa": 1e4, "rope.scaling.type": "yarn",
        "rope.scaling.yarn_beta_fast": 64.0, "vocab_size": 258,
        "attention.sliding_window_pattern": [False, True, True, True, False],
    },
    "laguna_elements": {
        "attention.head_count": [4, 4, 4], "leading_dense_block_count": 2,
        "rope.dimension_count": 16, "expert_feed_forward_length": 40,
    },
    "step35": {
        "attention.head_count": [4, 6, 6, 6], "attention.head_count_kv": [2, 2, 2, 2],
        "attention.sliding_window": 6, "attention.value_length": 16, "rope.freq_base": 5e6,
        "attention.sliding_window_pattern": [False, True, True, True], "expert_count": 8,
        "expert_used_count": 3, "expert_feed_forward_length": 40, "expert_gating_func": 2,
        "expert_shared_feed_forward_length": 48, "expert_weights_scale": 3.0,
        "expert_weights_norm": True, "leading_dense_block_count": 1, "rope.freq_base_swa": 1e4,
        "swiglu_clamp_exp": [0.0, 0.0, 0.05, 0.1], "swiglu_clamp_shexp": [0.2, 0.0, 0.0, 0.1],
    },
    "exaone": {
        "rope.dimension_count": 24, "attention.key_length": 24, "block_count": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    },
    "hy_v3": {
        "leading_dense_block_count": 1, "expert_feed_forward_length": 40, "expert_count": 8,
        "expert_shared_feed_forward_length": 80, "expert_weights_norm": True,
        "expert_weights_scale": 2.826, "expert_gating_func": 2,
    },
    "olmo": {"attention.layer_norm_epsilon": 1e-5, "feed_forward_length": 96},
    "olmo_limited": {"attention.clamp_kqv": 0.3},
    "deepseek": {
        "leading_dense_block_count": 1, "expert_feed_forward_length": 40, "expert_count": 8,
        "expert_shared_count": 2, "expert_weights_scale": 1.0, "rope.dimension_count": 16,
    },
    "bailingmoe": {
        "leading_dense_block_count": 0, "expert_feed_forward_length": 40, "expert_count": 8,
        "expert_shared_count": 2, "expert_weights_scale": 1.0, "expert_weights_norm": True,
    },
    "orion": {"attention.layer_norm_epsilon": 1e-5, "context_length": 128},
    "xverse": {"rope.dimension_count": 16},
    "pangu_embedded": {"rope.dimension_count": 16, "attention.key_length": 16},
    "maincoder": {"rope.dimension_count": 24, "attention.key_length": 24},
    "jais2": {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 16},
    "chatglm": {"rope.dimension_count": 8, "rope.freq_base": 1e4},
    "solar_open": {
        "leading_dense_block_count": 0, "expert_weights_scale": 1.5, "expert_gating_func": 2,
        "expert_feed_forward_length": 40, "expert_shared_count": 1, "rope.dimension_count": 24,
    },
    "youtu": {
        "leading_dense_block_count": 2, "expert_feed_forward_length": 96, "expert_shared_count": 0,
        "attention.q_lora_rank": 40, "attention.kv_lora_rank": 32, "rope.dimension_count": 8,
        "attention.key_length_mla": 24, "attention.value_length_mla": 20,
    },
    "kormo": {"attention.key_length": 24},
    "iquest_coder": {"rope.dimension_count": 24},
    "smallthinker": {
        "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 40,
        "feed_forward_length": 40, "expert_gating_func": 2, "attention.sliding_window": 4096,
    },
    "smallthinker_softmax": {"expert_gating_func": 1},
    "mimo2": {
        "attention.head_count_kv": [1, 2, 2, 2], "attention.value_length": 16,
        "attention.sliding_window": 6, "attention.value_scale": 0.7, "rope.dimension_count": 8,
        "attention.sliding_window_pattern": [False, True, True, True], "rope.freq_base": 5e6,
        "rope.freq_base_swa": 1e4, "expert_feed_forward_length": 40,
    },
    "exaone4_5": {
        "attention.sliding_window": 6,
        "attention.sliding_window_pattern": [True, True, True, False],
    },
    "glm4v": {"rope.dimension_sections": [1, 1, 2, 0], "rope.dimension_count": 8},
    "glm_ocr": {"rope.dimension_sections": [4, 4, 4, 0], "rope.dimension_count": 24},
    "glm4v_moe": {
        "rope.dimension_sections": [1, 1, 2, 0], "leading_dense_block_count": 1,
        "expert_weights_scale": 1.5,
    },
    "paddleocr": {"rope.dimension_sections": [4, 4, 4, 0], "rope.freq_base": 5e5},
    "kimi_vl": {
        "attention.kv_lora_rank": 32, "leading_dense_block_count": 1, "expert_gating_func": 2,
        "expert_weights_scale": 2.446,
    },
    "voxtral": {"attention.key_length": 24},
    "phi4_vision": {"feed_forward_length": 96},
    "minicpm_v4_6": {"rope.dimension_count": 4, "full_attention_interval": 4},
    "dots_ocr": {"feed_forward_length": 96},
    "step_vl": {"attention.key_length": 24},
    "nemotron": {
        "rope.dimension_count": 8, "attention.layer_norm_epsilon": 1e-5,
        "feed_forward_length": 96,
    },
    "rwkv6": {
        "attention.head_count": 0, "feed_forward_length": 448, "wkv.head_size": 64,
        "time_mix_extra_dim": 32, "time_decay_extra_dim": 64, "context_length": 1 << 20,
        "attention.layer_norm_epsilon": 1e-5,
    },
    "rwkv7": {
        "attention.head_count": 0, "feed_forward_length": 128, "wkv.head_size": 64,
        "attention.decay_lora_rank": 8, "attention.iclr_lora_rank": 12, "context_length": 1 << 20,
        "attention.value_residual_mix_lora_rank": 10, "attention.gate_lora_rank": 16,
        "attention.layer_norm_epsilon": 1e-5,
    },
    "qwen": {
        "feed_forward_length": 192, "context_length": 128, "attention.head_count": 4,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e4,
    },
    "internlm2": {"attention.key_length": 16, "rope.dimension_count": 16},
    "mamba2": {
        "attention.head_count": 0, "feed_forward_length": 0, "ssm.inner_size": 128,
        "ssm.time_step_rank": 8, "ssm.group_count": 2, "ssm.state_size": 16, "ssm.conv_kernel": 4,
        "attention.layer_norm_rms_epsilon": 1e-5,
    },
}  # fmt: skip
