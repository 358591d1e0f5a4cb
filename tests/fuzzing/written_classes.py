"""Classes of published checkpoints that transformers lacks, written out: Qwen 1 and RWKV-7.

Names of tensors and formulas are those of the published code: modeling_qwen.py of Qwen-7B, and
RWKV7Attention, RWKV7FeedForward and RWKV7Block of fla.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


@strict
class QWenConfig(PreTrainedConfig):
    """Qwen 1's configuration."""

    model_type = "qwen"
    vocab_size: int = 151_936
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    layer_norm_epsilon: float = 1e-6
    max_position_embeddings: int = 8192
    scale_attn_weights: bool = True
    kv_channels: int | None = None
    rotary_pct: float = 1.0
    rotary_emb_base: int | float = 10_000
    use_dynamic_ntk: bool = True
    use_logn_attn: bool = True
    intermediate_size: int = 22_016
    no_bias: bool = True
    seq_length: int = 8192
    tie_word_embeddings: bool = False


class _QWenAttention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, hidden = config, config.hidden_size
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden, bias=not config.no_bias)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.config.num_attention_heads
        queries, keys, values = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, dim=-1)
        )
        size = int(queries.shape[-1] * self.config.rotary_pct)
        queries, keys = (self._rotated(part, size) for part in (queries, keys))
        out = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True,
            scale=None if self.config.scale_attn_weights else 1.0,
        )  # fmt: skip
        return self.c_proj(out.transpose(1, 2).flatten(2))

    def _rotated(self, x: Tensor, size: int) -> Tensor:
        exponents = torch.arange(0, size, 2) / size
        angles = torch.arange(x.shape[2])[:, None] / self.config.rotary_emb_base**exponents
        cos, sin = (torch.cat([part, part], -1) for part in (angles.cos(), angles.sin()))
        first, second = x[..., :size].chunk(2, dim=-1)
        turned = x[..., :size] * cos + torch.cat([-second, first], -1) * sin
        return torch.cat([turned, x[..., size:]], -1)


