"""Classes that end in ForSequenceClassification: a classifier where others have their output."""

from __future__ import annotations

from dataclasses import replace

from trinity.config import POOLING_RANK, ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import PLAIN_ENDS, Table, at
from trinity.formats.huggingface.values import Values

CLASSIFIES = "ForSequenceClassification"
_WRITES = "ForCausalLM"
_SEVERAL = "multi_label_classification"


def label_count(values: Values) -> int:
    """Return the rows of the classifier. Source: transformers' PreTrainedConfig, num_labels."""
    labels = values.values.get("id2label")
    if isinstance(labels, dict) and labels:
        return len(labels)
    return values.size("num_labels", "num_layers", 2)


def label_keys(values: Values) -> dict[str, object]:
    """Return GGUF's key of the classifier's labels, and trinity's if several may apply to a text.

    Source: transformers' PreTrainedConfig, id2label and problem_type.
    """
    named, count = values.values.get("id2label"), label_count(values)
    names = named if isinstance(named, dict) else {}
    labels = [names.get(str(i)) for i in range(count)]
    keys: dict[str, object] = {
        "classifier.output_labels": [
            label if isinstance(label, str) else f"LABEL_{i}" for i, label in enumerate(labels)
        ]
    }
    if values.values.get("problem_type") == _SEVERAL:
        keys["classifier.problem_type"] = _SEVERAL
    return keys


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
        wrappers={},
        ends=ends,
        keys=keys,
        unused=r"lm_head\..*",
        headless=True,
    )


def _named(class_name: str) -> str:
    return class_name.removesuffix(_WRITES) + CLASSIFIES
