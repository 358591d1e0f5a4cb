"""The configuration of a decoder, in Hugging Face's words, independent of any file format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Gating = Literal["softmax", "sigmoid", "softmax_chosen"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained context.

    ``type`` is "none", "linear", "yarn" or "longrope"; what llama3's and longrope's divide
    frequencies by comes as tensors. Cosines and sines are multiplied by ``attn_factor``; YaRN's
    also by (1 + 0.1 ln factor) / (1 + 0.1 c ln factor), c = ``yarn_log_multiplier``, and the ends
    of its ramp are whole dimensions with ``yarn_truncate``.
    """

    type: str = "none"
    factor: float = 1.0
    original_context_length: int = 0
    attn_factor: float = 1.0
    yarn_ext_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_log_multiplier: float = 0.0
    yarn_truncate: bool = True

    def yarn_ramp(self, theta: float, rope_dim: int) -> list[float]:
        """How far each of ``rope_dim`` / 2 frequencies stays as it is: 1 wholly, 0 not at all.

        Source: llama.cpp's ggml_rope_yarn_corr_dims and rope_yarn_ramp; the YaRN paper, section 3.
        """

        def dimension(turns: float) -> float:
            """Where ``turns`` full turns fit the original context."""
            ratio = self.original_context_length / (turns * 2 * math.pi)
            return rope_dim * math.log(ratio) / (2 * math.log(theta))

        low, high = dimension(self.yarn_beta_fast), dimension(self.yarn_beta_slow)
        if self.yarn_truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(0.0, low), min(rope_dim - 1.0, high)
        width = max(0.001, high - low)
        return [1 - min(max((i - low) / width, 0.0), 1.0) for i in range(rope_dim // 2)]


NO_SCALING = RopeScaling()


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """The experts of a feed-forward: each token takes ``num_experts_per_tok`` of ``num_experts``.

    ``intermediate_size``: of one expert, 0 where the file leaves it to the family;
    ``shared_intermediate_size``: of what every token takes, 0: nothing. The first
    ``first_dense_layers`` layers have none. ``gating`` (softmax, sigmoid or softmax_chosen) and
    ``normalize`` are "" and None where the file leaves them to the family; chosen weights are
    multiplied by ``scale``. ``num_groups``, ``groups_used``: see Route.
    """

    num_experts: int
    num_experts_per_tok: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    first_dense_layers: int = 0
    gating: Gating | Literal[""] = ""
    normalize: bool | None = None
    scale: float = 1.0
    num_groups: int = 0
    groups_used: int = 0


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Multi-head latent attention: keys and values of all heads from ``kv_lora_rank`` values.

    ``q_lora_rank`` 0: queries straight from the residual stream. ``key_dim`` is that of a head, its
    rotated part included; ``value_dim`` that of a head's values.
    """

    kv_lora_rank: int
    q_lora_rank: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class SSMConfig:
    """Layers with a recurrent state: the gated delta rule's, and Mamba-2's.

    ``num_heads`` heads have ``inner_size`` values together, and share ``num_groups`` keys and
    queries (Mamba-2: B and C) of ``state_size`` values. The convolution before them sees
    ``conv_kernel`` tokens.
    """

    conv_kernel: int
    inner_size: int
    state_size: int
    num_groups: int
    num_heads: int

    @property
    def head_dim(self) -> int:
        """Values of a head."""
        return self.inner_size // self.num_heads

    @property
    def keys_size(self) -> int:
        """Keys, or queries, of all groups."""
        return self.num_groups * self.state_size

    @property
    def channels(self) -> int:
        """What goes through the convolution: values, keys and queries."""
        return self.inner_size + 2 * self.keys_size


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one decoder-only transformer.

    ``num_heads * head_dim`` may differ from ``hidden_size``. ``rope_dim`` is the number of
    leading dimensions of a head that rotate. ``sliding_window`` is 0 for full attention, None where
    the file says nothing; ``sliding_window_pattern`` says which layers have it: one bool a layer,
    or every layer but each last of so many; 0: as the family has it. ``rope_theta_swa`` is that of
    windowed layers, 0 where the file names none; ``head_dim_swa``, ``rope_dim_swa`` likewise.
    ``layer_kv_heads`` and ``layer_intermediate_sizes`` hold a number for each layer where they
    differ, and nothing else.
    ``intermediate_size`` is 0 where a model of experts names none. ``value_dim``: values of a head
    of V where it is not ``head_dim``, else 0. Norms with a mean have ``rms_norm_eps``, too. Of
    ``attention_scale``, ``embedding_scale``, ``residual_scale`` and ``logit_scale`` 0 means that
    the file has none. A soft-cap of 0 means that there is none, None that the file does not say.
    ``temperature_scale``: see Temperature.
    ``rope_finetuned`` False: the file says that positions are not rotated. ``shared_kv_layers``: so
    many last layers read earlier layers' keys and values. ``per_layer_input_size``: values of each
    layer's own embedding, 0: none. ``short_conv_kernel``: tokens that LFM 2's convolutions see.
    ``recurrent_layers``: whether each layer has a recurrent state in the place of attention, where
    keys say so. Behind the ``num_layers`` may be ``nextn_layers`` more, which propose several
    tokens at once. ``name`` is general.name, of a long one the beginning.
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
    sliding_window: int | None = None
    sliding_window_pattern: int | tuple[bool, ...] = 0
    rope_theta_swa: float = 0.0
    head_dim_swa: int = 0
    rope_dim_swa: int = 0
    layer_kv_heads: tuple[int, ...] = ()
    layer_intermediate_sizes: tuple[int, ...] = ()
    value_dim: int = 0
    attention_scale: float = 0.0
    embedding_scale: float = 0.0
    residual_scale: float = 0.0
    logit_scale: float = 0.0
    attn_logit_softcap: float | None = None
    final_logit_softcap: float | None = None
    temperature_scale: float = 0.0
    rope_finetuned: bool = True
    shared_kv_layers: int = 0
    per_layer_input_size: int = 0
    experts: ExpertConfig | None = None
    latent: LatentConfig | None = None
    ssm: SSMConfig | None = None
    short_conv_kernel: int = 0
    recurrent_layers: tuple[bool, ...] = ()
    nextn_layers: int = 0
    name: str = ""

    def kv_heads_of(self, layer: int) -> int:
        """Heads of keys and values of a layer."""
        return self.layer_kv_heads[layer] if self.layer_kv_heads else self.num_kv_heads

    def intermediate_size_of(self, layer: int) -> int:
        """Width of a layer's dense feed-forward."""
        sizes = self.layer_intermediate_sizes
        return sizes[layer] if sizes else self.intermediate_size

    def window_of(self, layer: int, period: int) -> int:
        """The window of a layer, 0 for none, in a family whose full layers end each ``period``.

        With a ``period`` of 0 the family has no full ones.
        """
        window, pattern = self.sliding_window or 0, self.sliding_window_pattern
        if isinstance(pattern, tuple):
            return window if pattern[layer] else 0
        period = pattern or period
        return window if period == 0 or layer % period < period - 1 else 0
