"""nomic-bert: an encoder whose queries and keys rotate, with a gated feed-forward.

The names are those of transformers' class and of the older one that came with the models, whose
configuration has GPT-2's words.
Source: transformers NomicBertModel and its conversion_mapping.py.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Stored, part
from trinity.formats.huggingface.table import Table, TableRow, at
from trinity.formats.huggingface.values import Values

_OLDER = {
    "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner", "layer_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function", "rope_theta": "rotary_emb_base",
    "partial_rotary_factor": "rotary_emb_fraction",
}  # fmt: skip
# Of the older configuration: what trinity's nomic-bert is without.
_WITHOUT = (
    "prenorm", "causal", "parallel_block", "use_rms_norm", "qkv_proj_bias", "mlp_fc1_bias",
    "mlp_fc2_bias", "rotary_emb_interleaved", "rotary_emb_scale_base", "moe_every_n_layers",
)  # fmt: skip


def _ends(config: ModelConfig, values: Values) -> Table:
    texts = values.size("type_vocab_size", "num_layers", 2)
    return {
        "token_embd": "embeddings.word_embeddings",
        "token_types": at("embeddings.token_type_embeddings", shape=(texts, config.hidden_size)),
        "token_embd_norm": at("embeddings.LayerNorm", "emb_ln", bias=True),
    }


_LAYER: Table = {
    **{
        f"attn_{name}": TableRow(
            (
                Stored((f"self_attn.{name}_proj.weight",)),
                Stored(("attn.Wqkv.weight",), part(number, 3)),
            )
        )
        for number, name in enumerate("qkv")
    },
    "attn_output": at("self_attn.o_proj", "attn.out_proj"),
    "attn_output_norm": at("post_attention_layernorm", "norm1", bias=True),
    "ffn_gate": at("mlp.gate_proj", "mlp.fc12"),
    "ffn_up": at("mlp.up_proj", "mlp.fc11"),
    "ffn_down": at("mlp.down_proj", "mlp.fc2"),
    "layer_output_norm": at("post_mlp_layernorm", "norm2", bias=True),
}


def _keys(config: HFConfig) -> Keys:
    values = config.values
    for key in _WITHOUT:
        if values.values.get(key):
            raise UnsupportedError(
                f"{config.source}: {key} is {values.values[key]!r:.40}; trinity reads a "
                f"{config.class_name} without it, as nomic-embed-text v1 and v1.5 are"
            )
    return {"attention.causal": False, "attention.head_count_kv": None}


FAMILIES = (
    Family(
        class_names=("NomicBertModel",),
        architectures={"silu": "nomic-bert", "swiglu": "nomic-bert"},
        layer=_LAYER,
        ends=_ends,
        keys=_keys,
        unused=lambda config: r"pooler\..*|embeddings\.position_ids|cls\..*|lm_head\..*",
        terms=Terms(
            defaults={"layer_norm_eps": 1e-12, "rope_theta": 1000.0},
            epsilon="layer_norm_eps",
            context=("max_trained_positions", "max_position_embeddings", "n_positions"),
            rope_types=(),
            older=_OLDER,
        ),
        renames=(("encoder.layers.", "model.layers."), ("layers.", "model.layers.")),
        headless=True,
    ),
)
