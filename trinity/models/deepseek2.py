"""deepseek2, deepseek32, glm-dsa (DeepSeek V2 to V3.2, GLM 5); mistral4 has the same layers.

Layers have latent attention (MLA) and experts.

The keys and values of all heads are computed from ``kv_lora_rank`` values of a token, and the KV
cache holds these. Current files have the matrices that map a head's query to the latent values, and
from these to the head's values. Older files have one matrix that computes the keys and values of
every head, which the cache then holds. YaRN stretches the rotated part of a head without changing
its magnitude, and increases the scores. The norms of latents have their own epsilon, regardless of
the file.
Layers of V3.2 and GLM 5 have an indexer, which chooses the keys that a token attends to. Within a
context of that many tokens these are all keys: only such contexts run, and no indexer is read.
Source: llama.cpp src/models/deepseek2.cpp, deepseek32.cpp, glm-dsa.cpp; transformers' DeepseekV2,
V3 and V32, GlmMoeDsa.

Checkpoints have one matrix with each head's keys and values. The model has two; the keys' is
transposed, so that queries can be projected instead. DeepSeek V3 chooses experts by sigmoid, with a
bias that only affects the choice. The largest V2 and V3 have groups of experts, ranked by the best
expert in V2 and by the two best in V3. Source: llama.cpp conversion/deepseek.py, DeepseekV2Model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import LatentConfig, ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import MAX_QUERY_WIDTH
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ROPE_TYPES, ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.rope import read_yarn
from trinity.formats.huggingface.stored import Stored, transposed
from trinity.formats.huggingface.table import Table, TableRow, Tables, at, gated, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models import operations as op
from trinity.models.architecture import Architecture, Has

_LATENT_EPSILON = 1e-6  # the default of transformers' DeepseekV3RMSNorm


def _layer(config: ModelConfig, index: int, has: Has) -> list[op.Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *attention(config, has, _rotation(config)),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *expert_blocks.after_dense_layers(config, index, has),
    ]


def attention(config: ModelConfig, has: Has, rotation: op.Rotation | None) -> list[op.Operation]:
    """Latent attention from h; its result is added to x."""
    if config.latent is None:
        raise TypeError(f"{config.architecture} has no latent attention in its configuration")
    return (expanded if has("attn_kv_b") else _absorbed)(config, config.latent, rotation)


def _drafting(config: ModelConfig, has: Has) -> list[op.Operation]:
    """Combine a pair into one row, then a layer like the last one."""
    return [*blocks.drafting_pair(config), *_layer(config, config.num_layers, has)]


def _absorbed(
    config: ModelConfig, latent: LatentConfig, rotation: op.Rotation | None
) -> list[op.Operation]:
    """One key head: the latent values, followed by the rotated ones."""
    heads, rank, turned = config.num_heads, latent.kv_lora_rank, config.rope_dim
    plain, size = latent.key_dim - turned, rank + turned
    return [
        *_queries(config, latent, "heads", op.Product("attn_kv_a_mqa", "k", size)),
        op.Norm("k", "attn_kv_a_norm", "k", rank, eps=_LATENT_EPSILON),
        op.HeadLinear("heads", "q", "attn_k_b", heads, rank, plain, latent.key_dim, size),
        op.Copy("heads", "q", heads, turned, latent.key_dim, size, x_first=plain, out_first=rank),
        op.Rope(
            heads, 1, size, rotation, first=rank, value_dim=rank, value="k",
            temperature=_temperature(config),
        ),
        op.Attention(heads, 1, size, _scale(config, latent), value_dim=rank),
        op.HeadLinear(
            "a", "values", "attn_v_b", heads, latent.value_dim, rank, rank, latent.value_dim
        ),
        _output(config, "values", latent),
    ]  # fmt: skip


def expanded(
    config: ModelConfig, latent: LatentConfig, rotation: op.Rotation | None, *, scale: float = 1.0
) -> list[op.Operation]:
    """Keys and values of every head; the rotated part of a key is the same in all heads.

    ``scale``: a factor of what is added to the residual stream.
    """
    heads, rank, turned = config.num_heads, latent.kv_lora_rank, config.rope_dim
    size, values = latent.key_dim, latent.value_dim
    plain = size - turned
    both = plain + values
    return [
        *_queries(config, latent, "q", op.Product("attn_kv_a_mqa", "latent", rank + turned)),
        op.Norm("latent", "attn_kv_a_norm", "latent", rank, eps=_LATENT_EPSILON),
        op.Linear("latent", rank, (op.Product("attn_kv_b", "heads", heads * both),)),
        op.Copy("heads", "k", heads, plain, both, size),
        op.Copy("latent", "k", heads, turned, 0, size, x_first=rank, out_first=plain),
        op.Copy("heads", "v", heads, values, both, values, x_first=plain),
        op.Rope(
            heads, heads, size, rotation, first=plain, value_dim=values,
            temperature=_temperature(config),
        ),
        op.Attention(heads, heads, size, _scale(config, latent), value_dim=values),
        _output(config, "a", latent, scale),
    ]  # fmt: skip


def _queries(
    config: ModelConfig, latent: LatentConfig, out: str, keys: op.Product
) -> list[op.Operation]:
    """Project h to every head's query, in large models through fewer values, and to ``keys``."""
    size, rank = config.num_heads * latent.key_dim, latent.q_lora_rank
    if not rank:
        return [op.Linear("h", config.hidden_size, (op.Product("attn_q", out, size), keys))]
    return [
        op.Linear("h", config.hidden_size, (op.Product("attn_q_a", "q_latent", rank), keys)),
        op.Norm("q_latent", "attn_q_a_norm", "q_latent", rank, eps=_LATENT_EPSILON),
        op.Linear("q_latent", rank, (op.Product("attn_q_b", out, size),)),
    ]


