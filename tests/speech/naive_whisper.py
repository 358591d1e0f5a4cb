"""Whisper's formulas in NumPy, as in transformers, for small models."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Tensors = Mapping[str, Array]
_ERF = np.vectorize(math.erf)


def encode(t: Tensors, features: Array, heads: int, layers: int) -> Array:
    """States (positions, width) of mel frames (frames, bands)."""
    x = gelu(convolution(t, "encoder.conv1", features, 1))
    x = gelu(convolution(t, "encoder.conv2", x, 2)) + t["encoder.embed_positions.weight"]
    for layer in range(layers):
        p = f"encoder.layers.{layer}."
        h = norm(t, f"{p}self_attn_layer_norm", x)
        x = x + attend(t, f"{p}self_attn.", h, h, heads, causal=False)
        x = x + feed_forward(t, p, x)
    return norm(t, "encoder.layer_norm", x)


def decode(t: Tensors, ids: list[int], states: Array, heads: int, layers: int) -> Array:
    """Logits (ids, vocabulary)."""
    x = t["decoder.embed_tokens.weight"][ids] + t["decoder.embed_positions.weight"][: len(ids)]
    for layer in range(layers):
        p = f"decoder.layers.{layer}."
        h = norm(t, f"{p}self_attn_layer_norm", x)
        x = x + attend(t, f"{p}self_attn.", h, h, heads, causal=True)
        h = norm(t, f"{p}encoder_attn_layer_norm", x)
        x = x + attend(t, f"{p}encoder_attn.", h, states, heads, causal=False)
        x = x + feed_forward(t, p, x)
    return norm(t, "decoder.layer_norm", x) @ t["decoder.embed_tokens.weight"].T


def convolution(t: Tensors, name: str, x: Array, stride: int) -> Array:
    weight, bias = t[f"{name}.weight"], t[f"{name}.bias"]
    padded = np.pad(x, ((1, 1), (0, 0)))
    count = (len(x) - 1) // stride + 1
    rows = [np.einsum("oct,tc->o", weight, padded[stride * i :][:3]) for i in range(count)]
    return np.array(rows) + bias


def norm(t: Tensors, name: str, x: Array) -> Array:
    apart = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5)
    return apart / scale * t[f"{name}.weight"] + t[f"{name}.bias"]


def linear(t: Tensors, name: str, x: Array) -> Array:
    return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", np.float64(0))


def attend(t: Tensors, p: str, x: Array, seen: Array, heads: int, *, causal: bool) -> Array:
    q, k, v = (
        linear(t, f"{p}q_proj", x),
        linear(t, f"{p}k_proj", seen),
        linear(t, f"{p}v_proj", seen),
    )
    out = np.empty_like(q)
    width = q.shape[1] // heads
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = q[:, part] @ k[:, part].T / math.sqrt(width)
        if causal:
            scores[np.triu_indices(len(x), 1)] = -np.inf
        chances = np.exp(scores - scores.max(1, keepdims=True))
        out[:, part] = chances / chances.sum(1, keepdims=True) @ v[:, part]
    return linear(t, f"{p}out_proj", out)


def feed_forward(t: Tensors, p: str, x: Array) -> Array:
    h = norm(t, f"{p}final_layer_norm", x)
    return linear(t, f"{p}fc2", gelu(linear(t, f"{p}fc1", h)))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _ERF(x / math.sqrt(2)))
