"""A Hugging Face configuration in GGUF's keys, which are the canonical ones.

With these keys and the tensors' shapes, ``config_from_metadata`` gives the ModelConfig, as it does
for a GGUF file. Source: llama.cpp's convert_hf_to_gguf.py.
"""

from __future__ import annotations

from trinity.formats.hf_config import HFConfig


def model_metadata(config: HFConfig, architecture: str, name: str) -> dict[str, object]:
    """The model's keys, without those of its tokenizer; ``name`` is general.name."""
    keys: dict[str, object] = {
        "block_count": config.num_layers,
        "context_length": usable_context(config),
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": config.rope_theta,
        "vocab_size": config.vocab_size,
    }
    if config.linear_rope_factor != 1.0:
        keys["rope.scaling.type"] = "linear"
        keys["rope.scaling.factor"] = config.linear_rope_factor
    general = {"general.architecture": architecture, "general.name": name}
    return general | {f"{architecture}.{key}": value for key, value in keys.items()}


def usable_context(config: HFConfig) -> int:
    """The context within which full attention is what the model was trained with, in tokens.

    GGUF's llama has no sliding window; up to the window's length the two are the same.
    """
    return config.sliding_window or config.context_length
