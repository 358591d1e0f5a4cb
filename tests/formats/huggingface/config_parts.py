"""Values that configurations of small models share."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "vocab_size": 258, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rope_theta": 1e4, "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257,
    "pad_token_id": None, "dtype": "float32",
}  # fmt: skip
FULL_FIRST = ["full_attention"] + ["sliding_attention"] * 3
# The text model of a class that contains a vision model, too.
WITHIN: dict[str, Any] = {
    key: value for key, value in COMMON.items() if key not in ("tie_word_embeddings", "dtype")
}
VISION: dict[str, Any] = {
    "depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32,
    "out_hidden_size": 64,
}  # fmt: skip
