"""Classes of published checkpoints that transformers lacks, made of classes that compute the same.

Names of tensors are those of the checkpoints. Published code of these classes has several sets of
defaults; missing keys have trinity's. Source: the code that is published with InternLM 2 and with
Ling 2.0 (BailingMoeV2).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import transformers
from huggingface_hub.dataclasses import strict
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightRenaming
from transformers.models.step3p7.modeling_step3p7 import Step3p7PreTrainedModel, Step3p7TextModel

from tests.fuzzing.written_classes import QWenLMHeadModel, RWKV7ForCausalLM

__all__ = ["QWenLMHeadModel", "RWKV7ForCausalLM"]
# Names in checkpoints.
PhiMoEForCausalLM = transformers.PhimoeForCausalLM
Ernie4_5_ForCausalLM = transformers.Ernie4_5ForCausalLM
ExaoneMoEForCausalLM = transformers.ExaoneMoeForCausalLM
RWForCausalLM = transformers.FalconForCausalLM
StableLMEpochForCausalLM = transformers.StableLmForCausalLM


class SarvamMoEForCausalLM(transformers.Glm4MoeForCausalLM):
    """Sarvam 30B: transformers has its configuration alone."""

    config_class = transformers.SarvamMoEConfig


class SarvamMLAForCausalLM(transformers.DeepseekV3ForCausalLM):
    """Sarvam 105B, which transformers computes with DeepSeek V3's class."""

    config_class = transformers.SarvamMLAConfig


@strict
class BailingMoeV2Config(transformers.SarvamMoEConfig):
    """Ling 2.0's configuration."""

    model_type = "bailing_moe_v2"
    default_theta = 10_000.0
    routed_scaling_factor: float = 1.0
    first_k_dense_replace: int = 0
    use_bias: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("partial_rotary_factor", 0.5)
        super().__post_init__(**kwargs)


class BailingMoeV2ForCausalLM(SarvamMoEForCausalLM):
    """Ling 2.0: the weights of experts are normalized if there are several, whatever the key says.

    The output of attention may have a bias.
    """

    config_class = BailingMoeV2Config

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.norm_topk_prob = config.num_experts_per_tok > 1
            if config.use_bias:
                old = layer.self_attn.o_proj
                layer.self_attn.o_proj = torch.nn.Linear(old.in_features, old.out_features)


@strict
class InternLM2Config(transformers.LlamaConfig):
    """InternLM 2's configuration; the class has no other head_dim."""

    model_type = "internlm2"
    attribute_map: ClassVar[dict[str, str]] = {"bias": "attention_bias"}
    attention_bias: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        self.head_dim = None
        super().__post_init__(**kwargs)


class InternLM2ForCausalLM(transformers.LlamaForCausalLM):
    """InternLM 2: Llama with the rows of q, k and v of each key head together."""

    config_class = InternLM2Config


@strict
class InternLM3Config(transformers.LlamaConfig):
    """InternLM 3's configuration."""

    model_type = "internlm3"
    rms_norm_eps: float = 1e-5
    head_dim: int | None = 128
    num_key_value_heads: int | None = 2
    attribute_map: ClassVar[dict[str, str]] = {"qkv_bias": "attention_bias", "bias": "mlp_bias"}


class InternLM3ForCausalLM(transformers.LlamaForCausalLM):
    """InternLM 3: Llama, where the bias of the attention's output is the feed-forward's key."""

    config_class = InternLM3Config

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            old = layer.self_attn.o_proj
            layer.self_attn.o_proj = torch.nn.Linear(
                old.in_features, old.out_features, bias=config.mlp_bias
            )


@strict
class MiniCPMConfig(transformers.LlamaConfig):
    """The configuration of MiniCPM 1, 2 and 4; the class has no other head_dim."""

    model_type = "minicpm"
    scale_emb: float = 1.0
    scale_depth: float = 1.0
    dim_model_base: int = 1
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        self.head_dim = None
        super().__post_init__(**kwargs)


class MiniCPMForCausalLM(transformers.GraniteForCausalLM):
    """MiniCPM: Granite, whose multipliers follow from other keys."""

    config_class = MiniCPMConfig

    def __init__(self, config: Any) -> None:
        config.embedding_multiplier = config.scale_emb
        config.residual_multiplier = config.scale_depth / config.num_hidden_layers**0.5
        config.attention_multiplier = config.head_dim**-0.5
        config.logits_scaling = config.hidden_size / config.dim_model_base
        super().__init__(config)


def _queries(config: Any) -> int:
    return int(config.num_attention_heads // config.num_key_value_heads)


class Step3p5ForCausalLM(Step3p7PreTrainedModel):
    """Step 3.5 Flash: the text model of Step 3.7, which transformers has within another class."""

    config_class = transformers.Step3p7TextConfig
    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = Step3p7TextModel(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        """Return the logits."""
        hidden = self.model(input_ids).last_hidden_state
        return transformers.modeling_outputs.CausalLMOutput(logits=self.lm_head(hidden))


class _SplitHeads(ConversionOps):
    """Take the rows of q, k and v apart."""

    def convert(
        self, input_dict: Any, source_patterns: Any, target_patterns: Any, config: Any, **_: Any
    ) -> dict[str, torch.Tensor]:
        (found,) = input_dict.values()
        rows = found[0] if isinstance(found, list) else found
        each = _queries(config)
        heads = rows.reshape(config.num_key_value_heads, each + 2, -1, *rows.shape[1:])
        parts = heads.split([each, 1, 1], dim=1)
        flat = (part.flatten(0, 2).contiguous() for part in parts)
        return dict(zip(target_patterns, flat, strict=True))

    @property
    def reverse_op(self) -> ConversionOps:
        return _JoinHeads()


class _JoinHeads(ConversionOps):
    """Put the rows of q, k and v of each key head together."""

    def convert(
        self, input_dict: Any, source_patterns: Any, target_patterns: Any, config: Any, **_: Any
    ) -> dict[str, torch.Tensor]:
        heads = []
        for name, count in zip(source_patterns, (_queries(config), 1, 1), strict=True):
            found = input_dict[name]
            rows = found[0] if isinstance(found, list) else found
            heads.append(rows.reshape(config.num_key_value_heads, count, -1, *rows.shape[1:]))
        return {target_patterns[0]: torch.cat(heads, dim=1).flatten(0, 2).contiguous()}

    @property
    def reverse_op(self) -> ConversionOps:
        return _SplitHeads()


_INTERNLM2 = {
    r"^model\.tok_embeddings\.": "model.embed_tokens.",
    r"\.attention_norm\.": ".input_layernorm.",
    r"\.ffn_norm\.": ".post_attention_layernorm.",
    r"\.attention\.wo\.": ".self_attn.o_proj.",
    r"\.feed_forward\.w1\.": ".mlp.gate_proj.",
    r"\.feed_forward\.w2\.": ".mlp.down_proj.",
    r"\.feed_forward\.w3\.": ".mlp.up_proj.",
}
register_checkpoint_conversion_mapping(
    "internlm2",
    [
        *(WeightRenaming(source, target) for source, target in _INTERNLM2.items()),
        WeightConverter(
            source_patterns="attention.wqkv",
            target_patterns=["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            operations=[_SplitHeads()],
        ),
    ],
)
# Only the mappings of layers: the first five rename the prefixes of the class around the model.
register_checkpoint_conversion_mapping("step3p5", get_checkpoint_conversion_mapping("step3p7")[5:])
register_checkpoint_conversion_mapping(
    "bailing_moe_v2", get_checkpoint_conversion_mapping("sarvam_moe")
)
