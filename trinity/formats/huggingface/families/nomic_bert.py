"""nomic-bert: an encoder whose queries and keys rotate, with a gated feed-forward.

The names are those of transformers' class and of the older one that came with the models, whose
configuration has GPT-2's words.
Source: transformers NomicBertModel and its conversion_mapping.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import norm, vector
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Module, Stored, rows

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


def _matrix(name: str, shape: tuple[int, int], *sources: str) -> Module:
    forms = tuple(Stored((f"{source}.weight",), shape) for source in sources)
    return Module(f"{name}.weight", shape, forms, "linear")


def _ends(config: HFConfig) -> Iterator[Module]:
    shape = (config.vocab_size, config.hidden_size)
    stored = Stored(("embeddings.word_embeddings.weight",), shape)
    yield Module("token_embd.weight", shape, (stored,), "matrix")
    texts = config.values.size("type_vocab_size", "num_layers", 2)
    name = "embeddings.token_type_embeddings.weight"
    yield vector("token_types.weight", name, (texts, config.hidden_size))
    sources = ("embeddings.LayerNorm", "emb_ln")
    yield from norm("token_embd_norm", sources, config.hidden_size, bias=True)


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width, inner = config.hidden_size, config.intermediate_size, config.query_size
    for number, part in enumerate("qkv"):
        shape = (inner, hidden)
        view = rows(number * inner, (number + 1) * inner)
        together = Stored(("attn.Wqkv.weight",), (3 * inner, hidden), view)
        apart = Stored((f"self_attn.{part}_proj.weight",), shape)
        yield Module(f"attn_{part}.weight", shape, (apart, together), "linear")
    yield _matrix("attn_output", (hidden, inner), "self_attn.o_proj", "attn.out_proj")
    yield from norm("attn_output_norm", ("post_attention_layernorm", "norm1"), hidden, bias=True)
    yield _matrix("ffn_gate", (width, hidden), "mlp.gate_proj", "mlp.fc12")
    yield _matrix("ffn_up", (width, hidden), "mlp.up_proj", "mlp.fc11")
    yield _matrix("ffn_down", (hidden, width), "mlp.down_proj", "mlp.fc2")
    yield from norm("layer_output_norm", ("post_mlp_layernorm", "norm2"), hidden, bias=True)


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
        layer=_layer,
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
