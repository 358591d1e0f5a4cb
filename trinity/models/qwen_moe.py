"""qwen2moe and qwen3moe: Qwen's attention, with experts in place of the feed-forward.

Qwen 2 does not normalize the weights of experts, and has a shared expert, which is multiplied by
the sigmoid of a score. Qwen 3 always normalizes them and ignores the checkpoint's configuration.
Source: llama.cpp src/models/qwen2moe.cpp and qwen3moe.cpp; transformers' Qwen2Moe and Qwen3Moe.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.values import Values, shown
from trinity.models import expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import attention_branch
from trinity.models.operations import Operation
from trinity.models.qwen import WINDOW_OFF


def _qwen2(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, index, has, head_norms=False),
        *expert_blocks.routed(
            config, has, "silu", size=expert_blocks.size_of(config), normalize=False
        ),
        *expert_blocks.shared_expert(config, "silu", size=config.intermediate_size, gated=True),
    ]


def qwen3_layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    """A layer of qwen3moe: norms over heads, and experts with normalized weights."""
    return [
        *attention_branch(config, index, has, head_norms=True),
        *expert_blocks.routed(config, has, "silu", size=expert_blocks.size_of(config)),
    ]


ARCHITECTURES = (
    Architecture(("qwen2moe",), _qwen2, rope_halves=True, needs=("experts",)),
    Architecture(("qwen3moe",), qwen3_layer, rope_halves=True, needs=("experts",)),
)

# -- In transformers' checkpoints --


def check_routing(values: Values, *, normalizes: bool) -> None:
    """Raise UnsupportedError for routing that differs from the default, since GGUF has no key for
    it.
    """
    dense, step = (values.values.get(k) for k in ("mlp_only_layers", "decoder_sparse_step"))
    if dense or step not in (None, 1):
        raise UnsupportedError(
            f"{values.source}: mlp_only_layers is {shown(dense)} and decoder_sparse_step "
            f"{shown(step)}, which is not supported: in GGUF files of this model class every layer "
            "has experts"
        )
    if values.flag("norm_topk_prob") != normalizes:
        raise UnsupportedError(
            f"{values.source}: norm_topk_prob is {str(not normalizes).lower()}, which is not "
            "supported: in GGUF files of this model class the experts' weights are "
            f"{'always' if normalizes else 'never'} normalized"
        )


# Experts and a shared expert.
WITH_SHARED: table.Table = {
    "ffn_gate_inp": "mlp.gate",
    **table.experts("mlp.experts"),
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    **table.gated("mlp.shared_expert", suffix="_shexp"),
}
_LAYER2 = table.pre_norm_layer(table.attention(bias="qkv_bias"), WITH_SHARED)
LAYER3 = table.pre_norm_layer(
    {**table.attention(bias="attention_bias", output_bias="attention_bias"), **table.head_norms()},
    {"ffn_gate_inp": "mlp.gate", **table.experts("mlp.experts")},
)


_EXPERTS = ExpertTerms(("num_experts", "num_local_experts"))
FAMILIES = (
    Family(
        classes={"Qwen2MoeForCausalLM": "qwen2moe"},
        layer=_LAYER2,
        check=lambda config, values: check_routing(values, normalizes=False),
        windows=WindowTerms(2, max_window_layers="before"),
        fields={"shared_intermediate_size": "shared_expert_intermediate_size"},
        defaults={"qkv_bias": True, **WINDOW_OFF},
        experts=_EXPERTS,
    ),
    Family(
        classes={"Qwen3MoeForCausalLM": "qwen3moe"},
        layer=LAYER3,
        check=lambda config, values: check_routing(values, normalizes=True),
        windows=WindowTerms(),
        defaults=WINDOW_OFF,
        experts=_EXPERTS,
    ),
)
