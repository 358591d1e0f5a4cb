"""The configuration of a decoder, in Hugging Face's words, independent of any file format."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context.

    ``type`` is "none", "linear" or "yarn"; llama3's scaling comes as the tensor
    ``rope_freqs.weight`` and needs no field here.
    """

    type: str = "none"
    factor: float = 1.0
    original_context_length: int = 0
    attn_factor: float = 1.0
    yarn_ext_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one decoder-only transformer.

    ``num_heads * head_dim`` may differ from ``hidden_size``. ``rope_dim`` is the number of
    leading dimensions of a head that rotate. ``sliding_window`` is 0 for full attention.
    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    rms_norm_eps: float
    rope_theta: float = 10000.0
    rope_dim: int = 0
    rope_scaling: RopeScaling = RopeScaling()
    tie_word_embeddings: bool = False
    sliding_window: int = 0
    name: str = ""
