"""The range of every number of a configuration, whichever file it comes from.

The largest values are several times those of any published model. A file pays for a dimension with
rows of its tensors, but for a product of two, or for a layer's share of the cache, with less than
it costs: so these are bounded too. The smallest ones keep quotients and logarithms finite.
"""

from __future__ import annotations

MAX_QUERY_WIDTH = 1 << 18  # num_heads * head_dim; Llama 405B has 16,384
MAX_CACHED_HEADS = 1 << 14  # num_layers * num_kv_heads: each is two places of the cache

# Whole numbers, from 1 where not said otherwise.
LARGEST_INTEGERS = {
    "hidden_size": 1 << 18,
    "intermediate_size": 1 << 20,
    "num_layers": 1 << 10,
    "num_heads": 1 << 12,
    "num_kv_heads": 1 << 12,
    "head_dim": 1 << 16,
    "value_dim": 1 << 16,
    "vocab_size": 1 << 19,
    "context_length": (1 << 31) - 1,
    "sliding_window": (1 << 32) - 1,
    "rope_dim": 1 << 16,
    "rope_original_context": (1 << 31) - 1,
}
# Real numbers: smallest and largest, both included.
REAL_RANGES = {
    "rms_norm_eps": (1e-30, 0.1),
    "rope_theta": (1.0, 1e15),
    "rope_factor": (1e-3, 1e6),
    "rope_attn_factor": (1e-6, 1e6),
    "yarn_ext_factor": (1e-6, 1e6),
    "yarn_beta_fast": (1e-6, 1e6),
    "yarn_beta_slow": (1e-6, 1e6),
}
# YaRN divides by the logarithm of the base.
SMALLEST_YARN_THETA = 1.001