def _output(config: ModelConfig, x: str, latent: LatentConfig, scale: float = 1.0) -> op.Linear:
    product = op.Product("attn_output", "x", config.hidden_size)
    return op.Linear(x, config.num_heads * latent.value_dim, (product,), add=True, scale=scale)


def _temperature(config: ModelConfig) -> op.Temperature | None:
    """The growth of queries with their position; None: the file has none."""
    if not config.temperature_scale:
        return None
    length = config.temperature_length or config.rope_scaling.original_context_length
    return op.Temperature(config.temperature_scale, length or config.context_length)


def _multiplier(config: ModelConfig) -> float:
    """The YaRN factor mscale_all_dim; files contain a tenth of it. 0: the file has none."""
    return config.rope_scaling.yarn_log_multiplier / 0.1


def _rotation(config: ModelConfig) -> op.Rotation:
    rotation = blocks.rotation_of(config)
    if not config.rope_scaling.yarn_log_multiplier:
        return rotation
    # mscale and mscale_all_dim are equal in all models, so their quotient is 1.
    return replace(rotation, scaling=replace(config.rope_scaling, yarn_log_multiplier=1.0))


def _scale(config: ModelConfig, latent: LatentConfig) -> float:
    scaling = config.rope_scaling
    growth = 1.0
    if scaling.type == "yarn" and scaling.factor > 1:
        growth = 1 + 0.1 * _multiplier(config) * math.log(scaling.factor)
    return growth**2 / math.sqrt(latent.key_dim)


