"""Adapters in steps: rows of several requests, exactness, the cache and the options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.expert_models import EXPERTS, PER_TOKEN, write_expert_model
from tests.formats.raw_safetensors import bfloat16
from tests.models.adapter_files import peft_directory
from tests.tiny_models import sentencepiece_vocabulary, write_tiny_model
from trinity.errors import InputError, UnsupportedError
from trinity.loading import open_weights
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.tools.convert import convert_adapter

HIDDEN, WIDE = 64, 128
TOKENS = len(sentencepiece_vocabulary()[0])
PROMPTS = [[5, 9, 17, 30, 8], [40, 41], [7, 7, 7, 300, 6, 12, 90], [11]]
Logits = NDArray[np.float32]


def pairs_of(seed: int, dtype: Any = np.float32, size: float = 1.0) -> dict[str, NDArray[Any]]:
    """PEFT's tensors for some modules of a tiny model, of rank 5."""
    rng, found = np.random.default_rng(seed), {}
    sizes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
        "mlp.gate_proj": (WIDE, HIDDEN), "mlp.down_proj": (HIDDEN, WIDE),
    }  # fmt: skip
    for layer in range(2):
        for module, (out, width) in sizes.items():
            for half, shape in (("A", (5, width)), ("B", (out, 5))):
                values = (size * rng.standard_normal(shape) / np.sqrt(width)).astype(np.float32)
                stored = bfloat16(values) if dtype is np.uint16 else values.astype(dtype)
                found[f"model.layers.{layer}.{module}.lora_{half}.weight"] = stored
    for half, shape in (("A", (5, TOKENS)), ("B", (HIDDEN, 5))):
        values = (size * rng.standard_normal(shape)).astype(np.float32)
        found[f"model.embed_tokens.lora_embedding_{half}"] = values
    for half, shape in (("A", (5, HIDDEN)), ("B", (TOKENS, 5))):
        values = (size * rng.standard_normal(shape) / 8).astype(np.float32)
        found[f"lm_head.lora_{half}.weight"] = values
    return found


def expert_pairs() -> dict[str, NDArray[Any]]:
    """PEFT's tensors for all experts of one layer, of rank 3."""
    rng, tensors = np.random.default_rng(6), {}
    for expert in range(EXPERTS):
        for name, out, width in (("w1", 96, 64), ("w3", 96, 64), ("w2", 64, 96)):
            module = f"model.layers.0.block_sparse_moe.experts.{expert}.{name}"
            a, b = rng.standard_normal((3, width)) / 8, rng.standard_normal((out, 3))
            tensors[f"{module}.lora_A.weight"] = a.astype(np.float32)
            tensors[f"{module}.lora_B.weight"] = b.astype(np.float32)
    return tensors


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    write_tiny_model(folder / "F32", type="F32", hidden_size=HIDDEN)
    write_tiny_model(folder / "ternary", arch="bitnet", type="TQ2_0", hidden_size=256)
    peft_directory(folder / "one", pairs_of(1))
    peft_directory(folder / "two", pairs_of(2, np.uint16))
    peft_directory(folder / "three", pairs_of(3, np.float16))
    rng = np.random.default_rng(4)
    wide = {
        f"model.layers.{layer}.{module}.lora_{half}.weight": (
            rng.standard_normal(shape) / 16
        ).astype(np.float32)
        for layer in range(2)
        for module, out, width in (("self_attn.v_proj", 128, 256), ("mlp.down_proj", 256, 512))
        for half, shape in (("A", (4, width)), ("B", (out, 4)))
    }
    peft_directory(folder / "wide", wide)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def engine(files: dict[str, Path], level: str) -> Iterator[CPUEngine]:
    """Three adapters, none of which is used by itself."""
    lora = [(files[name], 0.0) for name in ("one", "two", "three")]
    engine = load_engine(open_weights(files["F32"]), threads=2, isa=level, lora=lora)
    yield engine
    engine.close()


def evaluated(engine: CPUEngine, tokens: list[int], weights: dict[int, float]) -> Logits:
    cache = engine.new_cache(adapters=engine.adapter_weights(weights))
    return engine.step([Rows(cache, tokens, len(tokens))])


CHOICES: list[dict[int, float]] = [{}, {0: 1.0}, {1: 0.5, 2: -1.0}, {0: 0.25, 1: 1.0, 2: 2.0}]


