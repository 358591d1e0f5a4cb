"""The configuration of a decoder, in Hugging Face's words, independent of any file format."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context.

    ``type`` is "none", "linear", "yarn" or "longrope"; what llama3's and longrope's divide
    frequencies by comes as tensors. Cosines and sines are multiplied by ``attn_factor``.
    """

    type: str = "none"
    factor: float = 1.0
    original_context_length: int = 0
    attn_factor: float = 1.0
    yarn_ext_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0


NO_SCALING = RopeScaling()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one decoder-only transformer.

    ``num_heads * head_dim`` may differ from ``hidden_size``. ``rope_dim`` is the number of
    leading dimensions of a head that rotate. ``sliding_window`` is 0 for full attention;
    ``sliding_window_pattern`` says which layers have it: one bool a layer, or every layer but each
    last of so many; 0: as the family has it. ``rope_theta_swa`` is that of windowed layers, 0 where
    the file names none.
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
    rope_scaling: RopeScaling = NO_SCALING
    tie_word_embeddings: bool = False
    sliding_window: int = 0
    sliding_window_pattern: int | tuple[bool, ...] = 0
    rope_theta_swa: float = 0.0
    name: str = ""

    def window_of(self, layer: int, period: int) -> int:
        """The window of a layer, 0 for none, in a family whose full layers end each ``period``."""
        pattern = self.sliding_window_pattern
        if isinstance(pattern, tuple):
            return self.sliding_window if pattern[layer] else 0
        period = pattern or period
        return self.sliding_window if layer % period < period - 1 else 0
