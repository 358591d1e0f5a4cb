"""Keys and tensors of files of every registered family.

Both follow from the registry, so each registered family is fuzzed. A field's values are near the
example of its declaration; only those that depend on others are written here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from tests.fuzzing.gguf_draft import ARRAY, BOOL, F32, STRING, U32, Draft, Value
from trinity.config import ModelConfig
from trinity.errors import ConfigError, TrinityError
from trinity.formats.config_limits import declared, examples, gguf_key
from trinity.formats.configuration import config_from_metadata
from trinity.models import ARCHITECTURES, decoder_of
from trinity.models.decoder import Decoder

Shape = tuple[int, ...]
# Those with ternary weights, and llama, more often than the others.
NAMES = (*("llama", "bitnet", "bitnet-b1.58", "bitnet-25") * 4, *sorted(ARCHITECTURES))
_SIZES = (8, 16, 32, 64)
_OF_KINDS = ("latent", "ssm", "short_conv_kernel", "kda_conv_kernel")  # layers of another kind
_FIELDS = [name for name, _ in declared(ModelConfig)]
_USUAL = {"llama", "bitnet", "bitnet-b1.58", "bitnet-25"}


def add_keys(draft: Draft, family: str, layers: int, rng: random.Random) -> None:
    """Add the keys that ``family`` needs, and sometimes others."""
    needed = set(ARCHITECTURES[family].needs)
    often = 0.01 if family in _USUAL else 0.2
    heads = draft.find(f"{family}.attention.head_count")
    assert heads is not None
    keys = _keys(layers, int(str(heads.content)), rng)
    kinds = _kinds(family, layers, int(str(heads.content)), rng)
    for field in ("ssm", "short_conv_kernel"):
        keys[field] |= kinds
    if family.startswith("kimi") and "attention.key_length_mla" in keys["latent"]:
        recurrent = [rng.random() < 0.6 for _ in range(layers - 1)]
        one = Value(ARRAY, [*(int(not state) for state in recurrent), 1], U32)
        keys["latent"]["attention.head_count_kv"] = one
    more = [field for field in keys if rng.random() < often and field not in _OF_KINDS]
    for chosen in (sorted(needed | {*more}), sorted(needed)):
        keys_before = list(draft.keys)
        for field in chosen:
            for key, value in keys[field].items():
                draft.set(f"{family}.{key}", value)
        try:
            shapes_of(draft, 100, random.Random(0))
        except TrinityError:  # what it does not need can contradict the rest
            draft.keys = keys_before
        else:
            return


def _keys(layers: int, heads: int, rng: random.Random) -> dict[str, dict[str, Value]]:
    """Return the keys of each field."""
    window = {"attention.sliding_window": Value(U32, rng.choice((1, 3, 16, 1000)))}
    pattern = Value(ARRAY, [rng.random() < 0.5 for _ in range(layers)], BOOL)
    if rng.random() < 0.2:
        pattern = Value(U32, rng.choice((1, 2, 3, 1024)))
    simple = {
        name: {gguf_key(name): _near(example, rng)}
        for name, example in examples(_FIELDS, layers).items()
    }
    return simple | {
        "sliding_window": window,
        "sliding_window_pattern": window | {"attention.sliding_window_pattern": pattern},
        "shared_kv_layers": {"attention.shared_kv_layers": Value(U32, rng.randrange(layers))},
        "experts": _experts(layers, rng),
        "latent": _latent(heads, rng),
        "ssm": _ssm(rng),
    }


def _near(example: object, rng: random.Random) -> Value:
    """Return a value like that of a field's example."""
    if isinstance(example, tuple):
        items = [_near(item, rng) for item in example]
        return Value(ARRAY, [item.content for item in items], items[0].type)
    if isinstance(example, bool):
        return Value(BOOL, rng.random() < 0.5)
    if isinstance(example, int):
        return Value(U32, example * rng.choice((1, 2)))
    assert isinstance(example, float)
    return Value(F32, example * rng.choice((0.1, 0.5, 1.0, 4.0, 15.0)))


def _real(rng: random.Random) -> Value:
    return Value(F32, rng.choice((0.05, 0.5, 1.0, 7.0, 30.0)))