def test_rows_of_a_step_have_their_own_weights(engine: CPUEngine) -> None:
    """Each row gets the same bits as alone, with any other rows in the step."""
    alone = [
        evaluated(engine, tokens, weights) for tokens, weights in zip(PROMPTS, CHOICES, strict=True)
    ]
    rows = [
        Rows(engine.new_cache(adapters=engine.adapter_weights(weights)), tokens, len(tokens))
        for tokens, weights in zip(PROMPTS, CHOICES, strict=True)
    ]
    together = engine.step(rows)
    ends = np.cumsum([len(tokens) for tokens in PROMPTS])
    exact = engine.isa != "amx"
    for found, expected in zip(np.split(together, ends[:-1]), alone, strict=True):
        assert np.array_equal(found, expected) if exact else np.allclose(found, expected, atol=1e-4)


def test_tokens_one_by_one(engine: CPUEngine) -> None:
    for weights in CHOICES:
        cache = engine.new_cache(adapters=engine.adapter_weights(weights))
        single = np.concatenate([engine.step([Rows(cache, [token])]) for token in PROMPTS[2]])
        at_once = evaluated(engine, PROMPTS[2], weights)
        assert np.allclose(single, at_once, atol=1e-4)


@pytest.mark.full
def test_ternary_models_stay_exact(files: dict[str, Path], level: str) -> None:
    lora = [(files["wide"], 0.0)]
    engine = load_engine(open_weights(files["ternary"]), threads=2, isa=level, lora=lora)
    plain = load_engine(open_weights(files["ternary"]), threads=1, isa="portable")
    choices: list[dict[int, float]] = [{0: 1.0}, {}, {0: -0.5}, {}]
    rows = [
        Rows(engine.new_cache(adapters=engine.adapter_weights(weights)), tokens, len(tokens))
        for tokens, weights in zip(PROMPTS, choices, strict=True)
    ]
    together = engine.step(rows)
    ends = np.cumsum([len(tokens) for tokens in PROMPTS])
    for found, tokens, weights in zip(np.split(together, ends[:-1]), PROMPTS, choices, strict=True):
        cache = engine.new_cache(adapters=engine.adapter_weights(weights))
        single = np.concatenate([engine.step([Rows(cache, [token])]) for token in tokens])
        assert np.array_equal(found, single)
        base = plain.step([Rows(plain.new_cache(), tokens, len(tokens))])
        assert np.array_equal(found, base) == (not weights)
    engine.close()
    plain.close()


def test_without_weight_it_is_the_model_itself(engine: CPUEngine, files: dict[str, Path]) -> None:
    plain = load_engine(open_weights(files["F32"]), threads=2, isa=engine.isa)
    for tokens in PROMPTS:
        expected = plain.step([Rows(plain.new_cache(), tokens, len(tokens))])
        assert np.array_equal(evaluated(engine, tokens, {0: 0.0}), expected)
    plain.close()


def adapter_bytes(engine: CPUEngine, plain: CPUEngine) -> int:
    """Bytes that a token reads more than without adapters, which a profile sees, too."""
    found = engine.profile([Rows(engine.new_cache(), [5])], rounds=1)
    seen = sum(op.nbytes for op in found if op.kernel.startswith(("matmul", "expert_products")))
    assert seen == engine.bytes_per_token(0)
    return seen - plain.bytes_per_token(0)


def test_bytes_of_a_token(files: dict[str, Path]) -> None:
    """All matrices of used adapters count; of an embedding's first matrix one row counts."""
    lora = [(files["one"], 0.5), (files["two"], 0.0)]
    engine = load_engine(open_weights(files["F32"]), threads=1, lora=lora)
    plain = load_engine(open_weights(files["F32"]), threads=1)
    pairs = pairs_of(1).items()
    nbytes = sum(array.nbytes for name, array in pairs if "embedding_A" not in name)
    assert adapter_bytes(engine, plain) == nbytes
    engine.close()
    plain.close()


def test_bytes_of_a_token_of_experts(tmp_path: Path) -> None:
    path = tmp_path / "experts.gguf"
    write_expert_model(path)
    tensors = expert_pairs()
    lora = [(peft_directory(tmp_path / "adapter", tensors), 1.0)]
    engine = load_engine(open_weights(path), threads=1, lora=lora)
    plain = load_engine(open_weights(path), threads=1)
    nbytes = sum(array.nbytes for array in tensors.values())
    assert adapter_bytes(engine, plain) == nbytes * PER_TOKEN // EXPERTS
    engine.close()
    plain.close()


