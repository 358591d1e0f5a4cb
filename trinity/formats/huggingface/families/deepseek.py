"""DeepSeek V2: latent attention, first layers dense, the others with experts.

GGUF's projections of the latent to keys and values are apart, that of the keys transposed, so that
queries can be projected instead. Source: llama.cpp conversion/deepseek.py, DeepseekV2Model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import MAX_QUERY_WIDTH
from trinity.formats.huggingface.blocks import experts, experts_of, gated, linear, norm, router
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import LAYER, Family, Group, Keys
from trinity.formats.huggingface.rope import YarnScaling
from trinity.formats.huggingface.stored import Module, Stored, transposed
from trinity.formats.huggingface.values import shown

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


def _dense_layers(config: HFConfig) -> int:
    dense = config.values.size("first_k_dense_replace", "first_dense_layers", 0, smallest=0)
    if dense > config.num_layers:
        raise config.values.error("first_k_dense_replace", "exceeds num_hidden_layers")
    return dense


def _shared_count(config: HFConfig) -> int:
    return config.values.size("n_shared_experts", "num_shared_experts", 0, smallest=0)


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden = config.hidden_size
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from _attention(config)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    if index < _dense_layers(config):
        yield from gated(hidden, config.intermediate_size)
        return
    yield router(config, "mlp.gate")
    yield from experts(config, "mlp.experts")
    shared = _shared_count(config) * experts_of(config)[1]
    if shared:
        yield from gated(hidden, shared, source="mlp.shared_experts", suffix="_shexp")


def _drafting_layers(config: HFConfig) -> int:
    """Of the layers behind the last; without the key such tensors belong to another model."""
    return config.values.size("num_nextn_predict_layers", "nextn_layers", 0, smallest=0)


def _drafting(config: HFConfig) -> Iterator[Group]:
    """The first of them; its embedding and its output's weight are copies of the model's."""
    if not _drafting_layers(config):
        return
    hidden = config.hidden_size
    yield (
        f"{LAYER}{config.num_layers}.",
        [
            *linear("nextn.eh_proj", "eh_proj", hidden, 2 * hidden),
            *norm("nextn.enorm", "enorm", hidden),
            *norm("nextn.hnorm", "hnorm", hidden),
            *norm("nextn.shared_head_norm", "shared_head.norm", hidden),
            *_layer(config, config.num_layers),
        ],
    )


def _unused(config: HFConfig) -> str:
    """The drafting layers' tensors, which the class leaves out as well."""
    first, count = config.num_layers, _drafting_layers(config)
    numbers = "|".join(str(index) for index in range(first, first + count))
    return rf"model\.layers\.({numbers})\..*" if count else ""


def _check(config: HFConfig) -> None:
    """Raises UnsupportedError for routing that GGUF cannot say or that trinity does not know."""
    values = config.values.values
    expected: dict[str, tuple[object, ...]] = {
        "topk_method": (None, "greedy") if values.get("n_group") not in (None, 1) else (
            None, "greedy", "group_limited_greedy"
        ),
        "scoring_func": (None, "softmax"),
        "moe_layer_freq": (None, 1),
    }  # fmt: skip
    for key, known in expected.items():
        if values.get(key) not in known:
            raise UnsupportedError(
                f"{config.source}: {key} is {shown(values[key])}, n_group "
                f"{shown(values.get('n_group'))}; of this class trinity reads "
                f"{' or '.join(str(value) for value in known if value is not None)}"
            )


def _keys(config: HFConfig) -> Keys:
    _check(config)
    latent = _latent(config)
    keys: dict[str, object] = {
        "attention.head_count_kv": 1,  # one latent for all heads
        "attention.key_length": latent.kv_rank + latent.rotated,
        "attention.value_length": latent.kv_rank,
        "attention.key_length_mla": latent.plain + latent.rotated,
        "attention.value_length_mla": latent.values,
        "attention.q_lora_rank": latent.q_rank or None,
        "attention.kv_lora_rank": latent.kv_rank,
        "leading_dense_block_count": _dense_layers(config),
        "expert_shared_count": _shared_count(config),
        "expert_weights_scale": config.values.real("routed_scaling_factor", "expert_scale", 1.0),
        "expert_weights_norm": config.values.flag("norm_topk_prob") or None,
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


FAMILIES = (
    Family(
        class_names=("DeepseekV2ForCausalLM",),
        architectures={"silu": "deepseek2"},
        layer=_layer,
        keys=_keys,
        rope_dim=lambda config: _latent(config).rotated,
        unused=_unused,
        drafting=_drafting,
        terms=Terms(
            defaults={"kv_lora_rank": 512, "q_lora_rank": 1536, "n_shared_experts": 2},
            experts=ExpertTerms(("n_routed_experts", "num_experts")),
        ),
    ),
)
