"""The model's part of a GGUF file's metadata, in the order that such files have."""

from __future__ import annotations

from trinity.formats.hf_config import HFConfig
from trinity.tools.convert.encode import OUTTYPES
from trinity.tools.convert.tokenizer_keys import Keys

_TOKENIZER = (
    "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
    "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.padding_token_id", "tokenizer.chat_template",
)  # fmt: skip


def model_keys(
    config: HFConfig, architecture: str, name: str, outtype: str, tokenizer: Keys
) -> Keys:
    """All keys of the file, in order, with those of the tokenizer in their places.

    Source of the order: for bitnet Microsoft's BitNet b1.58 2B-4T file; else llama.cpp's
    convert_hf_to_gguf.py.
    """
    order = _bitnet if architecture.startswith("bitnet") else _llama
    keys = order(config, architecture, name, OUTTYPES[outtype][1], dict(tokenizer))
    keys["general.quantization_version"] = 2, "uint32"
    return keys


def _llama(config: HFConfig, arch: str, name: str, file_type: int, tokenizer: Keys) -> Keys:
    return {
        "general.architecture": (arch, None),
        "general.name": (name, None),
        f"{arch}.block_count": (config.num_layers, "uint32"),
        f"{arch}.context_length": (usable_context(config), "uint32"),
        f"{arch}.embedding_length": (config.hidden_size, "uint32"),
        f"{arch}.feed_forward_length": (config.intermediate_size, "uint32"),
        f"{arch}.attention.head_count": (config.num_heads, "uint32"),
        f"{arch}.attention.head_count_kv": (config.num_kv_heads, "uint32"),
        f"{arch}.rope.freq_base": (config.rope_theta, "float32"),
        f"{arch}.attention.layer_norm_rms_epsilon": (config.rms_norm_eps, "float32"),
        f"{arch}.attention.key_length": (config.head_dim, "uint32"),
        f"{arch}.attention.value_length": (config.head_dim, "uint32"),
        "general.file_type": (file_type, "uint32"),
        f"{arch}.vocab_size": (config.vocab_size, "uint32"),
        f"{arch}.rope.dimension_count": (config.head_dim, "uint32"),
        **_extras(config, arch),
        **_placed(tokenizer),
    }


def _bitnet(config: HFConfig, arch: str, name: str, file_type: int, tokenizer: Keys) -> Keys:
    if tokenizer["tokenizer.ggml.model"][0] == "gpt2":
        import numpy as np

        scores = np.zeros(config.vocab_size, np.float32)
        tokenizer["tokenizer.ggml.scores"] = scores, None
    add_bos = tokenizer.pop("tokenizer.ggml.add_bos_token")
    return {
        "general.architecture": (arch, None),
        "general.name": (name, None),
        f"{arch}.vocab_size": (config.vocab_size, "uint32"),
        f"{arch}.context_length": (usable_context(config), "uint32"),
        f"{arch}.embedding_length": (config.hidden_size, "uint32"),
        f"{arch}.block_count": (config.num_layers, "uint32"),
        f"{arch}.feed_forward_length": (config.intermediate_size, "uint32"),
        f"{arch}.rope.dimension_count": (config.head_dim, "uint32"),
        f"{arch}.attention.head_count": (config.num_heads, "uint32"),
        f"{arch}.attention.head_count_kv": (config.num_kv_heads, "uint32"),
        "tokenizer.ggml.add_bos_token": add_bos,
        f"{arch}.attention.layer_norm_rms_epsilon": (config.rms_norm_eps, "float32"),
        f"{arch}.rope.freq_base": (config.rope_theta, "float32"),
        "general.file_type": (file_type, "uint32"),
        **_extras(config, arch),
        **_placed(tokenizer),
    }


def usable_context(config: HFConfig) -> int:
    """The context within which full attention is what the model was trained with, in tokens.

    GGUF's llama has no sliding window; up to the window's length the two are the same.
    """
    return config.sliding_window or config.context_length


def _extras(config: HFConfig, arch: str) -> Keys:
    """Keys that only some models need."""
    keys: Keys = {}
    if config.linear_rope_factor != 1.0:
        keys[f"{arch}.rope.scaling.type"] = "linear", None
        keys[f"{arch}.rope.scaling.factor"] = config.linear_rope_factor, "float32"
    return keys


def _placed(tokenizer: Keys) -> Keys:
    """The tokenizer's keys in their usual order, others before the chat template."""
    *first, template = _TOKENIZER
    others = [key for key in tokenizer if key not in _TOKENIZER]
    return {key: tokenizer[key] for key in (*first, *others, template) if key in tokenizer}
