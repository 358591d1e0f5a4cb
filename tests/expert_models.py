"""Writes small Mixtral-like models: a llama whose feed-forward is a mixture of experts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.tiny_models import encoded, sentencepiece_vocabulary
from trinity.formats.gguf_writer import GGUFWriter
from trinity_kernels.quants import TYPES

EXPERTS, PER_TOKEN, HEADS, KV_HEADS, LAYERS = 6, 2, 4, 2, 2
# A tensor of all experts, one for gate and up together, or tensors of each expert.
Layout = Literal["stacked", "fused", "each"]
Floats = NDArray[np.float32]


def keys(hidden: int, size: int) -> dict[str, object]:
    """The metadata of the model."""
    tokens, scores, types = sentencepiece_vocabulary()
    return {
        "general.architecture": "llama", "llama.vocab_size": len(tokens),
        "llama.context_length": 1024, "llama.embedding_length": hidden,
        "llama.block_count": LAYERS, "llama.feed_forward_length": size,
        "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.expert_count": EXPERTS,
        "llama.expert_used_count": PER_TOKEN, "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip


def tensors(hidden: int, size: int, ternary: bool, seed: int = 0) -> dict[str, Floats]:
    """Return all tensors, with stacked experts.

    The first features of a token's embedding rank the experts, and the router reads little else. So
    scores are far apart and no rounding changes a choice. Norms give the other features unit size
    and make these features small for all other tensors.
    """
    rng = np.random.default_rng(seed)
    head_dim = hidden // HEADS
    vocabulary = len(sentencepiece_vocabulary()[0])

    def linear(*shape: int) -> Floats:
        values = rng.standard_normal(shape)
        if ternary:
            values = rng.integers(-1, 2, shape) * np.float16(np.sqrt(1.5))
        return (values * np.float16(shape[-1] ** -0.5)).astype(np.float32)

    embedding = rng.standard_normal((vocabulary, hidden)).astype(np.float32)
    ranks = np.tile(np.arange(1, EXPERTS + 1), (vocabulary, 1))
    embedding[:, :EXPERTS] = 4 * rng.permuted(ranks, axis=1)
    norm = np.full(hidden, np.sqrt(np.square(embedding).mean()), np.float32)
    norm[:EXPERTS] /= 64

    def router() -> Floats:
        values = rng.standard_normal((EXPERTS, hidden)) / 128
        values[:, :EXPERTS] += 8 * np.eye(EXPERTS)
        return values.astype(np.float32)

    found = {"token_embd.weight": embedding, "output_norm.weight": norm}
    for layer in range(LAYERS):
        found |= {
            f"blk.{layer}.{name}": values
            for name, values in {
                "attn_norm.weight": norm,
                "ffn_norm.weight": norm,
                "attn_q.weight": linear(HEADS * head_dim, hidden),
                "attn_k.weight": linear(KV_HEADS * head_dim, hidden),
                "attn_v.weight": linear(KV_HEADS * head_dim, hidden),
                "attn_output.weight": linear(hidden, HEADS * head_dim),
                "ffn_gate_inp.weight": router(),
                "ffn_gate_exps.weight": linear(EXPERTS, size, hidden),
                "ffn_up_exps.weight": linear(EXPERTS, size, hidden),
                "ffn_down_exps.weight": linear(EXPERTS, hidden, size),
            }.items()
        }
    return found


def laid_out(found: Mapping[str, Floats], layout: Layout) -> dict[str, Floats]:
    """Return the tensors as a file of that layout stores them."""
    result: dict[str, Floats] = {}
    for name, values in found.items():
        if "_exps." not in name or layout == "stacked":
            result[name] = values
        elif layout == "each":
            for expert, one in enumerate(values):
                result[name.replace("_exps.", f".{expert}.")] = one
        elif "ffn_down" in name:
            result[name] = values
        elif "ffn_gate" in name:
            up = found[name.replace("ffn_gate", "ffn_up")]
            fused = name.replace("ffn_gate", "ffn_gate_up")
            result[fused] = np.concatenate([values, up], axis=1)
    return result


def write_expert_model(
    path: str | os.PathLike[str], *, type: str = "F32", layout: Layout = "stacked", seed: int = 0,
    hidden: int | None = None, size: int | None = None,
    metadata: Mapping[str, object] | None = None, more: Mapping[str, Floats] | None = None,
) -> None:  # fmt: skip
    """Write the model, with the layers' linears except the router in ``type``.

    Sizes default to one or two blocks of the type. ``metadata`` and ``more`` (F32 tensors) are
    added and replace those of the same name.
    """
    block = TYPES[type].block_size
    hidden = hidden or max(64, block)
    size = size or max(96 // block * block, block)
    found = laid_out(tensors(hidden, size, TYPES[type].ternary, seed), layout)
    with GGUFWriter(path) as writer:
        for key, value in (keys(hidden, size) | dict(metadata or {})).items():
            writer.add(key, value)
        for name, values in (found | dict(more or {})).items():
            plain = values.ndim == 1 or "blk." not in name or "gate_inp" in name
            kind = "F32" if plain or name in (more or {}) else type
            writer.add_tensor(
                name, values.shape, kind, encoded(kind, values.reshape(-1, values.shape[-1]))
            )
