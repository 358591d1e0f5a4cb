"""Classes that end in ForSequenceClassification: a classifier where others have their output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trinity.formats.huggingface.config import HFConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Module, Stored
from trinity.formats.pooling_type import RANKS

CLASSIFIES = "ForSequenceClassification"
_WRITES = "ForCausalLM"


def label_count(config: HFConfig) -> int:
    """Rows of the classifier. Source: transformers' PreTrainedConfig, num_labels."""
    labels = config.values.values.get("id2label")
    if isinstance(labels, dict) and labels:
        return len(labels)
    return config.values.size("num_labels", "num_layers", 2)


def label_keys(config: HFConfig) -> dict[str, object]:
    """GGUF's key of the classifier's labels."""
    return {"classifier.output_labels": [f"LABEL_{i}" for i in range(label_count(config))]}


def with_classifier(family: Family) -> Family:
    """The family of the same classes with a classifier of the last token's state.

    With one label it makes a reranker. Source: transformers, GenericForSequenceClassification.
    """

    def ends(config: HFConfig) -> Iterator[Module]:
        yield from family.ends(config)
        shape = (label_count(config), config.hidden_size)
        yield Module("cls.output.weight", shape, (Stored(("score.weight",), shape),), "matrix")

    def keys(config: HFConfig) -> Keys:
        ranks = {"pooling_type": RANKS} if label_count(config) == 1 else {}
        return {**family.keys(config), **label_keys(config), **ranks}

    return replace(
        family,
        class_names=_named(family.class_names),
        ends=ends,
        keys=keys,
        unused=lambda config: r"lm_head\..*",
        headless=True,
    )


def _named(class_names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.removesuffix(_WRITES) + CLASSIFIES for name in class_names)