# Some files also have the matrices that attn_kv_b is made of.
_PARTS = frozenset({"attn_k_b.weight", "attn_v_b.weight"})
_INDEXER = {
    "indexer.attn_q_b.weight", "indexer.attn_k.weight", "indexer.k_norm.weight",
    "indexer.k_norm.bias", "indexer.proj.weight",
}  # fmt: skip
ARCHITECTURES = (
    Architecture(
        ("deepseek2", "mistral4"), _layer, rope_halves=False, needs=("latent",), unread=_PARTS,
        drafting=_drafting,
    ),
    Architecture(
        ("deepseek32", "glm-dsa"), _layer, rope_halves=False, needs=("latent",),
        unread=_PARTS | _INDEXER, drafting=_drafting,
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_OF_GROUPS = "group_limited_greedy"
_LOG_MULTIPLIER = 0.1  # of mscale_all_dim, in this architecture alone


def latent_sizes(config: ModelConfig, values: Values) -> tuple[LatentConfig, int]:
    """The sizes of latent attention, and the number of rotated values of a key."""
    plain = values.size("qk_nope_head_dim", "latent_key_dim")
    rotated = values.size("qk_rope_head_dim", "rope_dim")
    latent = LatentConfig(
        kv_lora_rank=values.size("kv_lora_rank", "kv_lora_rank"),
        q_lora_rank=values.size("q_lora_rank", "q_lora_rank", 0, smallest=0),
        key_dim=plain + rotated,
        value_dim=values.size("v_head_dim", "latent_value_dim"),
    )
    if rotated % 2:
        raise values.error("qk_rope_head_dim", "must be even; rotation needs pairs")
    widest = max(latent.key_dim, latent.value_dim, latent.kv_lora_rank + rotated)
    if config.num_heads * widest > MAX_QUERY_WIDTH:
        raise ConfigError(
            f"{values.source}: num_attention_heads {config.num_heads} makes "
            f"{config.num_heads * widest} with heads of {widest} values; at most {MAX_QUERY_WIDTH} "
            "are read"
        )
    return latent, rotated


def latent_table(config: ModelConfig, values: Values, feed_forward: Table) -> Table:
    """A layer of latent attention and this feed-forward."""
    return pre_norm_layer(attention_table(config), feed_forward)


def attention_table(config: ModelConfig) -> Table:
    """Each head's keys and values are the rows of one matrix; the model's keys are transposed."""
    heads, latent = config.num_heads, config.latent
    plain = latent.key_dim - config.rope_dim if latent else 0

    def keys(array: NDArray[Any]) -> NDArray[Any]:
        return transposed(array.reshape(heads, len(array) // heads, -1)[:, :plain])

    def head_values(array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(heads, len(array) // heads, -1)[:, plain:]

    both = ("self_attn.kv_b_proj.weight",)
    return {
        "attn_q_a": "self_attn.q_a_proj",
        "attn_q_a_norm": "self_attn.q_a_layernorm",
        "attn_q_b": "self_attn.q_b_proj",
        "attn_q": "self_attn.q_proj",
        "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm",
        "attn_k_b": TableRow((Stored(both, keys),)),
        "attn_v_b": TableRow((Stored(both, head_values),)),
        "attn_output": "self_attn.o_proj",
    }


_ROUTING_OF_2: dict[str, tuple[object, ...]] = {
    "moe_layer_freq": (None, 1),
    "topk_method": (None, "greedy", _OF_GROUPS),
    "scoring_func": (None, "softmax"),
    "norm_topk_prob": (None, False),  # ignored by transformers' class
}
_ROUTING_OF_3: dict[str, tuple[object, ...]] = {
    "moe_layer_freq": (None, 1),
    "topk_method": (None, "noaux_tc"),
    "scoring_func": (None, "sigmoid"),
    "rope_interleave": (None, True),
}


def _keys_of_2(config: ModelConfig, values: Values) -> Keys:
    refuse_other(values, _ROUTING_OF_2)
    grouped = values.values.get("topk_method") == _OF_GROUPS
    experts = mixture.keys_of_experts(config, values, sigmoid=False, grouped=grouped)
    return {**latent_keys(config, values), **experts}


def _keys_of_3(config: ModelConfig, values: Values) -> Keys:
    refuse_other(values, _ROUTING_OF_3)
    experts = mixture.keys_of_experts(config, values, sigmoid=True)
    return {**latent_keys(config, values), **experts}


def _dense_keys(config: ModelConfig, values: Values) -> Keys:
    """Return also the keys of experts that llama.cpp requires."""
    refuse_other(values, {"rope_interleave": (None, True), "attention_bias": (None, False)})
    return {
        **latent_keys(config, values),
        "first_dense_layers": config.num_layers,
        "num_shared_experts": 0,
        "expert_intermediate_size": config.intermediate_size,
    }


def _lite_keys(config: ModelConfig, values: Values) -> Keys:
    dense = mixture.listed_dense_layers(config, values, 1)
    return {**_keys_of_3(config, values), "first_dense_layers": dense}


def latent_keys(config: ModelConfig, values: Values) -> Keys:
    """The keys of latent attention, and of its YaRN."""
    latent, rotated = latent_sizes(config, values)
    keys: dict[str, object] = {
        "num_kv_heads": 1,  # one latent for all heads
        "head_dim": latent.kv_lora_rank + rotated,
        "value_dim": latent.kv_lora_rank,
        "rope_dim": rotated,
        "latent_key_dim": latent.key_dim,
        "latent_value_dim": latent.value_dim,
        "q_lora_rank": latent.q_lora_rank or None,
        "kv_lora_rank": latent.kv_lora_rank,
    }
    yarn = read_yarn(values, config.context_length)
    if yarn is not None and yarn.mscale_all_dim is not None:
        if abs(yarn.attention_factor - 1) > 1e-6:
            raise UnsupportedError(
                f"{values.source}: RoPE's mscale and mscale_all_dim differ; GGUF has one value"
            )
        keys["rope_attn_factor"] = None
        keys["yarn_log_multiplier"] = _LOG_MULTIPLIER * yarn.mscale_all_dim
    return keys


def _indexed_keys(config: ModelConfig, values: Values) -> Keys:
    """Return also the keys of indexers, and the number of dense layers, which are listed."""
    refuse_other(
        values,
        {
            "attention_bias": (None, False),
            "mlp_bias": (None, False),
            "layer_types": (None, ["indexed_attention"] * config.num_layers),
        },
    )
    keys: dict[str, object] = {
        **_keys_of_3(config, values),
        "attention.indexer.head_count": values.size("index_n_heads", "num_heads"),
        "attention.indexer.key_length": values.size("index_head_dim", "head_dim"),
        "indexer_top_k": values.size("index_topk", "indexer_top_k"),
        "first_dense_layers": mixture.listed_dense_layers(
            config, values, min(config.num_layers, mixture.dense_layers(values))
        ),
    }
    kinds = values.values.get("indexer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != config.num_layers:
            raise values.error("indexer_types", "must have a value for each layer")
        keys["attention.indexer.types"] = np.array([kind == "full" for kind in kinds], np.bool_)
    return keys


def _indexed_table(config: ModelConfig, values: Values) -> Table:
    """Return a layer with its indexer, which layers that share another's do not have."""
    latent = config.latent
    rank, size = latent.q_lora_rank if latent else 0, values.size("index_head_dim", "head_dim")
    heads = values.size("index_n_heads", "num_heads")
    rows = {
        "indexer.attn_q_b": at("self_attn.indexer.wq_b", shape=(heads * size, rank)),
        "indexer.attn_k": at("self_attn.indexer.wk", shape=(size, config.hidden_size)),
        "indexer.k_norm": at("self_attn.indexer.k_norm", shape=(size,)),
        "indexer.k_norm.bias": TableRow(
            (Stored(("self_attn.indexer.k_norm.bias",)),), shape=(size,)
        ),
        "indexer.proj": at("self_attn.indexer.weights_proj", shape=(heads, config.hidden_size)),
    }
    return {
        **latent_table(config, values, mixture.CHOSEN_WITH_BIAS),
        **{name: replace(row, optional=True) for name, row in rows.items()},
    }


def _prepared_sarvam(values: Values) -> Values:
    """Return the values of Sarvam 105B in DeepSeek V3's words."""
    given = {key: value for key, value in values.values.items() if key != "head_dim"}
    scaling = given.get("rope_scaling")
    if isinstance(scaling, dict) and "deepseek_yarn" in (
        scaling.get("type"), scaling.get("rope_type")
    ):  # fmt: skip
        given["rope_scaling"] = {**scaling, "type": "yarn", "rope_type": "yarn"}
    return Values(given, values.source)


def latent_family(
    class_name: str, architecture: str, layer: Tables, keys: Callable[[ModelConfig, Values], Keys],
    defaults: Mapping[str, object], rope_types: tuple[str, ...] = ROPE_TYPES,
) -> Family:  # fmt: skip
    """A class of layers with latent attention and experts; ``keys`` as of ``Family``."""
    return Family(
        classes={class_name: architecture},
        layer=layer,
        keys=keys,
        unused=mixture.unused,
        drafting=mixture.drafting(layer),
        drafting_key=mixture.DRAFTING_KEY,
        defaults={"kv_lora_rank": 512, "q_lora_rank": 1536, **defaults},
        rope_types=rope_types,
        experts=ExpertTerms(("n_routed_experts", "num_experts")),
    )


_LAYER_OF_2 = partial(latent_table, feed_forward=mixture.FEED_FORWARD)
_LAYER_OF_3 = partial(latent_table, feed_forward=mixture.CHOSEN_WITH_BIAS)
_DEFAULTS_OF_3 = {
    "n_shared_experts": 1, "first_k_dense_replace": 3, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
}  # fmt: skip
_DEFAULTS_OF_GLM = {
    "n_shared_experts": 1, "norm_topk_prob": True, "n_group": 1, "topk_group": 1,
    "rms_norm_eps": 1e-5, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
}  # fmt: skip
FAMILIES = (
    latent_family(
        "DeepseekV2ForCausalLM", "deepseek2", _LAYER_OF_2, _keys_of_2, {"n_shared_experts": 2}
    ),
    replace(
        latent_family(
            "DeepseekV3ForCausalLM", "deepseek2", _LAYER_OF_3, _keys_of_3, _DEFAULTS_OF_3
        ),
        wrappers={
            "KimiVLForConditionalGeneration": "deepseek2",
            "KimiK25ForConditionalGeneration": "deepseek2",
        },
    ),
    # Youtu LLM: latent attention, and no experts.
    replace(
        latent_family(
            "YoutuForCausalLM", "deepseek2", partial(latent_table, feed_forward=gated()),
            _dense_keys,
            {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
             "num_key_value_heads": 16, "tie_word_embeddings": True},
        ),
        experts=None,
        unused="",
        drafting=(),
        drafting_key="",
    ),
    latent_family(
        "DeepseekV32ForCausalLM", "deepseek32", _indexed_table, _indexed_keys,
        {**_DEFAULTS_OF_3, "head_dim": 64, "index_topk": 2048, "index_n_heads": 64,
         "index_head_dim": 128},
    ),
    latent_family(
        "GlmMoeDsaForCausalLM", "glm-dsa", _indexed_table, _indexed_keys,
        {**_DEFAULTS_OF_GLM, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5,
         "head_dim": 64, "q_lora_rank": 2048, "index_topk": 2048, "index_n_heads": 32,
         "index_head_dim": 128},
        rope_types=(),
    ),
    # GLM 4.7 Flash
    latent_family(
        "Glm4MoeLiteForCausalLM", "deepseek2", _LAYER_OF_3, _lite_keys,
        {**_DEFAULTS_OF_GLM, "routed_scaling_factor": 1.8, "q_lora_rank": 768,
         "num_key_value_heads": 20},
    ),
    replace(
        latent_family(
            "SarvamMLAForCausalLM", "deepseek2", _LAYER_OF_3, _keys_of_3,
            {"q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
             "v_head_dim": 128, "n_shared_experts": 1, "first_k_dense_replace": 1,
             "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1},
        ),
        prepare=_prepared_sarvam,
        tokenizer="sarvam-moe",
        older={"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"},
    ),
)  # fmt: skip
