"""mistral4: Mistral Small 4, DeepSeek's layers (deepseek2.py) with queries that grow with position.

Source: transformers' Mistral4.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.family import Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.rope import read_yarn, rope_parameters
from trinity.formats.huggingface.table import TableRow, experts
from trinity.formats.huggingface.values import Values
from trinity.models.deepseek2 import latent_family, latent_keys, latent_table

# The class's default.
_YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 128.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 8192, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}  # fmt: skip


def _prepared(values: Values) -> Values:
    """Return the values without the rotated share of a head, which other keys say, too."""
    given = {key: value for key, value in values.values.items() if key != "head_dim"}
    if isinstance(parameters := given.get("rope_parameters"), dict):
        rotated, plain = (
            values.size(key, "rope_dim", default)
            for key, default in (("qk_rope_head_dim", 64), ("qk_nope_head_dim", 64))
        )
        share = parameters.get("partial_rotary_factor")
        if share not in (None, rotated / (rotated + plain)):
            raise UnsupportedError(
                f"{values.source}: partial_rotary_factor is {share!r:.40}; qk_rope_head_dim and "
                f"qk_nope_head_dim make {rotated / (rotated + plain)}"
            )
        kept = {key: one for key, one in parameters.items() if key != "partial_rotary_factor"}
        given["rope_parameters"] = kept
    return Values(given, values.source)


def _keys(config: ModelConfig, values: Values) -> Keys:
    """The keys of DeepSeek's layers, and how queries grow in steps of YaRN's original context."""
    refuse_other(
        values,
        {
            "rope_interleave": (None, True), "n_group": (None, 1), "topk_group": (None, 1),
            "attention_bias": (None, False),
        },
    )  # fmt: skip
    parameters, yarn = rope_parameters(values), read_yarn(values, config.context_length)
    keys: dict[str, object] = {
        **latent_keys(config, values),
        **mixture.keys_of_experts(config, values, sigmoid=False, grouped=False),
    }
    if yarn is None or not parameters.has("llama_4_scaling_beta"):
        raise UnsupportedError(
            f"{parameters.source}: rope_type must be yarn, with a value for llama_4_scaling_beta"
        )
    keys["temperature_scale"] = parameters.real("llama_4_scaling_beta", "temperature_scale")
    keys["temperature_length"] = yarn.original_context_length
    return keys


_LAYER = partial(
    latent_table,
    feed_forward={
        **mixture.FEED_FORWARD,
        # A checkpoint usually has one tensor for all experts of a layer, so that form comes first.
        **{
            name: replace(row, forms=(*row.forms[1:], row.forms[0]))
            for name, row in experts("mlp.experts").items()
            if isinstance(row, TableRow)
        },
    },
)
FAMILY = replace(
    latent_family(
        "Mistral4ForCausalLM", "mistral4", _LAYER, _keys,
        {"kv_lora_rank": 256, "q_lora_rank": 1024, "qk_nope_head_dim": 64,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "n_shared_experts": 1,
         "norm_topk_prob": True, "rope_parameters": _YARN},
        rope_types=("yarn",),
    ),
    wrappers={"Mistral3ForConditionalGeneration": "mistral4"},
    prepare=_prepared,
    inner_type="mistral4",
)  # fmt: skip
