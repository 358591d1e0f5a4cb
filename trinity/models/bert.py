"""bert (BERT, XLM-RoBERTa) and nomic-bert: encoders with a norm after each branch.

BERT has position embeddings, biases and the exact GELU. nomic-bert rotates queries and keys and has
a gate. There is no norm after the last layer.

A classifier follows a tanh layer: BERT's pooler, or XLM-RoBERTa's own. XLM-RoBERTa's positions
begin after that of padding, and both texts of a pair have the first token type. nomic-bert
checkpoints use the names of transformers' class, or those of the models' own older class, whose
configuration has GPT-2's keys.
Source: llama.cpp src/models/bert.cpp; transformers' BertModel, XLMRobertaModel, NomicBertModel and
their conversion_mapping.py.
"""

from __future__ import annotations

from functools import partial

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.classifier import CLASSIFIES, label_count, label_keys
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Stored, as_it_is, part, rows
from trinity.formats.huggingface.table import Table, TableRow, at
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import AddedRowNames, Architecture, Has
from trinity.models.operations import Norm, Operation


def _norm(config: ModelConfig, weight: str) -> Norm:
    return blocks.norm(config, "x", weight, "x", kind="layer")


def _layer(config: ModelConfig, index: int, has: Has, *, rotates: bool) -> list[Operation]:
    rotation = blocks.rotation_of(config) if rotates else None
    gated = has("ffn_gate")
    return [
        *blocks.projections(config, has, "x", head_norms=False),
        *blocks.attention(config, rotation, both_ways=True),
        blocks.attention_output(config),
        _norm(config, "attn_output_norm"),
        *blocks.feed_forward(
            config, "silu" if gated else "gelu_erf", "x", form="gate and up" if gated else "up"
        ),
        _norm(config, "layer_output_norm"),
    ]


def _prologue(config: ModelConfig) -> list[Operation]:
    return [_norm(config, "token_embd_norm")]


