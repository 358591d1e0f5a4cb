"""Small files that would use much memory: models of zeros, and extreme values of keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from tests.tiny_models import sentencepiece_vocabulary
from trinity.formats.gguf_types import tensor_nbytes
from trinity.formats.gguf_writer import GGUFWriter


def write_crafted_model(
    path: Path,
    *,
    type: str = "I2_S",
    hidden_size: int = 128,
    intermediate_size: int = 128,
    num_layers: int = 1,
    num_heads: int = 1,
    num_kv_heads: int = 1,
    head_dim: int = 64,
    context_length: int = 4096,
    vocabulary: Mapping[str, object] | None = None,
    metadata: Mapping[str, object] | None = None,
    without: Collection[str] = (),
) -> None:
    """Write a llama of these sizes. ``without``: tensors to leave out, such as "attn_q"."""
    tokens, scores, types = sentencepiece_vocabulary()
    if vocabulary is None:
        vocabulary = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": np.array(scores, np.float32),
            "tokenizer.ggml.token_type": np.array(types, np.int32),
        }
    keys: dict[str, object] = {
        "general.architecture": "llama",
        "llama.context_length": context_length,
        "llama.embedding_length": hidden_size,
        "llama.block_count": num_layers,
        "llama.feed_forward_length": intermediate_size,
        "llama.attention.head_count": num_heads,
        "llama.attention.head_count_kv": num_kv_heads,
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": head_dim,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    query, kv = num_heads * head_dim, num_kv_heads * head_dim
    size = len(vocabulary["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    shapes = {"token_embd.weight": ("F16", (size, hidden_size))}
    shapes["output_norm.weight"] = "F32", (hidden_size,)
    linears = {
        "attn_q": (query, hidden_size), "attn_k": (kv, hidden_size), "attn_v": (kv, hidden_size),
        "attn_output": (hidden_size, query), "ffn_gate": (intermediate_size, hidden_size),
        "ffn_up": (intermediate_size, hidden_size), "ffn_down": (hidden_size, intermediate_size),
    }  # fmt: skip
    for layer in range(num_layers):
        for name in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{layer}.{name}.weight"] = "F32", (hidden_size,)
        for name, shape in linears.items():
            if name not in without:
                shapes[f"blk.{layer}.{name}.weight"] = type, shape
    with GGUFWriter(path) as writer:
        for key, value in (keys | dict(vocabulary) | dict(metadata or {})).items():
            writer.add(key, value)
        for name, (kind, shape) in shapes.items():
            nbytes = tensor_nbytes(kind, shape[::-1])
            assert nbytes is not None
            data = np.zeros(nbytes, np.uint8)
            if kind == "I2_S":
                data[-32:-28] = np.array([1], "<f4").view(np.uint8)
            writer.add_tensor(name, shape, kind, data)
