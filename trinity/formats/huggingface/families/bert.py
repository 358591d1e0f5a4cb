"""BERT and XLM-RoBERTa: encoders that give vectors, and rerankers with a classifier of pairs.

A classifier stands behind a layer with tanh: BERT's pooler, or XLM-RoBERTa's own. XLM-RoBERTa's
positions begin behind that of padding, and both texts of a pair are of the first type.
Source: transformers BertModel, XLMRobertaModel and their ForSequenceClassification.
"""

from __future__ import annotations

from collections.abc import Iterator

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import linear, norm
from trinity.formats.huggingface.classifier import CLASSIFIES, label_count, label_keys
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Module, Stored, rows

_RENAMES = (
    ("bert.encoder.layer.", "model.layers."),
    ("roberta.encoder.layer.", "model.layers."),
    ("encoder.layer.", "model.layers."),
    ("bert.", ""),
    ("roberta.", ""),
)


def _is_roberta(config: HFConfig) -> bool:
    return "Roberta" in config.class_name


def _before(config: HFConfig) -> int:
    """Rows of the table of positions before the first token's."""
    if not _is_roberta(config):
        return 0
    return config.values.size("pad_token_id", "vocab_size", 1, smallest=0) + 1


def _matrix(name: str, source: str, shape: tuple[int, int], first: int = 0) -> Module:
    stored = Stored((f"{source}.weight",), (shape[0] + first, shape[1]), rows(first))
    return Module(f"{name}.weight", shape, (stored,), "matrix")


def _ends(config: HFConfig) -> Iterator[Module]:
    hidden, before = config.hidden_size, _before(config)
    yield _matrix("token_embd", "embeddings.word_embeddings", (config.vocab_size, hidden))
    positions = config.context_length - before
    yield _matrix("position_embd", "embeddings.position_embeddings", (positions, hidden), before)
    texts = config.values.size("type_vocab_size", "num_layers", 2)
    stored = Stored(
        ("embeddings.token_type_embeddings.weight",), (texts, hidden),
        rows(0, 1) if _is_roberta(config) else rows(0),
    )  # fmt: skip
    kept = 1 if _is_roberta(config) else texts
    yield Module("token_types.weight", (kept, hidden), (stored,), "precise")
    yield from norm("token_embd_norm", "embeddings.LayerNorm", hidden, bias=True)
    if config.class_name.endswith(CLASSIFIES):
        roberta = _is_roberta(config)
        dense = "classifier.dense" if roberta else "pooler.dense"
        yield from linear("cls", dense, hidden, hidden, bias=True)
        output = "classifier.out_proj" if roberta else "classifier"
        yield from linear("cls.output", output, label_count(config), hidden, bias=True)


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width = config.hidden_size, config.intermediate_size
    for part, source in (("q", "query"), ("k", "key"), ("v", "value")):
        yield from linear(f"attn_{part}", f"attention.self.{source}", hidden, hidden, bias=True)
    yield from linear("attn_output", "attention.output.dense", hidden, hidden, bias=True)
    yield from norm("attn_output_norm", "attention.output.LayerNorm", hidden, bias=True)
    yield from linear("ffn_up", "intermediate.dense", width, hidden, bias=True)
    yield from linear("ffn_down", "output.dense", hidden, width, bias=True)
    yield from norm("layer_output_norm", "output.LayerNorm", hidden, bias=True)


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
    keys: dict[str, object] = {
        "attention.causal": False,
        "context_length": config.context_length - _before(config),
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
        class_names=(f"{name}Model", f"{name}{CLASSIFIES}"),
        architectures={"gelu": "bert"},
        layer=_layer,
        ends=_ends,
        keys=_keys,
        unused=_unused,
        terms=Terms(
            defaults={"layer_norm_eps": 1e-12, "hidden_act": "gelu"}, epsilon="layer_norm_eps"
        ),
        renames=_RENAMES,
        headless=True,
    )
    for name in ("Bert", "XLMRoberta")
)
