"""DeepSeek V2 and V3: latent attention, first layers dense, the others with experts.

GGUF's projections of the latent to keys and values are apart, that of the keys transposed, so that
queries can be projected instead. V3 chooses experts by sigmoid, with a bias that only chooses. The
largest V2 and V3 have groups of experts: a group counts as its best one in V2, its two best in V3.
Source: llama.cpp conversion/deepseek.py, DeepseekV2Model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import MAX_QUERY_WIDTH
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.rope import YarnScaling
from trinity.formats.huggingface.stored import Stored, transposed
from trinity.formats.huggingface.table import Table, TableRow
from trinity.formats.huggingface.values import Values

_OF_GROUPS = "group_limited_greedy"
_LOG_MULTIPLIER = 0.1  # of mscale_all_dim, in this architecture alone


@dataclass(frozen=True, slots=True)
class _Latent:
    """Sizes of latent attention; ``q_rank`` 0: queries straight from the residual stream."""

    q_rank: int
    kv_rank: int
    plain: int
    rotated: int
    values: int


def _latent(config: HFConfig) -> _Latent:
    values = config.values
    q_rank = values.size("q_lora_rank", "q_lora_rank") if values.has("q_lora_rank") else 0
    latent = _Latent(
        q_rank,
        values.size("kv_lora_rank", "kv_lora_rank"),
        values.size("qk_nope_head_dim", "latent_key_dim"),
        values.size("qk_rope_head_dim", "rope_dim"),
        values.size("v_head_dim", "latent_value_dim"),
    )
    if latent.rotated % 2:
        raise values.error("qk_rope_head_dim", "must be even; rotation needs pairs")
    widest = max(latent.plain + latent.rotated, latent.values, latent.kv_rank + latent.rotated)
    if config.num_heads * widest > MAX_QUERY_WIDTH:
        raise ConfigError(
            f"{config.source}: num_attention_heads {config.num_heads} makes "
            f"{config.num_heads * widest} with heads of {widest} values; at most {MAX_QUERY_WIDTH} "
            "are read"
        )
    return latent


def _layer(config: ModelConfig, values: Values, feed_forward: Table) -> Table:
    """The rows of each head's keys and values are one matrix; the model's keys are transposed."""
    heads, latent = config.num_heads, config.latent
    plain = latent.key_dim - config.rope_dim if latent else 0

    def keys(array: NDArray[Any]) -> NDArray[Any]:
        return transposed(array.reshape(heads, len(array) // heads, -1)[:, :plain])

    def head_values(array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(heads, len(array) // heads, -1)[:, plain:]

    both = ("self_attn.kv_b_proj.weight",)
    return {
        "attn_norm": "input_layernorm",
        "attn_q_a": "self_attn.q_a_proj",
        "attn_q_a_norm": "self_attn.q_a_layernorm",
        "attn_q_b": "self_attn.q_b_proj",
        "attn_q": "self_attn.q_proj",
        "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm",
        "attn_k_b": TableRow((Stored(both, keys),)),
        "attn_v_b": TableRow((Stored(both, head_values),)),
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        **feed_forward,
    }


def _is_third(config: HFConfig) -> bool:
    return config.class_name == "DeepseekV3ForCausalLM"


def _check(config: HFConfig) -> None:
    """Raises UnsupportedError for routing of the other version, or that nobody has released."""
    expected: dict[str, tuple[object, ...]] = {"moe_layer_freq": (None, 1)}
    if _is_third(config):
        expected |= {
            "topk_method": (None, "noaux_tc"),
            "scoring_func": (None, "sigmoid"),
            "rope_interleave": (None, True),
        }
    else:
        expected |= {
            "topk_method": (None, "greedy", _OF_GROUPS),
            "scoring_func": (None, "softmax"),
            "norm_topk_prob": (None, False),  # which transformers' class does not look at
        }
    mixture.refuse_other(config, expected)


def _keys(config: HFConfig) -> Keys:
    _check(config)
    latent, third = _latent(config), _is_third(config)
    grouped = third or config.values.values.get("topk_method") == _OF_GROUPS
    keys: dict[str, object] = {
        "attention.head_count_kv": 1,  # one latent for all heads
        "attention.key_length": latent.kv_rank + latent.rotated,
        "attention.value_length": latent.kv_rank,
        "attention.key_length_mla": latent.plain + latent.rotated,
        "attention.value_length_mla": latent.values,
        "attention.q_lora_rank": latent.q_rank or None,
        "attention.kv_lora_rank": latent.kv_rank,
        **mixture.keys_of_experts(config, sigmoid=third, grouped=grouped),
    }
    yarn = config.rope.scaling
    if isinstance(yarn, YarnScaling) and yarn.mscale_all_dim is not None:
        if abs(yarn.attention_factor - 1) > 1e-6:
            raise UnsupportedError(
                f"{config.source}: RoPE's mscale and mscale_all_dim differ; GGUF has one value"
            )
        keys["rope.scaling.attn_factor"] = None
        keys["rope.scaling.yarn_log_multiplier"] = _LOG_MULTIPLIER * yarn.mscale_all_dim
    return keys


def _family(class_name: str, feed_forward: Table, defaults: Mapping[str, object]) -> Family:
    layer = partial(_layer, feed_forward=feed_forward)
    return Family(
        class_names=(class_name,),
        architectures={"silu": "deepseek2"},
        layer=layer,
        keys=_keys,
        rope_dim=lambda config: _latent(config).rotated,
        unused=mixture.unused,
        drafting=mixture.drafting(layer),
        drafting_key=mixture.DRAFTING_KEY,
        terms=Terms(
            defaults={"kv_lora_rank": 512, "q_lora_rank": 1536, **defaults},
            experts=ExpertTerms(("n_routed_experts", "num_experts")),
        ),
    )


FAMILIES = (
    _family("DeepseekV2ForCausalLM", mixture.FEED_FORWARD, {"n_shared_experts": 2}),
    _family(
        "DeepseekV3ForCausalLM", mixture.CHOSEN_WITH_BIAS,
        {"n_shared_experts": 1, "first_k_dense_replace": 3, "norm_topk_prob": True,
         "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4},
    ),
)  # fmt: skip
