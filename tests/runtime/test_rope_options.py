"""Rotary options and replaced keys compared with llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.runtime.rope_cases import CASES, LENGTH, OVERRIDES, TOKENS
from trinity.config import ModelConfig, RopeScaling
from trinity.errors import InputError
from trinity.formats.gguf import GGUFProvider
from trinity.loading import _override
from trinity.options.key_overrides import read_overrides
from trinity.options.load_options import LoadOptions
from trinity.quantization.cached import Quantized
from trinity.runtime.rope_options import with_rope_options

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def golden() -> Mapping[str, NDArray[Any]]:
    with np.load(DATA / "rope_options.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rope") / "f32.gguf"
    trinity.quantize(DATA / "stories260K" / "Q4_0.gguf", path, "F32", allow_requantize=True)
    return path


def logits(path: Path, **options: Any) -> NDArray[np.float32]:
    with trinity.load(path, threads=1, kv_type="f32", context_length=LENGTH, **options) as model:
        return model.logits(TOKENS)[len(TOKENS) // 2 :: 5]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_llama_cpps(case: str, path: Path, golden: Mapping[str, NDArray[Any]]) -> None:
    np.testing.assert_allclose(logits(path, **CASES[case]), golden[case], rtol=0, atol=1e-3)


@pytest.mark.parametrize("case", OVERRIDES)
def test_replaced_keys_do_what_they_do_in_llama_cpp(
    case: str, path: Path, golden: Mapping[str, NDArray[Any]]
) -> None:
    text, values = OVERRIDES[case]
    assert read_overrides("--override-kv", [text]) == values
    found = logits(path, override_kv=values)
    np.testing.assert_allclose(found, golden[case], rtol=0, atol=1e-3)


def test_the_cases_differ(golden: Mapping[str, NDArray[Any]]) -> None:
    different = [case for case in golden if np.abs(golden[case] - golden["nothing"]).max() < 0.02]
    assert different == ["nothing", "none"]


def config_of(**change: Any) -> ModelConfig:
    config = GGUFProvider(DATA / "stories260K" / "Q4_0.gguf").config
    return replace(config, **change)


def test_yarn_extends_the_trained_context() -> None:
    options = LoadOptions(rope_scaling="yarn", rope_scale=4)
    assert with_rope_options(config_of(), options, "x").context_length == 4 * LENGTH
    config = config_of(context_length=1000)
    assert with_rope_options(config, options, "x").context_length == 4000
    assert with_rope_options(config, LoadOptions(), "x") is config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_scaling": RopeScaling("longrope")}, "does not apply to scaling of the type long"),
        ({"sliding_window": 512}, "does not apply to a model with sliding windows"),
    ],
)
def test_rotations_that_the_options_cannot_describe(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"x: rope_scale {message}"):
        with_rope_options(config_of(**change), LoadOptions(rope_scale=2), "x")


def test_yarn_needs_a_base() -> None:
    options = LoadOptions(rope_scaling="yarn", rope_freq_base=1)
    with pytest.raises(InputError, match="the base of the rotary frequencies is 1; YaRN needs"):
        with_rope_options(config_of(), options, "x")


def test_two_names_of_one_thing() -> None:
    with pytest.raises(InputError, match="rope_freq_scale is 1 / rope_scale; give only one"):
        LoadOptions(rope_scale=2, rope_freq_scale=0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"llama.block_count": 2.0}, r"is of the type uint32; write llama.block_count=int:VALUE"),
        ({"general.name": 3}, "is of the type string; write general.name=str:VALUE"),
        ({"tokenizer.ggml.tokens": "x"}, "an array cannot be overridden"),
        ({"llama.block_count": 0}, "llama.block_count .* is 0; it must be"),
        ({"general.architecture": "none"}, "none"),
    ],
)
def test_values_that_cannot_replace_others(values: dict[str, Any], message: str) -> None:
    with pytest.raises(trinity.TrinityError, match=message):
        trinity.load(DATA / "stories260K" / "Q4_0.gguf", override_kv=values)


def test_a_quantized_copy_has_the_keys_too(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_CACHE_DIR", str(tmp_path))
    values = {"llama.rope.freq_base": 500.0}
    for _ in range(2):  # made, then found
        with trinity.load(path, threads=1, quantize="Q8_0", override_kv=values) as model:
            assert model.config.rope_theta == 500
    with trinity.load(path, threads=1, quantize="Q8_0") as model:
        assert model.config.rope_theta == 10_000


def test_a_directory_has_no_keys_to_replace() -> None:
    source: Any = SimpleNamespace(path="folder")
    options = LoadOptions(override_kv={"a": 1})
    for provider in (source, Quantized(source, str(DATA / "stories260K" / "Q4_0.gguf"))):
        with pytest.raises(InputError, match="folder: override_kv only applies to GGUF files"):
            _override(provider, options)
    _override(source, LoadOptions())


def test_an_integer_replaces_another() -> None:
    with trinity.load(
        DATA / "stories260K" / "Q4_0.gguf", threads=1, override_kv={"llama.context_length": 64}
    ) as model:
        assert (model.config.context_length, model.context_length) == (64, 64)
