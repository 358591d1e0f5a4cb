"""The configuration of a decoder, in Hugging Face's words, independent of any file format.

A field's annotation declares its GGUF key and its range. The readers of GGUF metadata and of
config.json, and `convert`, follow these declarations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

Gating = Literal["softmax", "sigmoid", "softmax_chosen", "sparsemixer"]
Example = bool | int | float

# The value of the key pooling_type of a model that ranks. Source: llama.cpp, llama_pooling_type.
POOLING_RANK = 4


class Key:
    """The GGUF key of a field, and the range of its values.

    The upper bounds are several times the values of any published model; the lower bounds keep
    quotients and logarithms finite. A number whose default is 0 may also be 0 in a file, which
    means that it is not set.
    """

    def __init__(
        self,
        *keys: str,
        low: float = 1,
        high: float = 1,
        hf: tuple[str, ...] = (),
        name: str = "",
        example: Example | tuple[Example, ...] | None = None,
    ) -> None:
        self.keys = keys  # without the architecture; files may have any of them
        self.low, self.high = low, high  # both included
        self.hf = hf  # names that old files use instead
        self.name = name  # its name in messages; "": the field's name
        # The value of a small model, which tests and `nearest` use; a field that a family needs
        # has one. A tuple is repeated for the layers.
        self.example = example


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are scaled beyond the trained context."""

    # "none", "linear", "yarn", "longrope" or "dynamic", which does not scale within the context and
    # which only config.json names. The divisors of llama3's and longrope's scaling are
    # tensors.
    type: Annotated[str, Key("rope.scaling.type", name="rope_type")] = "none"
    factor: Annotated[
        float,
        Key("rope.scaling.factor", "rope.scale_linear", low=1e-3, high=1e6, name="rope_factor"),
    ] = 1.0
    original_context_length: Annotated[
        int,
        Key(
            "rope.scaling.original_context_length",
            high=(1 << 31) - 1,
            hf=("original_max_position_embeddings",),
            name="rope_original_context",
        ),
    ] = 0
    # Multiplies cosines and sines.
    attn_factor: Annotated[
        float, Key("rope.scaling.attn_factor", low=1e-6, high=1e6, name="rope_attn_factor")
    ] = 1.0
    yarn_ext_factor: Annotated[float, Key("rope.scaling.yarn_ext_factor", low=1e-6, high=1e6)] = 1.0
    yarn_beta_fast: Annotated[float, Key("rope.scaling.yarn_beta_fast", low=1e-6, high=1e6)] = 32.0
    yarn_beta_slow: Annotated[float, Key("rope.scaling.yarn_beta_slow", low=1e-6, high=1e6)] = 1.0
    # YaRN multiplies cosines and sines by (1 + 0.1 ln factor) / (1 + 0.1 c ln factor); this is c.
    yarn_log_multiplier: Annotated[
        float, Key("rope.scaling.yarn_log_multiplier", low=1e-6, high=1e3)
    ] = 0.0
    # The ends of YaRN's ramp are whole dimensions. GGUF has no key for this.
    yarn_truncate: bool = True

    def yarn_ramp(self, theta: float, rope_dim: int) -> list[float]:
        """The share of each of ``rope_dim`` / 2 frequencies that YaRN does not scale: 0 to 1.

        Source: llama.cpp's ggml_rope_yarn_corr_dims and rope_yarn_ramp; the YaRN paper, section 3.
        """

        def dimension(turns: float) -> float:
            """The dimension that makes ``turns`` full turns in the original context."""
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
    """The experts of a feed-forward. Each token uses some of them."""

    num_experts: Annotated[int, Key("expert_count", high=1 << 12, example=4)]
    num_experts_per_tok: Annotated[int, Key("expert_used_count", high=1 << 10, example=2)]
    # Width of one expert; 0: the family knows it.
    intermediate_size: Annotated[
        int,
        Key(
            "expert_feed_forward_length", high=1 << 20, name="expert_intermediate_size", example=32
        ),
    ] = 0
    # Width of the expert that every token takes; 0: there is none.
    shared_intermediate_size: Annotated[
        int, Key("expert_shared_feed_forward_length", high=1 << 20)
    ] = 0
    # Layers before the first one with experts.
    first_dense_layers: Annotated[int, Key("leading_dense_block_count", high=1 << 10)] = 0
    # After these, the last layer of each period of this many layers has experts.
    layer_step: Annotated[
        int, Key("interleave_moe_layer_step", high=1 << 9, name="expert_layer_step")
    ] = 1
    # The function that makes weights of scores; "": the family knows it.
    gating: Annotated[
        Gating | Literal[""], Key("expert_gating_func", high=1 << 8, name="expert_gating")
    ] = ""
    # The weights of the chosen experts are normalized; None: the family knows it.
    normalize: Annotated[bool | None, Key("expert_weights_norm", name="expert_normalize")] = None
    # Multiplies the weights of the chosen experts.
    scale: Annotated[
        float, Key("expert_weights_scale", low=1e-6, high=1e6, name="expert_scale")
    ] = 1.0
    # The number of groups of experts, and of the groups that a token uses; see Route.
    num_groups: Annotated[
        int, Key("expert_group_count", high=1 << 10, name="num_expert_groups")
    ] = 0
    groups_used: Annotated[
        int, Key("expert_group_used_count", high=1 << 10, name="expert_groups_used")
    ] = 0
    # The limit of each layer's gate and up of an expert, 0 for none; () if no layer has one.
    swiglu_limits: Annotated[
        tuple[float, ...],
        Key("swiglu_clamp_exp", low=1e-3, high=1e6, name="expert_swiglu_limits"),
    ] = ()
    # The same of the shared expert, and of the feed-forward of layers without experts.
    shared_swiglu_limits: Annotated[
        tuple[float, ...], Key("swiglu_clamp_shexp", low=1e-3, high=1e6)
    ] = ()
    # Experts read and write this many values, projected from and to the residual stream; 0: all.
    latent_size: Annotated[int, Key("moe_latent_size", high=1 << 18, name="expert_latent_size")] = 0


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Multi-head latent attention: all keys and values come from ``kv_lora_rank`` values."""

    kv_lora_rank: Annotated[int, Key("attention.kv_lora_rank", high=1 << 16, example=16)]
    # 0: queries are computed from the residual stream.
    q_lora_rank: Annotated[int, Key("attention.q_lora_rank", high=1 << 18, example=0)]
    # Size of a head's keys, including the part that rotates.
    key_dim: Annotated[
        int, Key("attention.key_length_mla", high=1 << 16, name="latent_key_dim", example=12)
    ]
    value_dim: Annotated[
        int, Key("attention.value_length_mla", high=1 << 16, name="latent_value_dim", example=6)
    ]


@dataclass(frozen=True, slots=True)
class SSMConfig:
    """Layers with a recurrent state: those with the gated delta rule, and Mamba's."""

    # The number of tokens that the convolution before these layers sees.
    conv_kernel: Annotated[
        int, Key("ssm.conv_kernel", low=2, high=1 << 8, name="ssm_conv_kernel", example=4)
    ]
    # The number of values of all heads.
    inner_size: Annotated[
        int, Key("ssm.inner_size", high=1 << 18, name="ssm_inner_size", example=64)
    ]
    # The number of values of a key, and of a query (Mamba-2: B and C).
    state_size: Annotated[
        int, Key("ssm.state_size", high=1 << 16, name="ssm_state_size", example=8)
    ]
    # The number of keys, and of queries, which heads share.
    # Mamba-1: 0.
    num_groups: Annotated[
        int, Key("ssm.group_count", high=1 << 12, name="ssm_num_groups", example=2)
    ]
    # Mamba-1: the number of values from which the steps of all channels are computed.
    num_heads: Annotated[
        int, Key("ssm.time_step_rank", high=1 << 14, name="ssm_num_heads", example=4)
    ]

    @property
    def head_dim(self) -> int:
        """The number of values per head."""
        return self.inner_size // self.num_heads

    @property
    def keys_size(self) -> int:
        """The number of values of the keys, or of the queries, of all groups."""
        return self.num_groups * self.state_size

    @property
    def channels(self) -> int:
        """The number of values that the convolution changes: values, keys and queries."""
        return self.inner_size + 2 * self.keys_size