def test_pages_are_shared_by_equal_weights_alone(files: dict[str, Path]) -> None:
    lora = [files["one"], (files["two"], 0.5)]
    prompt = list(range(3, 203))
    with trinity.load(files["F32"], lora=lora) as model:

        def cached(weights: dict[int, float] | None) -> int:
            answer = model.generate(prompt, max_tokens=1, ignore_eos=True, lora=weights)
            return answer.timings.cached_tokens

        assert cached({}) == 0
        assert cached({}) == len(prompt) - 1
        assert cached({0: 0.0}) == len(prompt) - 1
        assert cached(None) == 0
        assert cached({1: 0.5, 0: 1}) == len(prompt) - 1
        assert cached({0: 1.0}) == 0
        assert cached({0: 1.0}) == len(prompt) - 1


def test_requests_side_by_side(files: dict[str, Path]) -> None:
    """Each request gets the same text as alone."""
    choices = [{}, {0: 1.0}, {1: 1.0}, {0: 0.5, 1: 0.5}] * 2
    prompt = [5, 9, 17]
    options: Any = {"max_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    with trinity.load(files["F32"], lora=[files["one"], files["two"]], kv_type="f32") as model:
        alone = [model.generate(prompt, lora=lora, **options).token_ids for lora in choices]
        assert len({tuple(ids) for ids in alone}) == 4
        streams = [model.stream(prompt, lora=lora, **options) for lora in choices]
        found: list[list[int]] = [[] for _ in choices]
        for chunks in zip(*streams, strict=False):
            for ids, chunk in zip(found, chunks, strict=True):
                ids.extend(chunk.token_ids)
        for ids, stream in zip(found, streams, strict=True):
            ids.extend(token for chunk in stream for token in chunk.token_ids)
    assert found == alone


def test_experts_of_rows_have_their_own_weights(tmp_path: Path, level: str) -> None:
    path = tmp_path / "experts.gguf"
    write_expert_model(path)
    tensors = expert_pairs()
    lora = [(peft_directory(tmp_path / "adapter", tensors), 0.0)]
    engine = load_engine(open_weights(path), threads=2, isa=level, lora=lora)
    choices: list[dict[int, float]] = [{0: 1.0}, {}, {0: -0.5}, {}]
    rows = [
        Rows(engine.new_cache(adapters=engine.adapter_weights(weights)), tokens, len(tokens))
        for tokens, weights in zip(PROMPTS, choices, strict=True)
    ]
    together = np.split(engine.step(rows), np.cumsum([len(tokens) for tokens in PROMPTS])[:-1])
    for found, tokens, weights in zip(together, PROMPTS, choices, strict=True):
        assert np.allclose(found, evaluated(engine, tokens, weights), atol=1e-4)
    assert not np.allclose(together[0], evaluated(engine, PROMPTS[0], {}), atol=1e-2)
    engine.close()


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({2: 1.0}, "lora names adapter 2, but 2 are loaded"),
        ({-1: 1.0}, "a key of lora is -1"),
        ({0: float("nan")}, r"lora\[0\] is nan"),
        ({0: "1"}, r"lora\[0\] is '1'"),
        ([(0, 1.0)], "lora is .*; it must be a dict"),
    ],
)
def test_bad_weights_of_a_request(lora: Any, message: str, files: dict[str, Path]) -> None:
    with trinity.load(files["F32"], lora=[files["one"], files["two"]]) as model:
        for call in (model.generate, model.stream, model.logits):
            with pytest.raises(InputError, match=message):
                call([1], lora=lora)
        with pytest.raises(InputError, match=message):
            model.generate_batch([[1]], lora=lora)


def test_weights_without_adapters(files: dict[str, Path]) -> None:
    with trinity.load(files["F32"]) as model:
        assert model.generate([1], lora={}, max_tokens=1).token_ids is not None
        with pytest.raises(InputError, match="loaded without adapters: load it with lora="):
            model.generate([1], lora={0: 1.0})


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ("file", "lora is 'file'"),
        ([3], "lora has 3; expected a file or a pair"),
        ([("file", "much")], "the scale of lora is 'much'"),
        ([("file", float("inf"))], "the scale of lora is inf"),
        ([("file", 1.0, 2)], "expected a file or a pair"),
    ],
)
def test_bad_lists_of_adapters(lora: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trinity.load("no-such.gguf", lora=lora)


def test_adapters_of_a_model_are_listed(files: dict[str, Path]) -> None:
    with trinity.load(files["F32"], lora=[files["one"], (str(files["two"]), 0.5)]) as model:
        assert model.adapters == ((str(files["one"]), 1.0), (str(files["two"]), 0.5))


def test_an_adapter_is_no_model(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "adapter.gguf"
    convert_adapter(files["one"], path, files["F32"])
    with pytest.raises(UnsupportedError, match=r"the file is an adapter, not a model; .*--lora"):
        trinity.load(path)
