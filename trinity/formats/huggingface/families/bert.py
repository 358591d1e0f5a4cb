"""BERT and XLM-RoBERTa: encoders that give vectors, and rerankers with a classifier of pairs.

A classifier stands behind a layer with tanh: BERT's pooler, or XLM-RoBERTa's own. XLM-RoBERTa's
positions begin behind that of padding, and both texts of a pair are of the first type.
Source: transformers BertModel, XLMRobertaModel and their ForSequenceClassification.
"""

from __future__ import annotations

from functools import partial

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.classifier import CLASSIFIES, label_count, label_keys
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Stored, as_it_is, rows
from trinity.formats.huggingface.table import Table, TableRow, at
from trinity.formats.huggingface.values import Values

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


def _keys(config: HFConfig) -> Keys:
    kind = config.values.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnsupportedError(
            f"{config.source}: position_embedding_type is {kind!r:.40}; trinity reads a "
            f"{config.class_name} with absolute positions"
        )
    for key in ("is_decoder", "add_cross_attention"):
        if config.values.flag(key):
            raise UnsupportedError(
                f"{config.source}: {key} is true; trinity reads a {config.class_name} as an encoder"
            )
    before = _before(config.values, "Roberta" in config.class_name)
    keys: dict[str, object] = {
        "attention.causal": False,
        "context_length": config.context_length - before,
        "attention.head_count_kv": None, "attention.key_length": None,
        "attention.value_length": None, "rope.dimension_count": None, "rope.freq_base": None,
    }  # fmt: skip
    if config.class_name.endswith(CLASSIFIES):
        keys |= label_keys(config)
    return keys


def _unused(config: HFConfig) -> str:
    """What was there for training, and in models that give vectors the pooler."""
    pooler = r"" if config.class_name.endswith(CLASSIFIES) else r"pooler\..*|"
    return pooler + r"embeddings\.position_ids|cls\..*|lm_head\..*"


FAMILIES = tuple(
    Family(
        class_names=(f"{name}{suffix}",),
        architectures={"gelu": "bert"},
        layer=_LAYER,
        ends=partial(_ends, roberta="Roberta" in name, ranks=suffix == CLASSIFIES),
        keys=_keys,
        unused=_unused,
        terms=Terms(
            defaults={"layer_norm_eps": 1e-12, "hidden_act": "gelu"}, epsilon="layer_norm_eps"
        ),
        renames=_RENAMES,
        headless=True,
    )
    for suffix in ("Model", CLASSIFIES)
    for name in ("Bert", "XLMRoberta")
)
