"""The engine gives golden tokens and logits on every level, thread count and step size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.matrix import IN_FILES, KINDS, some
from tests.naive import FAMILIES, float_tensors, naive_logits
from tests.runtime.steps import Logits, at_once, stepwise
from tests.tiny_models import write_tiny_model
from trinity.providers import open_weights
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.matmul.activations import FORMS

HOST_LEVELS = available_levels()
RUNNABLE = sorted(IN_FILES)
# Every type with llama, of the others the types whose activations are not rounded, or exactly.
CASES = [
    (architecture, type_name)
    for architecture in FAMILIES
    for type_name in RUNNABLE
    if architecture == "llama"
    or FORMS[type_name] == ("ternary" if architecture.startswith("bitnet") else "f32")
]
# What `make test` runs of them: types whose products it compiles ahead.
FEW = [case for case in CASES if case[1] in {*KINDS, "F16"}]


def golden(shared_data: Path, name: str) -> tuple[dict[str, Any], Logits]:
    entry: dict[str, Any] = json.loads((shared_data / "models/golden.json").read_text())[name]
    return entry, np.load(shared_data / f"models/{name}.logits.npy")


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.mark.parametrize(
    "name", ["stories260K", "stories260K-Q8_0", "stories260K-Q4_0", "llama-2-tiny-random"]
)
def test_greedy_gives_the_golden_tokens(
    shared_data: Path, name: str, level: str, threads: int
) -> None:
    entry, _ = golden(shared_data, name)
    engine = load_engine(
        open_weights(shared_data / f"models/{name}.gguf"), isa=level, threads=threads
    )
    cache = engine.new_cache()
    logits = engine.step([Rows(cache, entry["prompt_ids"])])
    found = []
    for _ in entry["greedy_ids"]:
        found.append(int(logits[0].argmax()))
        logits = engine.step([Rows(cache, found[-1:])])
    engine.close()
    assert found == entry["greedy_ids"]


@pytest.mark.parametrize("name", ["stories260K", "llama-2-tiny-random"])
def test_llama_logits(shared_data: Path, name: str, level: str, threads: int) -> None:
    entry, expected = golden(shared_data, name)
    engine = load_engine(
        open_weights(shared_data / f"models/{name}.gguf"),
        isa=level, threads=threads, kv_type="f32",
    )  # fmt: skip
    tokens = (entry["prompt_ids"] + entry["greedy_ids"])[: len(expected)]
    found = at_once(engine, tokens)
    assert np.abs(found - expected).max() < 1e-3
    if level == "amx" and name == "llama-2-tiny-random":  # F16: its activations are split in two
        assert np.allclose(found, stepwise(engine, tokens), atol=1e-5)
    else:
        assert np.array_equal(found, stepwise(engine, tokens))
    engine.close()


def test_bitnet_logits(shared_data: Path, level: str, threads: int) -> None:
    entry, expected = golden(shared_data, "bitnet-tiny")
    engine = load_engine(
        open_weights(shared_data / "models/bitnet-tiny-I2_S.gguf"),
        isa=level, threads=threads, kv_type="f32",
    )  # fmt: skip
    found = at_once(engine, entry["token_ids"])
    engine.close()
    assert np.abs(found - expected).max() < 2e-3
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize("type_name", ["TQ2_0", "TQ1_0"])
def test_bitnet_logits_with_rounded_scales(shared_data: Path, type_name: str, level: str) -> None:
    """Half-precision scales change how activations round; the greedy tokens are the same.

    The reference formula therefore uses these files' own weights.
    """
    entry, expected = golden(shared_data, "bitnet-tiny")
    provider = open_weights(shared_data / f"models/bitnet-tiny-{type_name}.gguf")
    engine = load_engine(provider, isa=level, threads=2, kv_type="f32")
    found = at_once(engine, entry["token_ids"])
    engine.close()
    same_weights = naive_logits(
        float_tensors(provider), provider.config, entry["token_ids"],
        arch="bitnet-b1.58", int8_activations=True,
    )  # fmt: skip
    assert np.abs(found - same_weights).max() < 2e-3
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize(("architecture", "type_name"), some(CASES, FEW))
def test_every_architecture_with_every_type(
    tmp_path: Path, architecture: str, type_name: str
) -> None:
    """Random models are compared with the float formula; ternary and float types are exact."""
    path = tmp_path / "m.gguf"
    write_tiny_model(
        path, arch=architecture, type=type_name, tied=architecture.startswith("bitnet"),
        qk_norm=architecture == "qwen3",
    )  # fmt: skip
    provider = open_weights(path)
    engine = load_engine(provider, kv_type="f32")
    tokens = [1, 5, 300, 270, 44, 9, 260, 261, 7]
    found = at_once(engine, tokens)
    engine.close()
    expected = naive_logits(
        float_tensors(provider), provider.config, tokens,
        arch=architecture, int8_activations=FORMS[type_name] == "ternary",
    )  # fmt: skip
    if FORMS[type_name] != "q8":
        assert np.abs(found - expected).max() < 1e-3
    else:  # activations are rounded to 8 bits
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert error < 0.02, error
        assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize(
    "options",
    [
        {"num_heads": 5, "num_kv_heads": 1, "head_dim": 16},
        {"num_heads": 6, "num_kv_heads": 2, "head_dim": 80, "hidden_size": 96},
        {"num_heads": 4, "num_kv_heads": 4, "head_dim": 8, "intermediate_size": 100},
        {"rope_freqs": True, "rope_theta": 500000.0},
        {"bias": True, "scale_tensors": True},
        {"qk_norm": True},
        {"metadata": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}},
        {"metadata": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
                      "llama.rope.scaling.original_context_length": 64}},
        {"metadata": {"llama.rope.dimension_count": 8}},
    ],
)  # fmt: skip
def test_odd_shapes_and_options(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, **options)
    provider = open_weights(path)
    engine = load_engine(provider, kv_type="f32")
    tokens = [1, 5, 300, 270, 44, 9, 260, 261, 7, 8, 9, 10]
    expected = naive_logits(
        float_tensors(provider), provider.config, tokens, arch="llama", int8_activations=False
    )
    found = at_once(engine, tokens)
    assert np.abs(found - expected).max() < 1e-4
    assert np.array_equal(found, stepwise(engine, tokens))
    engine.close()


@pytest.mark.parametrize("type_name", ["F32", "Q8_0"])
def test_a_window_hides_what_is_older(tmp_path: Path, type_name: str) -> None:
    path = tmp_path / "m.gguf"
    window = {"llama.attention.sliding_window": np.uint32(20)}
    write_tiny_model(path, type=type_name, metadata=window)
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, 300, 180)]
    provider = open_weights(path)
    engine = load_engine(provider, kv_type="f32")
    found = at_once(engine, tokens), stepwise(engine, tokens)
    engine.close()
    expected = naive_logits(
        float_tensors(provider), provider.config, tokens, arch="llama", int8_activations=False
    )
    for logits in found:
        error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
        assert error < (1e-5 if type_name == "F32" else 0.03), error
