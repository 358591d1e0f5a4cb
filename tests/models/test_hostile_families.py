"""Damaged files of every family give a decoder or a TrinityError."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Callable
from copy import deepcopy
from functools import cache

import pytest

from tests.fuzzing import families, models
from tests.fuzzing.gguf_draft import ARRAY, BOOL, F32, STRING, U32, U64, Draft, Tensor, Value
from trinity.errors import ConfigError, TrinityError, UnsupportedError
from trinity.formats.config_limits import gguf_key
from trinity.formats.configuration import config_from_metadata
from trinity.models import ARCHITECTURES, decoder_of
from trinity.models.decoder import Decoder

SOURCE = "x.gguf"
CHANGES = 60
Change = Callable[[Draft, random.Random], None]


def opened(draft: Draft) -> Decoder:
    """Return the decoder of a draft; errors must name the file."""
    shapes = {tensor.name: tuple(reversed(tensor.dims)) for tensor in draft.tensors}
    tokens = draft.find("tokenizer.ggml.tokens")
    count = len(tokens.content) if tokens and isinstance(tokens.content, list) else None
    try:
        config = config_from_metadata(
            families.metadata_of(draft), shapes, source=SOURCE, num_tokens=count
        )
        return decoder_of(config, shapes.keys(), shapes.__getitem__, SOURCE)
    except TrinityError as error:
        if not str(error).startswith(f"{SOURCE}: "):
            raise RuntimeError("the message names no file") from error
        raise


def sound(name: str, seed: int) -> Draft:
    """Return a valid small file of a family, as the fuzzer makes it."""
    return deepcopy(made(name, seed))


@cache
def made(name: str, seed: int) -> Draft:
    """Make such a file once, which takes ten times a copy of it."""
    draft = models.model(random.Random(f"{name} {seed}"), 0.0, family=name, scaled=False)
    opened(draft)
    return draft


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sound_files_are_taken(name: str) -> None:
    for seed in range(20):
        decoder = opened(sound(name, seed))
        assert all(width > 0 for width in decoder.widths.values())
        if not decoder.states and not ARCHITECTURES[name].mixed:
            assert len(decoder.attention) == decoder.config.num_layers


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_changed_files(name: str) -> None:
    refused = 0
    for seed in range(CHANGES):
        draft = sound(name, seed % 10)
        rng = random.Random(seed)
        for _ in range(rng.choice((1, 1, 2, 3))):
            models.change(draft, rng)
        try:
            opened(draft)
        except TrinityError:
            refused += 1
    assert refused > CHANGES // 10


EDGES = [
    *(Value(U32, number) for number in (0, 1, 3, 1 << 16, 1 << 31, (1 << 32) - 1)),
    Value(U64, 1 << 63), Value(F32, float("nan")), Value(F32, -1.0), Value(STRING, "x"),
    Value(BOOL, 1), Value(ARRAY, [], U32), Value(ARRAY, [1, 2, 3, 4, 5], U32),
    Value(ARRAY, [0, 1], BOOL),
]  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_key_with_every_edge_value(name: str, part: int) -> None:
    draft = sound(name, 0)
    keys = [key for key, _ in draft.keys if key.startswith(f"{name}.")]
    for key in (*keys, *(f"{name}.{key}" for key in models.OPTIONAL_KEYS)):
        for edge in EDGES[part::3]:
            changed = Draft(keys=list(draft.keys), tensors=draft.tensors)
            changed.set(key, edge)
            try:
                opened(changed)
            except TrinityError:
                continue


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tensors_that_are_missing_or_of_another_shape(name: str) -> None:
    draft = sound(name, 1)
    needed = opened(draft).tensors()
    for tensor in draft.tensors:
        others = [other for other in draft.tensors if other is not tensor]
        try:
            without = opened(Draft(keys=draft.keys, tensors=others))
        except ConfigError:
            assert tensor.name in needed
        except UnsupportedError:  # nothing reads V's scale, or the other norms, then
            own = re.sub(r"^blk\.\d+\.", "", tensor.name)
            assert own in ("attn_v.weight", "ssm_dt_norm.weight")
        else:  # then nothing reads it any more
            assert tensor.name not in without.tensors()
        tensor.dims.append(2)
        with pytest.raises(ConfigError) as caught:
            opened(draft)
        del tensor.dims[-1]
        assert repr(tensor.name) in str(caught.value) or tensor.name == "token_embd.weight"


@pytest.mark.parametrize("window", [1 << 31, 1 << 32])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_windows_that_are_none(name: str, window: int) -> None:
    draft = sound(name, 2)
    draft.set(f"{name}.attention.sliding_window", Value(U64, window))
    with pytest.raises(ConfigError, match=rf"{name}\.attention\.sliding_window .* is {window}"):
        opened(draft)


@pytest.mark.full
def test_experts_that_a_file_names_and_does_not_have() -> None:
    """With a tensor for each expert, a few tensors suffice to find that others are missing."""
    layers, experts = 512, 4096
    draft = sound("llama", 4)
    for key, size in {
        "block_count": layers,
        "attention.head_count_kv": 1,
        "expert_count": experts,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
    }.items():
        draft.set(f"llama.{key}", Value(U32, size))
    names = [tensor.name for tensor in draft.tensors]
    for layer in range(1, layers):
        draft.tensors += [
            Tensor(tensor.name.replace("blk.0.", f"blk.{layer}."), tensor.dims, 0, b"")
            for tensor in draft.tensors[: len(names)]
            if tensor.name.startswith("blk.0.") and "ffn" not in tensor.name
        ]
    for layer in range(layers):
        for part in ("gate", "up", "down"):
            name = f"blk.{layer}.ffn_{part}.0.weight"
            draft.tensors.append(Tensor(name, [32, 32], 0, b""))
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError):
            opened(draft)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


NEEDED = [(name, need) for name, found in ARCHITECTURES.items() for need in found.needs]


@pytest.mark.parametrize(("name", "field"), NEEDED)
def test_what_a_family_cannot_do_without(name: str, field: str) -> None:
    """The error names the key that is missing, or the number that is 0."""
    draft, key = sound(name, 3), gguf_key(field)
    draft.set(f"{name}.{key}", Value(U32, 0))
    with pytest.raises(ConfigError, match=rf"{name}\.{key} "):
        opened(draft)


def test_another_limit_of_maples_experts() -> None:
    draft = sound("maple", 3)
    draft.set("maple.swiglu_clamp_exp", Value(F32, 5.0))
    with pytest.raises(ConfigError, match=r"^x\.gguf: maple\.swiglu_clamp_exp is 5; "):
        opened(draft)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_router_without_experts(name: str) -> None:
    """The tensors decide the kind of feed-forward; a stray router must not mislead."""
    for seed in range(20):
        draft = sound(name, seed)
        for key in ("expert_count", "expert_used_count", "expert_feed_forward_length"):
            draft.keys = [one for one in draft.keys if not one[0].endswith(key)]
        width, layers = (draft.find(f"{name}.{key}") for key in ("embedding_length", "block_count"))
        for layer in range(layers.content):
            router = Tensor(f"blk.{layer}.ffn_gate_inp.weight", [width.content, 4], 0, b"")
            draft.tensors.append(router)
        with pytest.raises(TrinityError):
            opened(draft)
