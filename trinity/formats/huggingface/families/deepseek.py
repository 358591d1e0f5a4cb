"""DeepSeek V2 and V3: latent attention, first layers dense, the others with experts.

GGUF's projections of the latent to keys and values are apart, that of the keys transposed, so that
queries can be projected instead. V3 chooses experts by sigmoid, with a bias that only chooses. The
largest V2 and V3 have groups of experts: a group counts as its best one in V2, its two best in V3.
Source: llama.cpp conversion/deepseek.py, DeepseekV2Model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import MAX_QUERY_WIDTH
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.blocks import linear, norm
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.rope import YarnScaling
from trinity.formats.huggingface.stored import Module, Stored, transposed

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


def _attention(config: HFConfig) -> Iterator[Module]:
    latent, heads, hidden = _latent(config), config.num_heads, config.hidden_size
    query = heads * (latent.plain + latent.rotated)
    if latent.q_rank:
        yield from linear("attn_q_a", "self_attn.q_a_proj", latent.q_rank, hidden)
        yield from norm("attn_q_a_norm", "self_attn.q_a_layernorm", latent.q_rank)
        yield from linear("attn_q_b", "self_attn.q_b_proj", query, latent.q_rank)
    else:
        yield from linear("attn_q", "self_attn.q_proj", query, hidden)
    compressed = latent.kv_rank + latent.rotated
    yield from linear("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", compressed, hidden)
    yield from norm("attn_kv_a_norm", "self_attn.kv_a_layernorm", latent.kv_rank)
    yield from _decompression(latent, heads)
    yield from linear("attn_output", "self_attn.o_proj", hidden, heads * latent.values)


def _decompression(latent: _Latent, heads: int) -> Iterator[Module]:
    """The latent to keys and to values, a matrix for each head."""
    each, rank = latent.plain + latent.values, latent.kv_rank

    def of_heads(array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(heads, each, -1)

    def keys(array: NDArray[Any]) -> NDArray[Any]:
        return transposed(of_heads(array)[:, : latent.plain])

    def values(array: NDArray[Any]) -> NDArray[Any]:
        return of_heads(array)[:, latent.plain :]

    name, shape = ("self_attn.kv_b_proj.weight",), (heads * each, rank)
    key_form, value_form = Stored(name, shape, keys), Stored(name, shape, values)
    yield Module("attn_k_b.weight", (heads, rank, latent.plain), (key_form,), "linear")
    yield Module("attn_v_b.weight", (heads, latent.values, rank), (value_form,), "linear")


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden = config.hidden_size
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from _attention(config)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    yield from mixture.feed_forward(config, index, chosen_with_bias=_is_third(config))


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


def _family(class_name: str, defaults: Mapping[str, object]) -> Family:
    return Family(
        class_names=(class_name,),
        architectures={"silu": "deepseek2"},
        layer=_layer,
        keys=_keys,
        rope_dim=lambda config: _latent(config).rotated,
        unused=mixture.unused,
        drafting=mixture.drafting(_layer),
        terms=Terms(
            defaults={"kv_lora_rank": 512, "q_lora_rank": 1536, **defaults},
            experts=ExpertTerms(("n_routed_experts", "num_experts")),
        ),
    )


FAMILIES = (
    _family("DeepseekV2ForCausalLM", {"n_shared_experts": 2}),
    _family(
        "DeepseekV3ForCausalLM",
        {"n_shared_experts": 1, "first_k_dense_replace": 3, "norm_topk_prob": True,
         "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4},
    ),
)  # fmt: skip
