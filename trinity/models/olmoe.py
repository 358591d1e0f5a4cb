"""olmoe (OLMoE): llama with norms over the whole of q and of k, and experts in each layer.

The weights of experts are their probabilities among all experts, not normalized again.
Source: llama.cpp src/models/olmoe.cpp; transformers' Olmoe.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import attention, experts, head_norms, pre_norm_layer
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation


def attention_branch(config: ModelConfig, has: Has) -> list[Operation]:
    """Attention with norms over the whole of q and of k."""
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has, head_norms=False),
        Norm("q", "attn_q_norm", "q", config.num_heads * config.head_dim),
        Norm("k", "attn_k_norm", "k", config.num_kv_heads * config.head_dim),
        *blocks.plain_attention(config),
        blocks.attention_output(config),
    ]


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, has),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size, normalize=False),
    ]


ARCHITECTURES = (Architecture(("olmoe",), _layer, rope_halves=True, needs=("experts",)),)

# -- In transformers' checkpoints --

_LAYER = pre_norm_layer(
    {**attention(), **head_norms()}, {"ffn_gate_inp": "mlp.gate", **experts("mlp.experts")}
)


def _keys(config: ModelConfig, values: Values) -> Keys:
    for key in ("clip_qkv", "norm_topk_prob"):
        if values.values.get(key):
            raise UnsupportedError(
                f"{values.source}: {key} is {shown(values.values[key])}; in GGUF this class has "
                "neither clipped projections nor normalized weights of experts"
            )
    return {"expert_intermediate_size": None}  # the default of readers: feed_forward_length


FAMILY = Family(
    classes={"OlmoeForCausalLM": "olmoe"},
    layer=_LAYER,
    keys=_keys,
    defaults={"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8},
    experts=ExpertTerms(("num_experts", "num_local_experts"), width="intermediate_size"),
)