ARCHITECTURES = (
    Architecture(
        ("bert",), partial(_layer, rotates=False), rope_halves=True, prologue=_prologue,
        norm="none", encodes=True, added_rows=AddedRowNames("position_embd", "token_types"),
    ),
    Architecture(
        ("nomic-bert",), partial(_layer, rotates=True), rope_halves=True, prologue=_prologue,
        norm="none", encodes=True, added_rows=AddedRowNames(texts="token_types"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_RENAMES = (
    ("bert.encoder.layer.", "model.layers."),
    ("roberta.encoder.layer.", "model.layers."),
    ("encoder.layer.", "model.layers."),
    ("bert.", ""),
    ("roberta.", ""),
)


def _before(values: Values, roberta: bool) -> int:
    """Rows of the table of positions before the first token's."""
    return values.size("pad_token_id", "vocab_size", 1, smallest=0) + 1 if roberta else 0


def _ends(config: ModelConfig, values: Values, *, roberta: bool, ranks: bool) -> Table:
    hidden = config.hidden_size
    positions = ("embeddings.position_embeddings.weight",)
    texts = 1 if roberta else values.size("type_vocab_size", "num_layers", 2)
    kept = rows(0, 1) if roberta else as_it_is
    types = Stored(("embeddings.token_type_embeddings.weight",), kept)
    table: dict[str, str | TableRow] = {
        "token_embd": "embeddings.word_embeddings",
        "position_embd": TableRow((Stored(positions, rows(_before(values, roberta))),)),
        "token_types": TableRow((types,), shape=(texts, hidden)),
        "token_embd_norm": at("embeddings.LayerNorm", bias=True),
    }
    if ranks:
        dense = "classifier.dense" if roberta else "pooler.dense"
        output = "classifier.out_proj" if roberta else "classifier"
        table["cls"] = at(dense, bias=True, shape=(hidden, hidden))
        table["cls.output"] = at(output, bias=True, shape=(label_count(values), hidden))
    return table


_LAYER: Table = {
    **{
        f"attn_{name[0]}": at(f"attention.self.{name}", bias=True)
        for name in ("query", "key", "value")
    },
    "attn_output": at("attention.output.dense", bias=True),
    "attn_output_norm": at("attention.output.LayerNorm", bias=True),
    "ffn_up": at("intermediate.dense", bias=True),
    "ffn_down": at("output.dense", bias=True),
    "layer_output_norm": at("output.LayerNorm", bias=True),
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    class_name, kind = class_name_of(values), values.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnsupportedError(
            f"{values.source}: position_embedding_type is {kind!r:.40}; trinity reads a "
            f"{class_name} with absolute positions"
        )
    for key in ("is_decoder", "add_cross_attention"):
        if values.flag(key):
            raise UnsupportedError(
                f"{values.source}: {key} is true; trinity reads a {class_name} as an encoder"
            )
    before = _before(values, "Roberta" in class_name)
    keys: dict[str, object] = {
        "attention.causal": False,
        "context_length": config.context_length - before,
        "num_kv_heads": None, "head_dim": None,
        "value_dim": None, "rope_dim": None, "rope_theta": None,
    }  # fmt: skip
    if class_name.endswith(CLASSIFIES):
        keys |= label_keys(values)
    return keys


def _unused(config: ModelConfig, values: Values) -> str:
    """Return a pattern for tensors that only training uses, and in embedders for the pooler."""
    pooler = r"" if class_name_of(values).endswith(CLASSIFIES) else r"pooler\..*|"
    return pooler + r"embeddings\.position_ids|cls\..*|lm_head\..*"


_BERTS = tuple(
    Family(
        classes={f"{name}{suffix}": "bert"},
        activations=("gelu",),
        layer=_LAYER,
        ends=partial(_ends, roberta="Roberta" in name, ranks=suffix == CLASSIFIES),
        keys=_keys,
        unused=_unused,
        defaults={"layer_norm_eps": 1e-12, "hidden_act": "gelu"},
        epsilon="layer_norm_eps",
        renames=_RENAMES,
        headless=True,
    )
    for suffix in ("Model", CLASSIFIES)
    for name in ("Bert", "XLMRoberta")
)

_NOMIC_OLDER = {
    "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner", "layer_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function", "rope_theta": "rotary_emb_base",
    "partial_rotary_factor": "rotary_emb_fraction",
}  # fmt: skip
# Of the older configuration: what trinity's nomic-bert is without.
_NOMIC_WITHOUT = (
    "prenorm", "causal", "parallel_block", "use_rms_norm", "qkv_proj_bias", "mlp_fc1_bias",
    "mlp_fc2_bias", "rotary_emb_interleaved", "rotary_emb_scale_base", "moe_every_n_layers",
)  # fmt: skip


def _nomic_ends(config: ModelConfig, values: Values) -> Table:
    texts = values.size("type_vocab_size", "num_layers", 2)
    return {
        "token_embd": "embeddings.word_embeddings",
        "token_types": at("embeddings.token_type_embeddings", shape=(texts, config.hidden_size)),
        "token_embd_norm": at("embeddings.LayerNorm", "emb_ln", bias=True),
    }


_NOMIC_LAYER: Table = {
    **{
        f"attn_{name}": TableRow((
            Stored((f"self_attn.{name}_proj.weight",)),
            Stored(("attn.Wqkv.weight",), part(number, 3)),
        ))
        for number, name in enumerate("qkv")
    },
    "attn_output": at("self_attn.o_proj", "attn.out_proj"),
    "attn_output_norm": at("post_attention_layernorm", "norm1", bias=True),
    "ffn_gate": at("mlp.gate_proj", "mlp.fc12"),
    "ffn_up": at("mlp.up_proj", "mlp.fc11"),
    "ffn_down": at("mlp.down_proj", "mlp.fc2"),
    "layer_output_norm": at("post_mlp_layernorm", "norm2", bias=True),
}  # fmt: skip


def _nomic_keys(config: ModelConfig, values: Values) -> Keys:
    for key in _NOMIC_WITHOUT:
        if values.values.get(key):
            raise UnsupportedError(
                f"{values.source}: {key} is {values.values[key]!r:.40}; trinity reads a "
                f"{class_name_of(values)} without it, as nomic-embed-text v1 and v1.5 are"
            )
    return {"attention.causal": False, "num_kv_heads": None}


FAMILIES = (
    *_BERTS,
    Family(
        classes={"NomicBertModel": "nomic-bert"},
        activations=("silu", "swiglu"),
        layer=_NOMIC_LAYER,
        ends=_nomic_ends,
        keys=_nomic_keys,
        unused=r"pooler\..*|embeddings\.position_ids|cls\..*|lm_head\..*",
        defaults={"layer_norm_eps": 1e-12, "rope_theta": 1000.0},
        epsilon="layer_norm_eps",
        context=("max_trained_positions", "max_position_embeddings", "n_positions"),
        rope_types=(),
        older=_NOMIC_OLDER,
        renames=(("encoder.layers.", "model.layers."), ("layers.", "model.layers.")),
        headless=True,
    ),
)
