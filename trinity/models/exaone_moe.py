"""exaone-moe (K-EXAONE): norms over heads, three windowed layers to a full one, experts.

Only windowed layers rotate. First layers are dense, the others have experts, chosen by sigmoid with
a bias that only chooses, and a shared one.
Source: llama.cpp src/models/exaone-moe.cpp; transformers' ExaoneMoe.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import attention, head_norms, pre_norm_layer, tensor
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 4  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    attention = blocks.windowed_attention(config, index, _PERIOD)
    return [
        *blocks.attention_branch(config, has, attention, head_norms=True),
        *expert_blocks.after_dense_layers(config, index, has, gating="sigmoid"),
    ]


ARCHITECTURES = (
    Architecture(("exaone-moe",), _layer, rope_halves=True, needs=("experts", "sliding_window")),
)

# -- In transformers' checkpoints --

_BIAS = "e_score_correction_bias"
_LAYER = pre_norm_layer(
    {**attention(), **head_norms()},
    {**mixture.CHOSEN_WITH_BIAS, "exp_probs_b.bias": tensor(f"mlp.{_BIAS}", f"mlp.gate.{_BIAS}")},
)


def _keys(config: ModelConfig, values: Values) -> Keys:
    keys = mixture.keys_of_experts(config, values, sigmoid=True)
    dense = keys["first_dense_layers"]
    assert isinstance(dense, int)
    keys = {**keys, "first_dense_layers": mixture.listed_dense_layers(config, values, dense)}
    width = config.experts.intermediate_size if config.experts else 0
    shared = keys["num_shared_experts"]
    assert isinstance(shared, int)
    return {**keys, "shared_intermediate_size": width * shared or None, "rope_type": "none"}


FAMILY = Family(
    classes={"ExaoneMoeForCausalLM": "exaone-moe", "ExaoneMoEForCausalLM": "exaone-moe"},
    layer=_LAYER,
    keys=_keys,
    unused=r"mtp\..*",
    windows=WindowTerms(_PERIOD, gguf="unusual layers"),
    rope_types=(),
    defaults={
        "num_key_value_heads": 32,
        "rms_norm_eps": 1e-5,
        "sliding_window": 4096,
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "n_group": 1,
        "topk_group": 1,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("num_experts", "num_local_experts")),
    older={"n_shared_experts": "num_shared_experts"},  # the class's word,
)
