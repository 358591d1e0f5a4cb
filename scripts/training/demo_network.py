"""The demo model's network in PyTorch: a BitNet b1.58 decoder that can be trained.

Weights are ternary by the absolute mean (one scale a tensor), activations int8 by the absolute
maximum of a token; gradients go straight through both roundings. Sub-norms, squared ReLU, rotary
positions by halves, the output tied to the embedding: architecture `bitnet-b1.58` of GGUF files.
Source: "The Era of 1-bit LLMs", arXiv 2402.17764; transformers' modeling_bitnet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

EPS = 1e-5


@dataclass(frozen=True)
class Recipe:
    """Sizes in tokens. The rates rise over ``warmup`` steps, stay, and fall to zero from
    ``cooldown`` (a share of the steps) on; windows have half the context until ``lengthen``.
    """

    vocab_size: int = 2048
    hidden_size: int = 256
    num_layers: int = 6
    num_heads: int = 4
    num_kv_heads: int = 2
    intermediate_size: int = 768
    context: int = 512
    rope_theta: float = 10_000.0
    batch: int = 4096
    steps: int = 3200
    warmup: int = 60
    cooldown: float = 0.6
    lengthen: float = 0.85
    matrix_rate: float = 0.02
    other_rate: float = 0.003
    decay: float = 0.1
    dropout: float = 0.1
    seed: int = 1


def ternary(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return values -1, 0, 1 and their scale, the mean of the absolute values."""
    scale = weight.abs().mean().clamp(min=1e-5)
    return (weight / scale).round().clamp(-1, 1), scale


def int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return integers -127..127 and the scale of each token, so that x is about values / scale."""
    scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (x * scale).round().clamp(-128, 127), scale


class BitLinear(nn.Module):
    """y = ternary(weight) int8(x), multiplied by both scales; gradients as if neither rounded.

    Whole numbers of at most 8 bits are exact in bfloat16 too.
    """

    def __init__(self, inputs: int, *outputs: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.empty(n, inputs).normal_(0, inputs**-0.5)) for n in outputs
        )

    def forward(self, x: Tensor, dtype: torch.dtype) -> list[Tensor]:
        with torch.no_grad():
            values, scale = int8(x)
        scaled = x * scale
        scaled = (scaled + (values - scaled).detach()).to(dtype)
        codes, scales = zip(*(straight_through(weight) for weight in self.weights), strict=True)
        product = functional.linear(scaled, torch.cat(codes).to(dtype)).float()
        parts = product.split([len(weight) for weight in self.weights], -1)
        return [part * (size / scale) for part, size in zip(parts, scales, strict=True)]


def straight_through(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ternary values, with the gradient of weight / scale, and the scale."""
    with torch.no_grad():
        codes, scale = ternary(weight)
    ratio = weight / scale
    return ratio + (codes - ratio).detach(), scale


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (..., tokens, head size); pairs are (i, i + half)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def drop(x: Tensor, rate: float) -> Tensor:
    """Drop whole features of a sequence: one draw for all its tokens."""
    keep = torch.rand(x.shape[0], 1, x.shape[2], device=x.device) >= rate
    return x * keep * (1 / (1 - rate))


class Layer(nn.Module):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        hidden, ffn = recipe.hidden_size, recipe.intermediate_size
        self.heads, self.kv_heads = recipe.num_heads, recipe.num_kv_heads
        kv = hidden // self.heads * self.kv_heads
        self.attn_norm = nn.Parameter(torch.ones(hidden))
        self.attn_in = BitLinear(hidden, hidden, kv, kv)
        self.attn_sub_norm = nn.Parameter(torch.full((hidden,), 0.1))
        self.attn_output = BitLinear(hidden, hidden)
        self.ffn_norm = nn.Parameter(torch.ones(hidden))
        self.ffn_in = BitLinear(hidden, ffn, ffn)
        self.ffn_sub_norm = nn.Parameter(torch.full((ffn,), 0.1))
        self.ffn_down = BitLinear(ffn, hidden)
        self.dropout = recipe.dropout

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
        batch, tokens, hidden = x.shape

        def heads(y: Tensor, count: int) -> Tensor:
            return y.view(batch, tokens, count, -1).transpose(1, 2)

        q, k, v = self.attn_in(rms_norm(x, self.attn_norm), dtype)
        q = rotate(heads(q, self.heads), cos, sin).to(dtype)
        k = rotate(heads(k, self.kv_heads), cos, sin).to(dtype)
        v = heads(v, self.kv_heads).to(dtype)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        # Written out: compiled, it is several times faster on a CPU than PyTorch's own attention.
        scores = (q @ k.mT).float() * (hidden // self.heads) ** -0.5
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1).to(dtype)
        a = (weights @ v).transpose(1, 2).reshape(batch, tokens, hidden).float()
        (a,) = self.attn_output(rms_norm(a, self.attn_sub_norm), dtype)
        x = x + self.drop(a)
        gate, up = self.ffn_in(rms_norm(x, self.ffn_norm), dtype)
        (f,) = self.ffn_down(
            rms_norm(functional.relu(gate).square() * up, self.ffn_sub_norm), dtype
        )
        return x + self.drop(f)

    def drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.training else x


class BitNet(nn.Module):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.token_embd = nn.Parameter(
            torch.empty(recipe.vocab_size, recipe.hidden_size).normal_(0, 0.05)
        )
        self.layers = nn.ModuleList(Layer(recipe) for _ in range(recipe.num_layers))
        self.output_norm = nn.Parameter(torch.ones(recipe.hidden_size))

    def forward(self, tokens: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the logits (batch, tokens, vocabulary)."""
        head = self.recipe.hidden_size // self.recipe.num_heads
        frequency = self.recipe.rope_theta ** (
            -torch.arange(0, head, 2, device=tokens.device, dtype=torch.float32) / head
        )
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * frequency
        cos, sin = angles.cos(), angles.sin()
        x = self.token_embd[tokens]
        if self.training:
            x = drop(x, self.recipe.dropout)
        for layer in self.layers:
            x = layer(x, cos, sin, dtype)
        x = rms_norm(x, self.output_norm)
        return functional.linear(x.to(dtype), self.token_embd.to(dtype)).float()


@torch.no_grad()
def bits(model: nn.Module, tokens: Tensor, bos: int, context: int, dtype: torch.dtype) -> float:
    """Bits that the model needs for ``tokens``.

    The windows overlap: a token is scored once, with at least half a window before it (where the
    text has that much). A window's first place is BOS.
    """
    device = next(model.parameters()).device
    half, total = context // 2, 0.0
    for start in range(-1, len(tokens) - 1, half):
        # Place 0 is BOS; scored are the targets from `first` on.
        begin = max(start - half, -1)
        window = tokens[max(begin, 0) : start + half + 1]
        places = torch.cat((torch.tensor([bos]), window if begin < 0 else window[1:])).to(device)
        logits = model(places[None, :-1], dtype)[0]
        losses = functional.cross_entropy(logits, places[1:], reduction="none")
        total += losses[start - begin :].double().sum().item()
    return total / math.log(2)
