"""A model as its config.json describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import common_config, with_defaults
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.quantization import TernaryPacking, read_quantization
from trinity.formats.huggingface.rope import RopeParameters, Tensors
from trinity.formats.huggingface.values import Values


@dataclass(frozen=True, slots=True)
class HFModel:
    """The family of a class, and its config.json as a ``ModelConfig``."""

    family: Family
    # config.json, with the class's defaults.
    values: Values
    # The fields that every class has; ``sliding_window_pattern`` has a bool for each layer.
    config: ModelConfig
    rope: RopeParameters
    # The fields of the family's own, and None for fields that GGUF does not have of it.
    own_fields: Mapping[str, object]
    # Whether the output's matrix is the embedding; None: config.json does not say.
    tied: bool | None
    # How ternary weights are stored; None: the weights are not ternary.
    ternary: TernaryPacking | None

    @property
    def unused(self) -> str:
        """A regular expression for tensors that the class loads and does not use."""
        unused = self.family.unused
        return unused if isinstance(unused, str) else unused(self.config, self.values)

    def rope_factors(self) -> Tensors:
        """GGUF's tensors of divisors of rotary frequencies."""
        own = self.own_fields.get("rope_dim")
        rope_dim = own if isinstance(own, int) else self.config.rope_dim
        tensors = self.rope.scaling.tensors(self.rope.theta, rope_dim)
        if not self.family.whole_factors:
            return tensors
        more = np.ones(self.config.head_dim // 2 - rope_dim // 2, np.float32)
        return {name: np.append(values, more) for name, values in tensors.items()}


def hf_model(given: Mapping[str, object], source: str, family: Family) -> HFModel:
    """Return the model that the object ``given`` of the file ``source`` describes.

    Raises ConfigError for missing, impossible or contradictory values; UnsupportedError for what
    trinity does not support or GGUF cannot express for the architecture.
    """
    values = family.prepare(with_defaults(given, source, family))
    config, rope = common_config(values, family)
    tied = values.flag("tie_word_embeddings") if values.has("tie_word_embeddings") else None
    ternary = read_quantization(values, family.quantization)
    if ternary is None and family.ternary:
        ternary = TernaryPacking(packed=False)
    config = replace(config, architecture=family.architecture(config, values))
    fields = {name: values.of_field(key, name) for name, key in family.fields.items()}
    windows = window_keys(config, family.windows)
    family.check(config, values)
    own_fields = {**fields, **windows, **family.keys(config, values)}
    return HFModel(family, values, config, rope, own_fields, tied, ternary)
