"""The range of every number of a configuration, whichever file it comes from.

The largest values are several times those of any published model. A file pays for a dimension with
rows of its tensors, but for a product of two, or for a layer's share of the cache, with less than
it costs: so these are bounded too. The smallest ones keep quotients and logarithms finite.
"""

from __future__ import annotations

MAX_QUERY_WIDTH = 1 << 18  # num_heads * head_dim; Llama 405B has 16,384
MAX_CACHED_HEADS = 1 << 14  # num_layers * num_kv_heads: each is two places of the cache
MAX_STATE_VALUES = 1 << 24  # ssm_inner_size * ssm_state_size; Nemotron-H 56B has 2 ** 22
MAX_LAYER_INPUTS = 1 << 18  # num_layers * per_layer_input_size; Gemma 4 E4B has 10,752

# Whole numbers, from 1 where not said otherwise.
LARGEST_INTEGERS = {
    "hidden_size": 1 << 18,
    "intermediate_size": 1 << 20,
    "num_layers": 1 << 9,
    "num_heads": 1 << 12,
    "num_kv_heads": 1 << 12,
    "head_dim": 1 << 16,
    "value_dim": 1 << 16,
    "head_dim_swa": 1 << 16,
    "value_dim_swa": 1 << 16,
    "vocab_size": 1 << 19,
    "context_length": (1 << 31) - 1,
    "sliding_window": (1 << 31) - 1,
    "sliding_window_pattern": 1 << 10,
    "rope_dim": 1 << 16,
    "rope_dim_swa": 1 << 16,
    "rope_original_context": (1 << 31) - 1,
    "shared_kv_layers": 1 << 10,
    "per_layer_input_size": 1 << 14,
    "num_experts": 1 << 12,
    "num_experts_per_tok": 1 << 10,
    "expert_intermediate_size": 1 << 20,
    "shared_intermediate_size": 1 << 20,
    "num_shared_experts": 1 << 8,
    "first_dense_layers": 1 << 10,
    "expert_gating": 1 << 8,
    "num_expert_groups": 1 << 10,
    "expert_groups_used": 1 << 10,
    "q_lora_rank": 1 << 18,
    "kv_lora_rank": 1 << 16,
    "latent_key_dim": 1 << 16,
    "latent_value_dim": 1 << 16,
    "ssm_conv_kernel": 1 << 8,
    "short_conv_kernel": 1 << 8,
    "ssm_inner_size": 1 << 18,
    "ssm_state_size": 1 << 16,
    "ssm_expand": 1 << 8,
    "ssm_num_groups": 1 << 12,
    "ssm_num_heads": 1 << 14,
    "full_attention_interval": 1 << 10,
    "nextn_layers": 1 << 5,
}
# Real numbers: smallest and largest, both included.
REAL_RANGES = {
    "rms_norm_eps": (1e-30, 0.1),
    "rope_theta": (1.0, 1e15),
    "rope_theta_swa": (1.0, 1e15),
    "rope_factor": (1e-3, 1e6),
    "frequency_factor": (1e-3, 1e31),  # 1e30 for pairs that do not turn (Gemma 4)
    "rope_attn_factor": (1e-6, 1e6),
    "yarn_ext_factor": (1e-6, 1e6),
    "yarn_beta_fast": (1e-6, 1e6),
    "yarn_beta_slow": (1e-6, 1e6),
    "yarn_log_multiplier": (1e-6, 1e3),
    "attention_scale": (1e-6, 1e6),
    "attn_logit_softcap": (1e-3, 1e6),
    "final_logit_softcap": (1e-3, 1e6),
    "embedding_scale": (1e-6, 1e6),
    "residual_scale": (1e-6, 1e6),
    "logit_scale": (1e-6, 1e6),
    "temperature_scale": (1e-6, 1e3),
    "expert_scale": (1e-6, 1e6),
    "multiplier": (1e-9, 1e6),
}
# YaRN divides by the logarithm of the base.
SMALLEST_YARN_THETA = 1.001
