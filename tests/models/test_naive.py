"""The NumPy reference compared with golden logits, and its options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scripts.models.make_synthetic import SHAPES, synthetic_vocabulary, write_model
from tests.matrix import IN_FILES, types
from tests.naive import float_tensors, naive_logits, rope_angles, ternary_linear
from tests.tiny_models import write_tiny_model
from trinity.config import ModelConfig, RopeScaling
from trinity.formats import GGUFProvider
from trinity.providers import open_weights

Tensors = dict[str, NDArray[np.float32]]


def load(path: Path) -> tuple[Tensors, ModelConfig]:
    provider = open_weights(path)
    try:
        return float_tensors(provider), provider.config
    finally:
        provider.close()


def logits(tensors: Tensors, config: ModelConfig, tokens: list[int]) -> NDArray[np.float32]:
    int8_activations = config.architecture.startswith("bitnet")
    return naive_logits(
        tensors, config, tokens, arch=config.architecture, int8_activations=int8_activations
    )


def golden(shared_data: Path, name: str) -> tuple[list[int], NDArray[np.float32]]:
    entry: dict[str, Any] = json.loads((shared_data / "models/golden.json").read_text())[name]
    expected: NDArray[np.float32] = np.load(shared_data / f"models/{name}.logits.npy")
    tokens = entry.get("token_ids") or entry["prompt_ids"] + entry["greedy_ids"]
    return tokens[: len(expected)], expected


@pytest.mark.parametrize(("name", "limit"), [("stories260K", 1e-3), ("llama-2-tiny-random", 1e-3)])
def test_llama_agrees_with_llama_cpp(shared_data: Path, name: str, limit: float) -> None:
    tokens, expected = golden(shared_data, name)
    found = logits(*load(shared_data / f"models/{name}.gguf"), tokens)
    assert np.abs(found - expected).max() < limit
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize("name", ["stories260K-Q8_0", "stories260K-Q4_0"])
def test_quantized_llama_chooses_the_tokens_of_llama_cpp(shared_data: Path, name: str) -> None:
    tokens, expected = golden(shared_data, name)
    found = logits(*load(shared_data / f"models/{name}.gguf"), tokens)
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))
    # llama.cpp rounds activations to int8 there.
    assert np.abs(found - expected).max() < 0.3


def test_bitnet_agrees_with_transformers(shared_data: Path) -> None:
    tokens, expected = golden(shared_data, "bitnet-tiny")
    found = logits(*load(shared_data / "models/bitnet-tiny-I2_S.gguf"), tokens)
    assert np.abs(found - expected).max() < 2e-3
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.full
@pytest.mark.parametrize("type_name", ["TQ1_0", "TQ2_0"])
def test_bitnet_in_llama_cpps_types_differs_by_its_rounded_scales(
    shared_data: Path, type_name: str
) -> None:
    """These types store half-precision scales, 4e-4 off, which changes how activations round.

    With the float32 scales of the I2_S file the logits equal the reference's.
    """
    tokens, expected = golden(shared_data, "bitnet-tiny")
    tensors, config = load(shared_data / f"models/bitnet-tiny-{type_name}.gguf")
    exact, _ = load(shared_data / "models/bitnet-tiny-I2_S.gguf")
    found = logits(tensors, config, tokens)
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))
    assert np.abs(found - expected).max() < 0.15
    for name, values in tensors.items():
        if name.startswith("blk.") and values.ndim == 2:
            assert len(np.unique(np.abs(values))) == 2
            scale = np.abs(exact[name]).max()
            assert np.abs(values).max() == np.float32(np.float16(scale))
            tensors[name] = np.sign(values) * scale
    assert np.abs(logits(tensors, config, tokens) - expected).max() < 2e-3


def test_ternary_linear_is_an_exact_integer_sum() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 6912)) * np.array([1, 1e-3, 1e3, 0, 1e-9])[:, None]
    codes = rng.integers(-1, 2, (7, 6912))
    scale = np.float32(0.0371)
    found = ternary_linear(x, (codes * scale).astype(np.float32))
    for row, y in zip(x.astype(np.float32), found, strict=True):
        s = np.float32(127) / max(np.float32(1e-5), np.abs(row).max())
        rounded = np.clip(np.rint(row * s), -128, 127).astype(np.int64)
        assert np.array_equal(y, (codes @ rounded) * np.float64(scale) / np.float64(s))


def tiny(tmp_path: Path, **options: Any) -> tuple[Tensors, ModelConfig]:
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, **options)
    return load(path)


TOKENS = [1, 300, 301, 5, 260, 300, 300, 17]


@pytest.mark.parametrize("arch", ["llama", "bitnet", "bitnet-b1.58", "bitnet-25"])
def test_a_later_token_changes_nothing_before_it(tmp_path: Path, arch: str) -> None:
    tensors, config = tiny(tmp_path, arch=arch, type="F32" if arch == "llama" else "I2_S")
    all_of_them = logits(tensors, config, TOKENS)
    assert all_of_them.shape == (len(TOKENS), config.vocab_size)
    assert np.isfinite(all_of_them).all()
    assert 0.1 < all_of_them.std() < 10
    for count in range(1, len(TOKENS)):
        part = logits(tensors, config, TOKENS[:count])
        assert np.allclose(part, all_of_them[:count], rtol=1e-6, atol=1e-6)


def test_pairs_of_rotation_are_a_permutation_of_rows(tmp_path: Path) -> None:
    """Permuting the rows of Q and K as converters do turns one pairing into the other."""
    tensors, config = tiny(tmp_path, qk_norm=False)
    neighbours = logits(tensors, config, TOKENS)
    half = config.head_dim // 2
    order = np.concatenate([np.arange(half) * 2, np.arange(half) * 2 + 1])
    for name, values in tensors.items():
        if "attn_q.weight" in name or "attn_k.weight" in name:
            heads = values.reshape(-1, config.head_dim, config.hidden_size)
            tensors[name] = heads[:, order].reshape(values.shape)
    halves = naive_logits(
        tensors, config, TOKENS, arch="llama", int8_activations=False, rope_interleaved=False
    )
    assert np.allclose(halves, neighbours, atol=1e-5)
    assert not np.allclose(logits(tensors, config, TOKENS), neighbours, atol=1e-2)


def test_grouped_heads_equal_repeated_ones(tmp_path: Path) -> None:
    tensors, config = tiny(tmp_path, num_heads=4, num_kv_heads=2)
    expected = logits(tensors, config, TOKENS)
    for name, values in tensors.items():
        if "attn_k.weight" in name or "attn_v.weight" in name:
            heads = values.reshape(2, config.head_dim, config.hidden_size)
            tensors[name] = np.repeat(heads, 2, axis=0).reshape(-1, config.hidden_size)
    found = logits(tensors, replace(config, num_kv_heads=4), TOKENS)
    assert np.allclose(found, expected, atol=1e-6)


def test_scale_tensors_equal_scaled_weights(tmp_path: Path) -> None:
    tensors, config = tiny(tmp_path, arch="bitnet", type="I2_S", scale_tensors=True)
    found = logits(tensors, config, TOKENS)
    scaled = {name: v for name, v in tensors.items() if not name.endswith(".scale")}
    assert not np.allclose(logits(scaled, config, TOKENS), found, atol=1e-2)
    for name, scale in tensors.items():
        if name.endswith(".scale"):
            weight = name.removesuffix("scale") + "weight"
            # In float64, so that no rounding of the product moves an activation.
            scaled[weight] = tensors[weight].astype(np.float64) * scale  # type: ignore[assignment]
    assert np.allclose(logits(scaled, config, TOKENS), found, atol=1e-5)


@pytest.mark.parametrize("options", [{"bias": True}, {"qk_norm": True}, {"rope_freqs": True}])
def test_optional_tensors_count(tmp_path: Path, options: dict[str, bool]) -> None:
    tensors, config = tiny(tmp_path, **options)
    found = logits(tensors, config, TOKENS)
    extra = ("bias", "q_norm.weight", "k_norm.weight", "rope_freqs.weight")
    plain = {name: v for name, v in tensors.items() if not name.endswith(extra)}
    assert len(plain) < len(tensors)
    assert not np.allclose(logits(plain, config, TOKENS), found, atol=1e-3)


def test_untied_output_and_head_dim(tmp_path: Path) -> None:
    tensors, config = tiny(tmp_path, tied=False, head_dim=32, hidden_size=96, num_heads=2)
    assert (config.head_dim, config.num_heads * config.head_dim) == (32, 64)
    assert not config.tie_word_embeddings
    found = logits(tensors, config, TOKENS)
    tied = {name: v for name, v in tensors.items() if name != "output.weight"}
    assert not np.allclose(logits(tied, config, TOKENS), found, atol=1e-2)


def test_a_sliding_window_hides_what_is_older(tmp_path: Path) -> None:
    tensors, config = tiny(tmp_path, num_layers=1)
    windowed = logits(tensors, replace(config, sliding_window=3), TOKENS)
    assert np.allclose(windowed[:3], logits(tensors, config, TOKENS)[:3])
    # One layer: attention depends on distances alone, so the last three tokens suffice.
    alone = logits(tensors, config, TOKENS[-3:])
    assert np.allclose(windowed[-1], alone[-1], atol=1e-5)


def config_with(scaling: RopeScaling) -> ModelConfig:
    return ModelConfig(
        "llama", 64, 64, 1, 1, 1, 64, 100, 4096, 1e-5, rope_dim=64, rope_scaling=scaling
    )


def test_rotary_angles() -> None:
    plain_cos, plain_sin = rope_angles({}, config_with(RopeScaling()), 9)
    assert plain_cos[3, 0] == pytest.approx(np.cos(3))
    assert plain_sin[3, 16] == pytest.approx(np.sin(3 * 10000 ** (-32 / 64)))
    linear_cos, _ = rope_angles({}, config_with(RopeScaling("linear", 4.0)), 9)
    assert np.allclose(linear_cos[8], plain_cos[2])
    factors = {"rope_freqs.weight": np.full(32, 4, np.float32)}
    assert np.allclose(rope_angles(factors, config_with(RopeScaling()), 9)[0], linear_cos)


def test_yarn_leaves_fast_pairs_and_interpolates_slow_ones() -> None:
    scaling = RopeScaling("yarn", 4.0, original_context_length=1024)
    cos, sin = rope_angles({}, config_with(scaling), 9)
    plain, _ = rope_angles({}, config_with(RopeScaling()), 9)
    linear, _ = rope_angles({}, config_with(RopeScaling("linear", 4.0)), 9)
    magnitude = 1 + 0.1 * np.log(4)
    assert np.allclose(np.hypot(cos, sin), magnitude)
    # Of 1024 positions pair i makes 1024 / (2 pi 10000^(i/32)) turns: 32 at i = 5.6, 1 at 17.7.
    assert np.allclose(cos[:, :6], plain[:, :6] * magnitude)
    assert np.allclose(cos[:, 18:], linear[:, 18:] * magnitude)
    mix = 1 - (11 - 5) / (18 - 5)
    frequency = 10000 ** (-11 / 32)
    angle = 8 * frequency * (mix + (1 - mix) / 4)
    assert cos[8, 11] == pytest.approx(np.cos(angle) * magnitude)


def test_ternary_types_give_the_same_tiny_model(tmp_path: Path) -> None:
    found = [
        logits(*tiny(tmp_path, arch="bitnet-b1.58", type=name, hidden_size=256), TOKENS)
        for name in ("I2_S", "TQ1_0", "TQ2_0")
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.few(4)
@pytest.mark.parametrize("shape", ["tiny", "bitnet"])
@pytest.mark.parametrize("type_name", types(IN_FILES))
def test_synthetic_models_are_sane(tmp_path: Path, shape: str, type_name: str) -> None:
    sizes = replace(SHAPES["tiny"], arch="bitnet-b1.58") if shape == "bitnet" else SHAPES["tiny"]
    path = tmp_path / "synthetic.gguf"
    write_model(path, sizes, type_name=type_name)
    with GGUFProvider(path) as provider:
        assert provider.config.num_layers == sizes.num_layers
        assert provider.config.vocab_size == sizes.vocab_size
        assert provider.tensor("blk.0.attn_q.weight").type == type_name
        keys = list(provider.metadata)
    if shape == "bitnet":
        assert len(keys) == 24
        assert keys[13:16] == ["general.file_type", "tokenizer.ggml.model", "tokenizer.ggml.tokens"]
    tensors, config = load(path)
    found = logits(tensors, config, TOKENS)
    assert np.isfinite(found).all()
    assert 0.2 < found.std() < 5
    for name, values in tensors.items():
        if values.ndim == 2:
            assert 0.8 < values.std() * np.sqrt(values.shape[1]) < 1.2, name


def test_synthetic_models_repeat_by_seed_and_untie_on_request(tmp_path: Path) -> None:
    made = []
    for number, seed in enumerate((1, 1, 2)):
        path = tmp_path / f"{number}.gguf"
        write_model(path, SHAPES["tiny"], embedding_type="F16", head_type="Q8_0", seed=seed)
        made.append(path.read_bytes())
    assert made[0] == made[1] != made[2]
    with GGUFProvider(path) as provider:
        assert provider.tensor("token_embd.weight").type == "F16"
        assert provider.tensor("output.weight").type == "Q8_0"


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [512, 32_000, 128_256])
def test_synthetic_vocabularies_merge(size: int) -> None:
    vocabulary = {key: value for key, (value, _) in synthetic_vocabulary(size).items()}
    tokens, merges = vocabulary["tokenizer.ggml.tokens"], vocabulary["tokenizer.ggml.merges"]
    assert isinstance(tokens, list)
    assert isinstance(merges, list)
    known = set(tokens)
    assert len(tokens) == len(known) == size
    assert len(set(merges)) == len(merges)
    assert size != 128_256 or len(merges) == 280_147
    for merge in merges:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= known