def _experts(layers: int, rng: random.Random) -> dict[str, Value]:
    count = rng.choice((1, 2, 4, 8))
    found = {
        "expert_count": Value(U32, count),
        "expert_used_count": Value(U32, rng.randrange(count) + 1),
        "expert_feed_forward_length": Value(U32, rng.choice(_SIZES)),
    }
    if rng.random() < 0.3:
        found["expert_shared_feed_forward_length"] = Value(U32, rng.choice(_SIZES))
    elif rng.random() < 0.3:
        found["expert_shared_count"] = Value(U32, rng.choice((1, 2)))
    if rng.random() < 0.3:
        found["expert_gating_func"] = Value(U32, rng.choice((1, 2, 3)))
        found["expert_weights_norm"] = Value(BOOL, rng.random() < 0.5)
        found["expert_weights_scale"] = _real(rng)
        found["leading_dense_block_count"] = Value(U32, rng.randrange(layers + 1))
    if count == 8 and rng.random() < 0.3:
        found |= {
            "expert_group_count": Value(U32, 4),
            "expert_group_used_count": Value(U32, 4),
        }
    return found


def _latent(heads: int, rng: random.Random) -> dict[str, Value]:
    rank, plain, values = rng.choice(_SIZES), rng.choice(_SIZES), rng.choice(_SIZES)
    turned = rng.choice((2, 8))
    found = {
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": turned,
        "attention.key_length": plain + turned,
        "attention.value_length": values,
        "attention.head_count_kv": heads,
    }
    if rng.random() < 0.7:
        found |= {
            "attention.key_length_mla": plain + turned,
            "attention.value_length_mla": values,
            "attention.key_length": rank + turned,
            "attention.value_length": rank,
            "attention.head_count_kv": 1,
        }
    if rng.random() < 0.5:
        found["attention.q_lora_rank"] = rng.choice(_SIZES)
    return {key: Value(U32, value) for key, value in found.items()}


def _ssm(rng: random.Random) -> dict[str, Value]:
    groups = rng.choice((1, 2))
    heads = groups * rng.choice((1, 2, 3))
    found = {
        "ssm.conv_kernel": rng.choice((2, 3, 4)),
        "ssm.state_size": rng.choice((1, 7, 16)),
        "ssm.group_count": groups,
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * rng.choice((1, 16, 19)),
    }
    return {key: Value(U32, value) for key, value in found.items()}


def _kinds(family: str, layers: int, heads: int, rng: random.Random) -> dict[str, Value]:
    """Choose the recurrent layers; the last layer has attention."""
    recurrent = [*(rng.random() < 0.6 for _ in range(layers - 1)), False]
    if family.startswith("mamba"):
        none = Value(U32, 0)
        return {"attention.head_count": none, "feed_forward_length": none}
    if not ARCHITECTURES[family].mixed:
        return {"attention.recurrent_layers": Value(ARRAY, recurrent, BOOL)}
    found = {"attention.head_count_kv": Value(ARRAY, [0 if r else heads for r in recurrent], U32)}
    if family.startswith("nemotron"):
        sizes = [32 if r and rng.random() < 0.5 else 0 for r in recurrent]
        found["feed_forward_length"] = Value(ARRAY, sizes, U32)
    return found


def shapes_of(draft: Draft, vocab: int, rng: random.Random) -> dict[str, Shape]:
    """Name and shape (rows first) of the tensors that the model of the draft's keys has.

    Optional ones are there or not. Raises ConfigError where the keys describe none.
    """
    untied: dict[str, Shape] = {"output.weight": ()} if rng.random() < 0.4 else {}
    config = config_from_metadata(metadata_of(draft), untied, source="draft", num_tokens=vocab)
    architecture = ARCHITECTURES[config.architecture]
    config = architecture.completed(config)
    chance = 0.05 if config.architecture in _USUAL else 0.3
    for names in (_Sometimes(chance, rng), frozenset[str]()):
        decoder = Decoder(architecture, config, names)
        needed, optional = decoder.tensors(), decoder.optional_tensors()
        shapes = needed | {
            name: shape
            for name, shape in optional.items()
            if name not in needed and rng.random() < 0.05
        }
        try:
            decoder_of(config, shapes, shapes.__getitem__, "draft")
        except TrinityError:  # forms of a file that exclude each other
            continue
        return shapes
    raise ConfigError("draft: no forms of tensors that go together")


def metadata_of(draft: Draft) -> Mapping[str, object]:
    """Return a draft's keys and values as a reader sees them."""
    found: dict[str, object] = {}
    for key, value in draft.keys:
        content = value.content
        if value.type == BOOL:
            content = bool(content)
        elif value.type == ARRAY and value.element not in (ARRAY, STRING):
            content = np.array(content, np.bool_ if value.element == BOOL else None)
        found.setdefault(key, content)
    return found


class _Sometimes(set[str]):
    """A file's names, each of which exists at random."""

    def __init__(self, chance: float, rng: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._rng = rng
        self._known: dict[object, bool] = {}

    def __contains__(self, name: object) -> bool:
        return self._known.setdefault(name, self._rng.random() < self._chance)
