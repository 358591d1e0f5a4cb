"""Shapes of well-known llama models, to estimate a model from its number of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from trinity.quantization.assignment import ModelTensor, Network


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one model, with the names of its configuration."""

    name: str
    called: float  # parameters according to its name, often fewer than it has
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied: bool = False

    @property
    def network(self) -> Network:
        """The properties that the quantizer's rules need."""
        return Network("llama", self.num_layers, self.num_heads, self.num_kv_heads)

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(prod(entry.shape) for entry in self.entries())

    def entries(self) -> list[ModelTensor]:
        """The tensors, all in F16 except the norms."""
        hidden, ffn, vocab = self.hidden_size, self.intermediate_size, self.vocab_size
        query, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        tensors = [ModelTensor("token_embd.weight", (vocab, hidden), "F16")]
        for layer in range(self.num_layers):
            for name, shape in (
                ("attn_q", (query, hidden)), ("attn_k", (kv, hidden)), ("attn_v", (kv, hidden)),
                ("attn_output", (hidden, query)), ("ffn_gate", (ffn, hidden)),
                ("ffn_up", (ffn, hidden)), ("ffn_down", (hidden, ffn)),
            ):  # fmt: skip
                tensors.append(ModelTensor(f"blk.{layer}.{name}.weight", shape, "F16"))
            for name in ("attn_norm", "ffn_norm"):
                tensors.append(ModelTensor(f"blk.{layer}.{name}.weight", (hidden,), "F32"))
        tensors.append(ModelTensor("output_norm.weight", (hidden,), "F32"))
        if not self.tied:
            tensors.append(ModelTensor("output.weight", (vocab, hidden), "F16"))
        return tensors


SHAPES = (
    Shape("SmolLM2 135M", 135e6, 576, 1536, 30, 9, 3, 64, 49_152, tied=True),
    Shape("SmolLM2 360M", 360e6, 960, 2560, 32, 15, 5, 64, 49_152, tied=True),
    Shape("Llama 3.2 1B", 1e9, 2048, 8192, 16, 32, 8, 64, 128_256, tied=True),
    Shape("Llama 3.2 3B", 3e9, 3072, 8192, 28, 24, 8, 128, 128_256, tied=True),
    Shape("Llama 2 7B", 7e9, 4096, 11_008, 32, 32, 32, 128, 32_000),
    Shape("Llama 3.1 8B", 8e9, 4096, 14_336, 32, 32, 8, 128, 128_256),
    Shape("Llama 2 13B", 13e9, 5120, 13_824, 40, 40, 40, 128, 32_000),
    Shape("Code Llama 34B", 34e9, 8192, 22_016, 48, 64, 8, 128, 32_016),
    Shape("Llama 3.1 70B", 70e9, 8192, 28_672, 80, 64, 8, 128, 128_256),
    Shape("Llama 3.1 405B", 405e9, 16_384, 53_248, 126, 128, 8, 128, 128_256),
)
