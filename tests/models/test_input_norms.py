"""Norms at the inputs of linears, as in BitNet's embedding models, compared with NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.models.family_models import vocabulary
from trinity.formats.gguf_writer import GGUFWriter
from trinity.models.input_norms import SUFFIX

HIDDEN, FFN, HEADS, KV_HEADS, DIM, LAYERS, EPS = 64, 96, 4, 2, 16, 2, 1e-6
TOKENS = [1, 300, 17, 263, 301, 5, 260]
Floats = NDArray[np.float64]
Tensors = dict[str, NDArray[np.float32]]
LINEARS = {
    "attn_q": (HEADS * DIM, HIDDEN), "attn_k": (KV_HEADS * DIM, HIDDEN),
    "attn_v": (KV_HEADS * DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * DIM),
    "ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN),
}  # fmt: skip


def tensors_of(architecture: str, vocab_size: int) -> Tensors:
    rng = np.random.default_rng(5)

    def drawn(*shape: int) -> NDArray[np.float32]:
        return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)

    def norm(size: int) -> NDArray[np.float32]:
        return rng.uniform(0.5, 1.5, size).astype(np.float32)

    found: Tensors = {"token_embd.weight": drawn(vocab_size, HIDDEN)}
    norms = {"attn_norm": HIDDEN, "ffn_norm": HIDDEN, "attn_q_norm": DIM, "attn_k_norm": DIM}
    if architecture == "gemma3":
        norms |= {"post_attention_norm": HIDDEN, "post_ffw_norm": HIDDEN}
    norms |= {f"{name}{SUFFIX}": shape[1] for name, shape in LINEARS.items()}
    for layer in range(LAYERS):
        found |= {f"blk.{layer}.{name}.weight": norm(size) for name, size in norms.items()}
        found |= {f"blk.{layer}.{name}.weight": drawn(*shape) for name, shape in LINEARS.items()}
    found["output_norm.weight"] = norm(HIDDEN)
    return found


def rms(x: Floats, weight: NDArray[np.float32]) -> Floats:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def rotated(x: Floats, theta: float) -> Floats:
    half = DIM // 2
    angles = np.outer(np.arange(len(x)), theta ** (-np.arange(half) / half))[:, None]
    low, high = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


def activated(x: Floats, architecture: str) -> Floats:
    if architecture == "gemma3":
        return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    return x / (1 + np.exp(-x))


def states(architecture: str, weights: Tensors) -> Floats:
    """Return the hidden states after the output norm, (tokens, HIDDEN)."""
    gemma = architecture == "gemma3"
    theta, count = 1e4 if gemma else 1e6, len(TOKENS)
    x: Floats = weights["token_embd.weight"][TOKENS].astype(np.float64)
    x = x * HIDDEN**0.5 if gemma else x
    for layer in range(LAYERS):
        at = {n.removeprefix(f"blk.{layer}."): w for n, w in weights.items()}

        def linear(name: str, h: Floats, at: Tensors = at) -> Floats:
            return rms(h, at[f"{name}{SUFFIX}.weight"]) @ at[f"{name}.weight"].T

        h = rms(x, at["attn_norm.weight"])
        q = rms(linear("attn_q", h).reshape(count, HEADS, DIM), at["attn_q_norm.weight"])
        k = rms(linear("attn_k", h).reshape(count, KV_HEADS, DIM), at["attn_k_norm.weight"])
        v = linear("attn_v", h).reshape(count, KV_HEADS, DIM).repeat(HEADS // KV_HEADS, 1)
        q, k = rotated(q, theta), rotated(k, theta).repeat(HEADS // KV_HEADS, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) * DIM**-0.5
        scores += np.triu(np.full((count, count), -np.inf), 1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v).reshape(count, -1)
        out = linear("attn_output", mixed)
        x = x + (rms(out, at["post_attention_norm.weight"]) if gemma else out)
        h = rms(x, at["ffn_norm.weight"])
        gate, up = linear("ffn_gate", h), linear("ffn_up", h)
        out = linear("ffn_down", activated(gate, architecture) * up)
        x = x + (rms(out, at["post_ffw_norm.weight"]) if gemma else out)
    return rms(x, weights["output_norm.weight"])


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3"])
def test_norms_before_linears(architecture: str, tmp_path: Path) -> None:
    words = vocabulary()
    count = len(words["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    weights, path = tensors_of(architecture, count), tmp_path / "x.gguf"
    keys = {
        "block_count": LAYERS, "context_length": 64, "embedding_length": HIDDEN,
        "feed_forward_length": FFN, "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS, "attention.key_length": DIM,
        "attention.value_length": DIM, "attention.layer_norm_rms_epsilon": EPS,
        "rope.freq_base": 1e4 if architecture == "gemma3" else 1e6, "pooling_type": 3,
    }  # fmt: skip
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", architecture)
        for key, value in keys.items():
            writer.add(f"{architecture}.{key}", value)
        for key, value in words.items():
            writer.add(key, value)
        for name, values in weights.items():
            writer.add_tensor(name, values.shape, "F32", values)
    expected = states(architecture, weights)
    with trinity.load(path, kv_type="f32") as model:
        logits = model.logits(TOKENS)
        (vector,) = model.embed([TOKENS], normalize=False)
    assert np.abs(vector - expected[-1]).max() < 1e-3
    assert np.abs(logits - expected @ weights["token_embd.weight"].T).max() < 1e-3
