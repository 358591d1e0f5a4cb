"""Classes that end in ForSequenceClassification: a classifier where others have their output."""

from __future__ import annotations

from dataclasses import replace

from trinity.config import POOLING_RANK, ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import PLAIN_ENDS, Table, at
from trinity.formats.huggingface.values import Values

CLASSIFIES = "ForSequenceClassification"
_WRITES = "ForCausalLM"


def label_count(values: Values) -> int:
    """Return the rows of the classifier. Source: transformers' PreTrainedConfig, num_labels."""
    labels = values.values.get("id2label")
    if isinstance(labels, dict) and labels:
        return len(labels)
    return values.size("num_labels", "num_layers", 2)


def label_keys(values: Values) -> dict[str, object]:
    """Return GGUF's key of the classifier's labels."""
    return {"classifier.output_labels": [f"LABEL_{i}" for i in range(label_count(values))]}


def with_classifier(family: Family) -> Family:
    """Return the family of the same classes with a classifier of the last token's state.

    With one label it is a reranker. Source: transformers, GenericForSequenceClassification.
    """

    def ends(config: ModelConfig, values: Values) -> Table:
        shape = (label_count(values), config.hidden_size)
        return {**PLAIN_ENDS, "cls.output": at("score", shape=shape)}

    def keys(config: ModelConfig, values: Values) -> Keys:
        ranks = {"pooling_type": POOLING_RANK} if label_count(values) == 1 else {}
        return {**family.keys(config, values), **label_keys(values), **ranks}

    return replace(
        family,
        classes={_named(name): value for name, value in family.classes.items()},
        ends=ends,
        keys=keys,
        unused=r"lm_head\..*",
        headless=True,
    )


def _named(class_name: str) -> str:
    return class_name.removesuffix(_WRITES) + CLASSIFIES
