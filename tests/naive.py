"""Decoders in plain NumPy and float64: slow, and the reference for the engine.

Letters of the shapes: T tokens, D hidden size, H heads, K key/value heads, d dimensions of a
head, V vocabulary. Formulas: RMSNorm(x, w) = x / sqrt(mean(x^2) + eps) * w; the blocks of llama,
qwen, bitnet and bitnet-b1.58 as llama.cpp and ik_llama.cpp build them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.config import ExpertConfig, ModelConfig
from trinity.formats import WeightProvider

Array = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float32]]

FAMILIES = ("bitnet", "bitnet-25", "bitnet-b1.58", "llama", "qwen2", "qwen3")
_SQUARED_RELU = {"bitnet-b1.58", "bitnet-25"}


def float_tensors(provider: WeightProvider) -> dict[str, NDArray[np.float32]]:
    """Dequantize all tensors of an open model."""
    return {name: provider.tensor(name).dequantize() for name in provider.tensor_names()}


def naive_logits(
    tensors: Weights,
    config: ModelConfig,
    tokens: Sequence[int],
    *,
    arch: str,
    int8_activations: bool,
    rope_interleaved: bool | None = None,
    inputs: dict[str, Array] | None = None,
) -> NDArray[np.float32]:
    """Compute the logits (T, V) of ``tokens`` at positions 0..T-1.

    ``tensors``: canonical names to dequantized values, linear weights (outputs, inputs).
    ``int8_activations``: the layers' linears are ternary, their inputs rounded to int8 per token.
    ``rope_interleaved``: rotate neighbours (True) or halves; by default as GGUF stores ``arch``.
    ``inputs`` receives the input (T, inputs) of every linear weight by its name; experts have a
    tensor name and tokens of their own ("blk.0.ffn_up.3.weight").
    """
    inputs = {} if inputs is None else inputs
    if rope_interleaved is None:
        rope_interleaved = arch == "llama"
    eps = config.rms_norm_eps
    cos, sin = rope_angles(tensors, config, len(tokens))
    x = tensors["token_embd.weight"][np.asarray(tokens)].astype(np.float64)
    for layer in range(config.num_layers):
        weights = _Layer(tensors, layer, int8_activations, inputs)
        n = weights.norm("attn_norm", x, eps)
        q = weights.linear("attn_q", n).reshape(len(tokens), config.num_heads, -1)
        k = weights.linear("attn_k", n).reshape(len(tokens), config.num_kv_heads, -1)
        v = weights.linear("attn_v", n).reshape(len(tokens), config.num_kv_heads, -1)
        q = rotate(weights.norm("attn_q_norm", q, eps), cos, sin, rope_interleaved)
        k = rotate(weights.norm("attn_k_norm", k, eps), cos, sin, rope_interleaved)
        a = weights.norm("attn_sub_norm", attention(q, k, v, config.sliding_window or 0), eps)
        x = x + weights.linear("attn_output", a)
        n = weights.norm("ffn_norm", x, eps)
        if config.experts is not None:
            x = x + weights.mixture(n, config.experts)
            continue
        gate, up = weights.linear("ffn_gate", n), weights.linear("ffn_up", n)
        active = np.maximum(gate, 0) ** 2 if arch in _SQUARED_RELU else silu(gate)
        f = weights.norm("ffn_sub_norm", active * up, eps)
        x = x + weights.linear("ffn_down", f)
    x = rms_norm(x, tensors["output_norm.weight"], eps)
    inputs["output.weight"] = x
    head = tensors.get("output.weight", tensors["token_embd.weight"])
    return (x @ head.astype(np.float64).T).astype(np.float32)


class _Layer:
    """The tensors of one layer by short name; an absent norm, bias or scale has no effect."""

    def __init__(
        self, tensors: Weights, layer: int, int8_activations: bool, inputs: dict[str, Array]
    ) -> None:
        self.tensors = tensors
        self.inputs = inputs
        self.prefix = f"blk.{layer}."
        self.int8_activations = int8_activations

    def norm(self, name: str, x: Array, eps: float) -> Array:
        weight = self.tensors.get(f"{self.prefix}{name}.weight")
        return x if weight is None else rms_norm(x, weight, eps)

    def linear(self, name: str, x: Array, exact: bool = False) -> Array:
        """Multiply x (T, inputs), then by .scale, then add .bias (the FFN's before the scale).

        ``exact``: the activations are not rounded, even if others are.
        """
        weight = self.tensors[f"{self.prefix}{name}.weight"]
        self.inputs[f"{self.prefix}{name}.weight"] = x
        y: Array = (
            ternary_linear(x, weight)
            if self.int8_activations and not exact
            else x @ weight.T.astype(np.float64)
        )
        scale = self.tensors.get(f"{self.prefix}{name}.scale", np.ones(1, np.float32))
        bias = self.tensors.get(f"{self.prefix}{name}.bias", np.zeros(1, np.float32))
        return (y + bias) * scale if name.startswith("ffn_") else y * scale + bias

    def mixture(self, x: Array, config: ExpertConfig) -> Array:
        """Mix experts: the largest of the softmax of the router's scores, divided by their sum."""
        scores = self.linear("ffn_gate_inp", x, exact=True)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        chosen = np.argsort(-p, axis=1, kind="stable")[:, : config.num_experts_per_tok]
        out = np.zeros_like(x)
        for token, experts in enumerate(chosen):
            shares = p[token, experts] / p[token, experts].sum()
            for expert, share in zip(experts, shares, strict=True):
                one = x[token : token + 1]
                gate, up = self.expert("ffn_gate", one, expert), self.expert("ffn_up", one, expert)
                out[token] += share * self.expert("ffn_down", silu(gate) * up, expert)[0]
        return out

    def expert(self, name: str, x: Array, expert: int) -> Array:
        """Multiply x (1, inputs) by one expert's weight and .scale, and add its .bias."""
        one = f"{self.prefix}{name}.{expert}.weight"
        self.inputs[one] = np.concatenate([self.inputs.get(one, x[:0]), x])
        name = f"{self.prefix}{name}_exps"
        weight = self.tensors[f"{name}.weight"]
        scales = self.tensors.get(f"{name}.scale", np.ones(len(weight), np.float32))
        biases = self.tensors.get(f"{name}.bias", np.zeros(weight.shape[:2], np.float32))
        y: Array = (
            ternary_linear(x, weight[expert])
            if self.int8_activations
            else x @ weight[expert].T.astype(np.float64)
        )
        return y * scales[expert] + biases[expert]


def rms_norm(x: Array, weight: NDArray[np.float32], eps: float) -> Array:
    """Normalize over the last axis."""
    scaled: Array = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * weight
    return scaled


def silu(x: Array) -> Array:
    gated: Array = x / (1 + np.exp(-x))
    return gated


def quantize_activations(x: Array) -> tuple[Array, NDArray[np.float32]]:
    """Return int8 values (T, n) as float64, and scales (T, 1): x is about values / scale."""
    floats = x.astype(np.float32)
    largest = np.maximum(np.abs(floats).max(axis=-1, keepdims=True), np.float32(1e-5))
    scale = np.float32(127) / largest
    return np.clip(np.rint(floats * scale), -128, 127).astype(np.float64), scale


def ternary_linear(x: Array, weight: NDArray[np.float32]) -> Array:
    """Multiply x (T, n), rounded to int8 per token, by a ternary weight (m, n).

    Numerics: a product of an int8 and a scale has at most 32 bits, so if a row has one scale, the
    float64 sums are exact: the integer sums times that scale.
    """
    values, scale = quantize_activations(x)
    product: Array = values @ weight.T.astype(np.float64)
    return product / scale


def rope_angles(tensors: Weights, config: ModelConfig, count: int) -> tuple[Array, Array]:
    """Return cosines and sines (count, rope_dim / 2) of positions 0..count-1, times the magnitude.

    Source: rope_yarn and ggml_rope_yarn_corr_dims in llama.cpp's ggml-cpu/ops.cpp.
    """
    dim = config.rope_dim or config.head_dim
    scaling = config.rope_scaling
    pair = np.arange(dim // 2)
    frequency = config.rope_theta ** (-2.0 * pair / dim)
    factors = tensors.get("rope_freqs.weight")
    if factors is not None:
        frequency = frequency / factors
    magnitude = 1.0
    if scaling.type == "linear":
        frequency = frequency / scaling.factor
    elif scaling.type == "yarn":
        original = scaling.original_context_length or config.context_length

        def correction(turns: float) -> float:
            """Return the dimension whose angle makes so many turns within the original context."""
            ratio = math.log(original / (turns * 2 * math.pi))
            return dim * ratio / (2 * math.log(config.rope_theta))

        low = max(0.0, math.floor(correction(scaling.yarn_beta_fast)))
        high = min(dim - 1.0, math.ceil(correction(scaling.yarn_beta_slow)))
        ramp = 1 - np.clip((pair - low) / max(0.001, high - low), 0, 1)
        mix = ramp * scaling.yarn_ext_factor
        frequency = frequency / scaling.factor * (1 - mix) + frequency * mix
        magnitude = scaling.attn_factor
        if scaling.yarn_ext_factor != 0:
            magnitude *= 1 + 0.1 * math.log(scaling.factor)
    angles = np.arange(count)[:, None] * frequency
    return np.cos(angles) * magnitude, np.sin(angles) * magnitude


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Rotate the first 2 * cos.shape[1] dimensions of x (T, heads, d)."""
    pairs = cos.shape[1]
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    a, b = x[..., first], x[..., second]
    cos, sin = cos[:, None], sin[:, None]
    result = x.copy()
    result[..., first] = a * cos - b * sin
    result[..., second] = a * sin + b * cos
    return result


def attention(q: Array, k: Array, v: Array, sliding_window: int = 0) -> Array:
    """Compute causal attention (T, H * d) of q (T, H, d), k and v (T, K, d); window 0 is none."""
    tokens, heads, dim = q.shape
    group = heads // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("thd,shd->hts", q, k) / math.sqrt(dim)
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    hidden = distance < 0
    if sliding_window > 0:
        hidden |= distance >= sliding_window
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed: Array = np.einsum("hts,shd->thd", weights, v)
    return mixed.reshape(tokens, -1)