class _QWenMLP(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        bias, half = not config.no_bias, config.intermediate_size // 2
        self.w1 = nn.Linear(config.hidden_size, half, bias=bias)
        self.w2 = nn.Linear(config.hidden_size, half, bias=bias)
        self.c_proj = nn.Linear(half, config.hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.w1(x) * functional.silu(self.w2(x)))


class _QWenBlock(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.ln_1 = nn.RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.attn = _QWenAttention(config)
        self.ln_2 = nn.RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mlp = _QWenMLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class _Written(PreTrainedModel):
    """A model whose forward returns logits of whole texts."""

    def _hidden(self, input_ids: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, input_ids: Tensor, **_: Any) -> CausalLMOutput:
        """Return the logits."""
        return CausalLMOutput(logits=self.lm_head(self._hidden(input_ids)))


class QWenLMHeadModel(_Written):
    """Qwen 1, up to ``seq_length`` tokens; afterwards the class scales frequencies and queries."""

    config_class = QWenConfig
    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "transformer.wte.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        hidden = config.hidden_size
        if config.kv_channels not in (None, hidden // config.num_attention_heads):
            raise ValueError("kv_channels is not hidden_size / num_attention_heads")
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, hidden),
            "h": nn.ModuleList(_QWenBlock(config) for _ in range(config.num_hidden_layers)),
            "ln_f": nn.RMSNorm(hidden, config.layer_norm_epsilon),
        })  # fmt: skip
        self.lm_head = nn.Linear(hidden, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding."""
        return self.transformer["wte"]

    def _hidden(self, input_ids: Tensor) -> Tensor:
        scaled = self.config.use_dynamic_ntk or self.config.use_logn_attn
        if scaled and input_ids.shape[1] > self.config.seq_length:
            raise ValueError("more than seq_length tokens")
        x = self.transformer["wte"](input_ids)
        for block in self.transformer["h"]:
            x = block(x)
        return self.transformer["ln_f"](x)


@strict
class RWKV7Config(PreTrainedConfig):
    """RWKV-7's configuration in fla."""

    model_type = "rwkv7"
    vocab_size: int = 32_000
    hidden_size: int = 2048
    hidden_ratio: int | float | None = 4
    intermediate_size: int | None = None
    num_hidden_layers: int = 24
    head_dim: int = 64
    decay_low_rank_dim: int = 64
    gate_low_rank_dim: int = 128
    a_low_rank_dim: int = 64
    v_low_rank_dim: int = 16
    hidden_act: str = "sqrelu"
    max_position_embeddings: int = 2048
    norm_first: bool = True
    norm_bias: bool = True
    norm_eps: float = 1e-5
    attn: dict[str, Any] | None = None
    value_dim: int | list[int] | None = None
    tie_word_embeddings: bool = False


class _LoRA(nn.Module):
    def __init__(self, hidden: int, rank: int, between: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.lora = nn.Sequential(
            nn.Linear(hidden, rank, bias=False), between, nn.Linear(rank, hidden, bias=bias)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.lora(x)


def _shifted(x: Tensor) -> Tensor:
    """The token before each one, less it."""
    return functional.pad(x, (0, 0, 1, -1)) - x


class _RWKV7Attention(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        hidden, self.layer, self.size = config.hidden_size, layer, config.head_dim
        for name in "rwkvag":
            setattr(self, f"x_{name}", nn.Parameter(torch.zeros(1, 1, hidden)))
        self.k_k, self.k_a = (nn.Parameter(torch.zeros(hidden)) for _ in range(2))
        self.r_k = nn.Parameter(torch.zeros(hidden // self.size, self.size))
        for name in "rkvo":
            setattr(self, f"{name}_proj", nn.Linear(hidden, hidden, bias=False))
        self.w_lora = _LoRA(hidden, config.decay_low_rank_dim, nn.Tanh())
        if layer:
            self.v_lora = _LoRA(hidden, config.v_low_rank_dim, nn.Identity())
        self.a_lora = _LoRA(hidden, config.a_low_rank_dim, nn.Identity())
        self.g_lora = _LoRA(hidden, config.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        self.g_norm = nn.GroupNorm(hidden // self.size, hidden, self.size * config.norm_eps)

    def forward(self, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        shift = _shifted(x)
        mixed = {name: x + shift * getattr(self, f"x_{name}") for name in "rwkvag"}
        r, k, v = (getattr(self, f"{name}_proj")(mixed[name]) for name in "rkv")
        decay = (-0.6065306597126334 * self.w_lora(mixed["w"]).sigmoid()).exp()
        rate, gate = self.a_lora(mixed["a"]).sigmoid(), self.g_lora(mixed["g"])
        if first is None:
            first = v
        else:
            v = torch.lerp(v, first, self.v_lora(mixed["v"]).sigmoid())
        unit = functional.normalize((k * self.k_k).unflatten(-1, (-1, self.size)), dim=-1)
        k = k * (1 + (rate - 1) * self.k_a)
        r, decay, k, v, rate = (
            part.unflatten(-1, (-1, self.size)) for part in (r, decay, k, v, rate)
        )
        state, out = torch.zeros(*r.shape[:1], *r.shape[2:], self.size), []
        for t in range(x.shape[1]):
            seen = torch.einsum("bhvk,bhk->bhv", state, -unit[:, t])
            state = state * decay[:, t, :, None]
            state = state + torch.einsum("bhv,bhk->bhvk", v[:, t], k[:, t])
            state = state + torch.einsum("bhv,bhk->bhvk", seen, unit[:, t] * rate[:, t])
            out.append(torch.einsum("bhvk,bhk->bhv", state, r[:, t]))
        flat = self.g_norm(torch.stack(out, 1).flatten(0, 1).flatten(1)).reshape(x.shape)
        bonus = (r * k * self.r_k).sum(-1, keepdim=True) * v
        return self.o_proj((flat + bonus.flatten(2)) * gate), first


class _RWKV7FeedForward(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.intermediate_size
        if width is None:
            width = int(hidden * (4 if config.hidden_ratio is None else config.hidden_ratio))
            width = 32 * ((width + 31) // 32)
        self.x_k = nn.Parameter(torch.zeros(hidden))
        self.key = nn.Linear(hidden, width, bias=False)
        self.value = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.value(self.key(x + _shifted(x) * self.x_k).relu() ** 2)


class _RWKV7Block(nn.Module):
    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        eps, bias = config.norm_eps, config.norm_bias
        if config.norm_first and layer == 0:
            self.pre_norm = nn.LayerNorm(config.hidden_size, eps, bias=bias)
        self.attn_norm = nn.LayerNorm(config.hidden_size, eps, bias=bias)
        self.attn = _RWKV7Attention(config, layer)
        self.ffn_norm = nn.LayerNorm(config.hidden_size, eps, bias=bias)
        self.ffn = _RWKV7FeedForward(config)

    def forward(self, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        x = self.pre_norm(x) if hasattr(self, "pre_norm") else x
        out, first = self.attn(self.attn_norm(x), first)
        x = x + out
        return x + self.ffn(self.ffn_norm(x)), first


class RWKV7ForCausalLM(_Written):
    """RWKV-7 without attention layers."""

    config_class = RWKV7Config
    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embeddings.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        hidden, layers = config.hidden_size, range(config.num_hidden_layers)
        if config.attn is not None or config.hidden_act != "sqrelu":
            raise ValueError("attention layers and other activations are not written out")
        if config.value_dim not in (None, hidden, [hidden] * config.num_hidden_layers):
            raise ValueError("other widths of values are not written out")
        self.model = nn.ModuleDict({
            "embeddings": nn.Embedding(config.vocab_size, hidden),
            "layers": nn.ModuleList(_RWKV7Block(config, layer) for layer in layers),
            "norm": nn.LayerNorm(hidden, config.norm_eps, bias=config.norm_bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(hidden, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding."""
        return self.model["embeddings"]

    def _hidden(self, input_ids: Tensor) -> Tensor:
        x, first = self.model["embeddings"](input_ids), None
        for layer in self.model["layers"]:
            x, first = layer(x, first)
        return self.model["norm"](x)