@dataclass(frozen=True, slots=True)
class WeightRotation:
    """Weights whose rows were multiplied by a Hadamard matrix H when the file was made.

    An input x of their products is transformed in the same way, to H (s * x) / sqrt(block_size),
    in blocks of that size.
    """

    block_size: int
    # Complete names of the weights that were rotated, in alphabetical order.
    weights: tuple[str, ...]
    # Whether the rows of the embedding were rotated too.
    embedding: bool
    # Columns of ``ssm_out`` have the heads of one group together, unlike the file's other tensors.
    grouped_heads: bool
    # Widths, and the signs s of inputs of each width as int8; None: all are +1.
    signs: tuple[tuple[int, bytes], ...] | None

    def summary(self) -> dict[str, object]:
        """Return the rotation without the names and the signs."""
        return {
            "block_size": self.block_size,
            "weights": len(self.weights),
            "embedding": self.embedding,
            "grouped_heads": self.grouped_heads,
            "sign_widths": [width for width, _ in self.signs or ()],
        }


_SCALE = {"low": 1e-6, "high": 1e6, "example": 2.0}
_CAP = {"low": 1e-3, "high": 1e6, "example": 30.0}
_REAL = {"low": -1e4, "high": 1e4}
_RANK = {"high": 1 << 16, "example": 8}
_EACH = (0.5,)  # the example of a number that each layer has


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one decoder-only transformer, or of one encoder."""

    architecture: str
    hidden_size: Annotated[
        int, Key("embedding_length", high=1 << 18, hf=("hidden_size", "n_embd", "dim"))
    ]
    # Width of the dense feed-forward; 0 if a model with experts has no value.
    intermediate_size: Annotated[
        int, Key("feed_forward_length", high=1 << 20, hf=("intermediate_size",))
    ]
    num_layers: Annotated[
        int,
        Key(
            "block_count",
            high=1 << 9,
            hf=("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
        ),
    ]
    # The largest number of all layers if they differ; so are those of keys and values.
    num_heads: Annotated[
        int,
        Key(
            "attention.head_count", high=1 << 12, hf=("num_attention_heads", "num_heads", "n_heads")
        ),
    ]
    num_kv_heads: Annotated[
        int,
        Key(
            "attention.head_count_kv",
            high=1 << 12,
            hf=("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
        ),
    ]
    # ``num_heads * head_dim`` may differ from ``hidden_size``.
    head_dim: Annotated[int, Key("attention.key_length", high=1 << 16, hf=("head_dim",))]
    vocab_size: Annotated[int, Key("vocab_size", high=1 << 19, hf=("n_vocab",))]
    context_length: Annotated[
        int,
        Key("context_length", high=(1 << 31) - 1, hf=("max_position_embeddings", "max_seq_len")),
    ]
    # The epsilon of all norms, RMS norms or others.
    rms_norm_eps: Annotated[
        float,
        Key(
            "attention.layer_norm_rms_epsilon",
            "attention.layer_norm_epsilon",
            low=1e-30,
            high=0.1,
            hf=("rms_norm_eps", "norm_eps"),
        ),
    ]
    # False: the file has the epsilon under the key of norms that subtract the mean.
    rms_norms: bool = True
    rope_theta: Annotated[float, Key("rope.freq_base", low=1.0, high=1e15, hf=("rope_theta",))] = (
        10000.0
    )
    # Hunyuan's NTK scaling; ``rope_theta`` contains it. 0: there is none.
    rope_alpha: Annotated[float, Key("rope.scaling.alpha", low=1.0, high=1e6)] = 0.0
    # Leading dimensions of a head that rotate.
    rope_dim: Annotated[int, Key("rope.dimension_count", high=1 << 16, hf=("rope_dim",))] = 0
    rope_scaling: RopeScaling = NO_SCALING
    # The numbers of pairs that rotate by time, height and width, where images have positions in
    # all three; () if the file has no such numbers.
    rope_sections: Annotated[tuple[int, ...], Key("rope.dimension_sections", high=1 << 15)] = ()
    # Rows of images add to the residual stream after each of this many first layers.
    deepstack_layers: Annotated[int, Key("n_deepstack_layers", high=1 << 6)] = 0
    # The output's matrix is the embedding.
    tie_word_embeddings: bool = False
    # Tokens that windowed layers see. 0: all layers see all tokens; None: the file does not say.
    sliding_window: Annotated[
        int | None,
        Key("attention.sliding_window", high=(1 << 31) - 1, hf=("sliding_window",), example=16),
    ] = None
    # The layers with a window: one bool per layer, or a period whose last layer has none; 0: the
    # family knows it.
    sliding_window_pattern: Annotated[
        int | tuple[bool, ...],
        Key("attention.sliding_window_pattern", high=1 << 10, example=(True, False)),
    ] = 0
    # The values of windowed layers; 0 if the file has none.
    rope_theta_swa: Annotated[float, Key("rope.freq_base_swa", low=1.0, high=1e15, example=5e4)] = (
        0.0
    )
    head_dim_swa: Annotated[int, Key("attention.key_length_swa", high=1 << 16, example=8)] = 0
    rope_dim_swa: Annotated[int, Key("rope.dimension_count_swa", high=1 << 16)] = 0
    # One number per layer if layers differ, else ().
    layer_kv_heads: tuple[int, ...] = ()
    layer_intermediate_sizes: tuple[int, ...] = ()
    # Values of a head of V, if they are not ``head_dim``; else 0.
    value_dim: Annotated[int, Key("attention.value_length", high=1 << 16)] = 0
    # Queries, keys and values are limited to it; 0: they are not.
    projection_limit: Annotated[float, Key("attention.clamp_kqv", **_SCALE)] = 0.0
    # Factor of the attention's result; 0: the file has none.
    attention_value_scale: Annotated[float, Key("attention.value_scale", **_SCALE)] = 0.0
    # Factors of scores, embeddings, branches and logits; 0: the file has none.
    attention_scale: Annotated[float, Key("attention.scale", **_SCALE)] = 0.0
    embedding_scale: Annotated[float, Key("embedding_scale", **_SCALE)] = 0.0
    residual_scale: Annotated[float, Key("residual_scale", **_SCALE)] = 0.0
    logit_scale: Annotated[float, Key("logit_scale", **_SCALE)] = 0.0
    # 0: there is no cap; None: the file does not say.
    attn_logit_softcap: Annotated[float | None, Key("attn_logit_softcapping", **_CAP)] = None
    final_logit_softcap: Annotated[float | None, Key("final_logit_softcapping", **_CAP)] = None
    # See Temperature.
    temperature_scale: Annotated[
        float, Key("attention.temperature_scale", low=1e-6, high=1e3, example=0.5)
    ] = 0.0
    # Attention and feed-forward read the same residual stream; False: one after the other.
    parallel_residual: Annotated[bool, Key("use_parallel_residual")] = True
    # False: positions are not rotated.
    rope_finetuned: Annotated[bool, Key("rope.scaling.finetuned", example=True)] = True
    # The number of last layers that read earlier layers' keys and values.
    shared_kv_layers: Annotated[int, Key("attention.shared_kv_layers", high=1 << 10, example=1)] = 0
    # The size of each layer's own embedding; 0: there is none.
    per_layer_input_size: Annotated[
        int, Key("embedding_length_per_layer_input", high=1 << 14, example=16)
    ] = 0
    experts: ExpertConfig | None = None
    latent: LatentConfig | None = None
    ssm: SSMConfig | None = None
    # The size of a head of Kimi's delta attention, and the tokens that its convolutions see.
    kda_head_dim: Annotated[int, Key("kda.head_dim", high=1 << 12, example=8)] = 0
    kda_conv_kernel: Annotated[int, Key("ssm.conv_kernel", high=1 << 8, example=3)] = 0
    # The number of tokens that LFM 2's convolutions see.
    short_conv_kernel: Annotated[int, Key("shortconv.l_cache", low=2, high=1 << 8, example=3)] = 0
    # Rows of the layers' embeddings, if there are fewer than tokens; 0: one for each. GGUF has all.
    per_layer_vocab_size: int = 0
    # The factor of each layer's threshold, see GaussianTop; -inf: the layer has none.
    sparsity_scale: Annotated[
        tuple[float, ...], Key("activation_sparsity_scale", low=-math.inf, high=1e3, example=_EACH)
    ] = ()
    # Whether each layer has a recurrent state instead of attention; () if no key says so.
    recurrent_layers: Annotated[tuple[bool, ...], Key("attention.recurrent_layers")] = ()
    # Mamba-1 normalizes what steps, b and c are computed from, without weights.
    ssm_norms: Annotated[bool, Key("ssm.dt_b_c_rms")] = False
    # Whether each layer rotates positions; () if no key says so.
    rope_layers: Annotated[tuple[bool, ...], Key("attention.rope_pattern")] = ()
    # The numbers of each layer's xIELU; alphas as a checkpoint has them, before the softplus.
    xielu_alpha_p: Annotated[tuple[float, ...], Key("xielu.alpha_p", **_REAL, example=_EACH)] = ()
    xielu_alpha_n: Annotated[tuple[float, ...], Key("xielu.alpha_n", **_REAL, example=_EACH)] = ()
    xielu_beta: Annotated[tuple[float, ...], Key("xielu.beta", **_REAL, example=_EACH)] = ()
    xielu_eps: Annotated[tuple[float, ...], Key("xielu.eps", **_REAL, example=_EACH)] = ()
    # The number of layers after the ``num_layers``, which propose several tokens at once.
    nextn_layers: Annotated[int, Key("nextn_predict_layers", high=1 << 5)] = 0
    # The rotation of the file's weights; None: they are not rotated.
    rotation: WeightRotation | None = None
    # general.name; only the beginning of a long one.
    name: str = ""
    # One number per layer if layers differ, else ().
    layer_heads: tuple[int, ...] = ()
    # The gate of attention has a value for each result of attention; False: for each head.
    gates_elements: bool = False
    # 0: YaRN's original context.
    temperature_length: Annotated[
        int, Key("attention.temperature_length", high=1 << 30, example=16)
    ] = 0
    # RWKV 7: the size of a head, and of what decays, rates, values and gates are computed from.
    wkv_head_size: Annotated[int, Key("wkv.head_size", high=1 << 10, example=4)] = 0
    decay_rank: Annotated[int, Key("attention.decay_lora_rank", **_RANK)] = 0
    rate_rank: Annotated[int, Key("attention.iclr_lora_rank", **_RANK)] = 0
    value_rank: Annotated[int, Key("attention.value_residual_mix_lora_rank", **_RANK)] = 0
    gate_rank: Annotated[int, Key("attention.gate_lora_rank", **_RANK)] = 0
    # RWKV 6: what the mixing with the token before and decays are computed from; and after how many
    # layers the state of the stream is halved, 0: never.
    mix_rank: Annotated[int, Key("time_mix_extra_dim", **_RANK)] = 0
    time_decay_rank: Annotated[int, Key("time_decay_extra_dim", **_RANK)] = 0
    halved_every: Annotated[int, Key("rescale_every_n_layers", high=1 << 16)] = 0

    def heads_of(self, layer: int) -> int:
        """The number of query heads of a layer."""
        return self.layer_heads[layer] if self.layer_heads else self.num_heads

    def of_layer(self, layer: int) -> ModelConfig:
        """The configuration with the numbers of heads of one layer."""
        return replace(
            self,
            num_heads=self.heads_of(layer),
            num_kv_heads=self.kv_heads_of(layer),
            layer_heads=(),
            layer_kv_heads=(),
        )

    def kv_heads_of(self, layer: int) -> int:
        """The number of key-value heads of a layer."""
        return self.layer_kv_heads[layer] if self.layer_kv_heads else self.num_kv_heads

    def intermediate_size_of(self, layer: int) -> int:
        """The width of a layer's dense feed-forward."""
        sizes = self.layer_intermediate_sizes
        return sizes[layer] if sizes else self.intermediate_size

    def window_of(self, layer: int, period: int) -> int:
        """The window of a layer; 0 if it has none.

        In the layer's family the last layer of each ``period`` has no window. With a ``period`` of
        0 all layers have one.
        """
        window, pattern = self.sliding_window or 0, self.sliding_window_pattern
        if isinstance(pattern, tuple):
            return window if pattern[layer] else 0
        period = pattern or period
        return window if period == 0 or layer % period < period - 1 else 0
