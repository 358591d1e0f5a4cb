"""PEFT's adapter_config.json: the scale of each module, and settings that are not supported.

Source: PEFT's LoraConfig and LoraLayer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trinity.errors import ConfinedError, ConfinedUnavailableError, FormatError, UnsupportedError
from trinity.formats.huggingface.values import shown
from trinity.processes.confined import Confined

# Keys that change more than pairs of matrices, and what they mean.
_NO_PAIRS = {
    "use_dora": "DoRA, which scales the whole weight",
    "modules_to_save": "whole tensors that replace the model's",
    "trainable_token_indices": "rows that replace the embedding's",
    "lora_bias": "biases",
    "alora_invocation_tokens": "an activated LoRA, which begins at certain tokens",
    "invocation_string": "an activated LoRA, which begins at certain tokens",
    "use_qalora": "QALoRA, whose pairs act on pooled inputs",
    "layer_replication": "a model with repeated layers",
    "arrow_config": "a mixture of adapters",
    "use_bdlora": "block-diagonal LoRA",
    "kasa_config": "KaSA",
    "velora_config": "VeLoRA",
    "monteclora_config": "MonteCLoRA",
    "megatron_config": "an adapter of Megatron's layers",
}
# Initializations that also change the base's weights.
_CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_PLAIN = re.compile(r"[\w\-.]+")
_MATCHER = Confined("trinity.formats.adapters.module_patterns", memory_bytes=64 << 20, seconds=1.0)


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """The part of a LoraConfig that is needed to run it. ``source`` names the file in errors."""

    source: str
    alpha: float
    rank_stabilized: bool
    ties_embeddings: bool
    target_parameters: tuple[str, ...]
    alphas: Mapping[str, float] = field(default_factory=dict)

    def scales(self, ranks: Mapping[str, int]) -> dict[str, float]:
        """Return the factor of b @ a for each module, given the rank of its pair.

        Raises FormatError if a pattern cannot be matched.
        """
        alphas = dict.fromkeys(ranks, self.alpha) | _matched(self.alphas, list(ranks), self.source)
        return {
            module: alphas[module] / (math.sqrt(rank) if self.rank_stabilized else rank)
            for module, rank in ranks.items()
        }


def peft_config(values: Mapping[str, object], source: str) -> PeftConfig:
    """Read the configuration in the object ``values`` of the file ``source``.

    Raises UnsupportedError for an adapter that is more than pairs of matrices, FormatError for
    impossible values.
    """
    kind = values.get("peft_type")
    if kind != "LORA":
        raise UnsupportedError(
            f"{source}: peft_type is {shown(kind)}, which is not supported; trinity applies "
            "adapters of type LORA"
        )
    for key, what in _NO_PAIRS.items():
        if values.get(key):
            raise UnsupportedError(
                f"{source}: {key} is {shown(values[key])}: {what}, which is not supported; "
                "trinity applies pairs of matrices: merge the adapter into its model with PEFT, "
                "and convert the result"
            )
    for key, value in values.items():
        if key.startswith("use_") and key != "use_rslora" and value:
            raise UnsupportedError(
                f"{source}: {key} is {shown(value)}, which this version of trinity does not "
                "support; merge the adapter into its model with PEFT, and convert the result"
            )
    if values.get("bias") not in (None, "none"):
        raise UnsupportedError(
            f"{source}: bias is {shown(values['bias'])}: the adapter replaces biases, which is "
            "not supported; merge it into its model with PEFT, and convert the result"
        )
    start = values.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASE):
        raise UnsupportedError(
            f"{source}: init_lora_weights is {start[:40]!r}: the pairs need a base that was "
            "changed with them; save the adapter again with "
            "path_initial_model_for_weight_conversion"
        )
    targets = values.get("target_parameters") or ()
    if not isinstance(targets, Sequence) or not all(isinstance(t, str) for t in targets):
        raise FormatError(
            f"{source}: target_parameters is {shown(targets)}; expected a list of names"
        )
    return PeftConfig(
        source,
        _number(values.get("lora_alpha", 8), f"{source}: lora_alpha"),
        _flag(values, "use_rslora", source),
        _flag(values, "ensure_weight_tying", source),
        tuple(targets),
        _alphas(values.get("alpha_pattern"), source),
    )


def _flag(values: Mapping[str, object], key: str, source: str) -> bool:
    value = values.get(key) or False
    if not isinstance(value, bool):
        raise FormatError(f"{source}: {key} is {shown(value)}; it must be true or false")
    return value


def _number(value: object, where: str) -> float:
    # Far beyond any real factor, but still a float.
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e9:
        return float(value)
    raise FormatError(f"{where} is {shown(value)}; it must be a number: the file is damaged")


def _alphas(value: object, source: str) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"{source}: alpha_pattern is {shown(value)}; it must be an object")
    return {
        pattern: _number(alpha, f"{source}: alpha_pattern of {pattern[:60]!r}")
        for pattern, alpha in value.items()
    }


def _matched(alphas: Mapping[str, float], modules: list[str], source: str) -> dict[str, float]:
    """Return the alpha of each module that a pattern matches; the first match wins."""
    patterns = list(alphas)
    if all(_PLAIN.fullmatch(pattern) for pattern in patterns):
        by_module = {}
        for module in modules:
            parts = module.split(".")
            ends = {".".join(parts[start:]) for start in range(len(parts))}
            first = next((pattern for pattern in patterns if pattern in ends), None)
            if first is not None:
                by_module[module] = alphas[first]
        return by_module
    try:
        places = _MATCHER.call({"patterns": patterns, "modules": modules})
    except ConfinedUnavailableError:
        raise
    except ConfinedError as error:
        raise FormatError(
            f"{source}: the patterns of alpha_pattern, {shown(patterns)}, cannot be matched: "
            f"{error.reason}"
        ) from None
    return {
        module: alphas[patterns[place]]
        for module, place in zip(modules, places, strict=True)
        if place is not None
    }
