"""Odd values of the keys of a configuration, one at a time or several; without torch."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
# Names of older configurations, which transformers still reads.
OLDER = (
    "rope_theta", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor", "rotary_pct",
    "sliding_window_pattern",
)  # fmt: skip
ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
ROPES: tuple[Json, ...] = (
    {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
    {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
    {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1000.0,
     "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1000.0, "beta_fast": 4.0, "mscale": 0.7,
     "original_max_position_embeddings": 16, "mscale_all_dim": 0.4, "truncate": False},
    {"rope_type": "llama3", "factor": 8.0, "rope_theta": 1000.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 8},
)  # fmt: skip
MAX_CHANGES = 3


def values_of(key: str, base: Json, defaults: Json) -> Iterator[tuple[str, object]]:
    """Yield the odd values of a key, each after its name; Ellipsis removes the key."""
    if key in base:
        yield "absent", ...
    yield "null", None
    default = defaults.get(key)
    if key in defaults and default is not None:
        yield "default", default
    like = base.get(key, default)
    if isinstance(like, bool):
        yield "flipped", not like
    elif isinstance(like, int):
        yield "zero", 0
        yield "one", 1
        yield "double", 2 * like
    elif isinstance(like, float):
        yield "zero", 0.0
        yield "small", like / 4
        yield "large", 3 * like
    elif key in ("rope_parameters", "rope_scaling"):
        yield from ((f"{rope['rope_type']} {number}", rope) for number, rope in enumerate(ROPES))
    elif isinstance(like, str) and "act" in key:
        yield from zip(ACTIVATIONS, ACTIVATIONS, strict=True)
    elif key == "layer_types" and "num_hidden_layers" in base:
        kinds = "sliding_attention", "full_attention"
        for first, second in (kinds, kinds[::-1], kinds[:1] * 2, kinds[1:] * 2):
            listed = [first, *[second] * base["num_hidden_layers"]][: base["num_hidden_layers"]]
            yield f"{first} {second}", listed


def changes(
    base: Json, more: list[str], config_class: Any, unused: Callable[[str], bool]
) -> Iterator[tuple[str, str, Any]]:
    """Yield each key, the kind of odd value, and the value; Ellipsis removes the key."""
    found = {field.name: field for field in dataclasses.fields(config_class)}
    defaults = {
        name: field.default
        if field.default is not dataclasses.MISSING
        else field.default_factory()
        if field.default_factory is not dataclasses.MISSING
        else None
        for name, field in found.items()
    }
    read = (key for key in base if key in found or key in config_class.attribute_map)
    for key in dict.fromkeys((*read, *found, *OLDER, *more)):
        if unused(key):
            continue
        for name, value in values_of(key, base, defaults):
            try:
                json.dumps(None if value is ... else value)
            except TypeError:
                continue
            yield key, name, value


def cases(
    singles: list[tuple[str, str, Any]], seed: int | None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the keys, the kinds of odd values, and the values; without end if there is a seed."""
    yield "", "base", {}
    if seed is None:
        yield from ((key, name, {key: value}) for key, name, value in singles)
        return
    rng = random.Random(seed)
    while True:
        chosen = rng.sample(singles, rng.randint(1, MAX_CHANGES))
        if len({key for key, _, _ in chosen}) == len(chosen):
            keys, names, values = zip(*chosen, strict=True)
            yield "+".join(keys), "+".join(names), dict(zip(keys, values, strict=True))


def changed(base: Json, change: dict[str, Any]) -> Json:
    """Return the configuration with other values; Ellipsis removes a key."""
    inner = base.get("text_config", base)
    values = {key: value for key, value in (inner | change).items() if value is not ...}
    return values if inner is base else {**base, "text_config": values}
