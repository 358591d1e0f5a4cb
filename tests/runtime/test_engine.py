"""The engine against golden tokens and logits, on every level, thread count and step size."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.naive import FAMILIES, float_tensors, naive_logits
from tests.tiny_models import write_tiny_model
from trinity.errors import (
    ConfigError,
    ContextLengthError,
    InputError,
    KernelError,
    TrinityError,
    UnsupportedError,
)
from trinity.formats import open_weights
from trinity.models.operations import Attention
from trinity.runtime.engine import CPUEngine, load_engine
from trinity.runtime.kv_cache import KVCache
from trinity.runtime.memory import zeros
from trinity_kernels.isa import LEVELS, available_levels
from trinity_kernels.ops.matmul.activations import FORMS

HOST_LEVELS = available_levels()
RUNNABLE = sorted(FORMS)
# Every type with llama, of the others the types whose activations are not rounded, or exactly.
CASES = [
    (architecture, type_name)
    for architecture in FAMILIES
    for type_name in RUNNABLE
    if architecture == "llama"
    or FORMS[type_name] == ("ternary" if architecture.startswith("bitnet") else "f32")
]
ATTENTION = Attention(num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25)
Logits = NDArray[np.float32]


def ids(tokens: list[int]) -> NDArray[np.int32]:
    return np.array(tokens, np.int32)


def golden(shared_data: Path, name: str) -> tuple[dict[str, Any], Logits]:
    entry: dict[str, Any] = json.loads((shared_data / "models/golden.json").read_text())[name]
    return entry, np.load(shared_data / f"models/{name}.logits.npy")


def stepwise(engine: CPUEngine, tokens: list[int], kv_type: str | None = None) -> Logits:
    cache = engine.new_cache(kv_type)
    return np.concatenate([engine.forward(ids([t]), cache).copy() for t in tokens])


def at_once(engine: CPUEngine, tokens: list[int], kv_type: str | None = None) -> Logits:
    return engine.forward(ids(tokens), engine.new_cache(kv_type), all_logits=True)


@pytest.fixture(params=HOST_LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


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
    logits = engine.forward(ids(entry["prompt_ids"]), cache)
    found = []
    for _ in entry["greedy_ids"]:
        found.append(int(logits[0].argmax()))
        logits = engine.forward(ids(found[-1:]), cache)
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


@pytest.mark.parametrize("type_name", ["TQ1_0", "TQ2_0"])
def test_bitnet_logits_with_rounded_scales(shared_data: Path, type_name: str, level: str) -> None:
    """Half-precision scales move some roundings of activations, so these two files are held
    against the reference formula over their own weights; the choices are the reference's."""
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


@pytest.mark.parametrize("type_name", ["I2_S", "TQ1_0", "TQ2_0"])
@pytest.mark.parametrize("kv_type", ["F16", "F32"])
def test_ternary_logits_are_the_same_bits_everywhere(
    tmp_path: Path, type_name: str, kv_type: str
) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, arch="bitnet-b1.58", type=type_name, num_layers=2)
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 300, 150)]
    reference: Logits | None = None
    for level in HOST_LEVELS:
        for threads in (1, 2, 3):
            engine = load_engine(open_weights(path), isa=level, threads=threads, kv_type=kv_type)
            together = at_once(engine, tokens)
            reference = together if reference is None else reference
            assert np.array_equal(together, reference), (level, threads)
            if threads == 2:
                assert np.array_equal(stepwise(engine, tokens), reference), level
                cache = engine.new_cache()
                parts = []
                for start, stop in ((0, 1), (1, 6), (6, 70), (70, 150)):
                    step = engine.forward(ids(tokens[start:stop]), cache, all_logits=True)
                    parts.append(step.copy())
                assert np.array_equal(np.concatenate(parts), reference), level
            engine.close()


@pytest.mark.parametrize(("architecture", "type_name"), CASES)
def test_every_architecture_with_every_type(
    tmp_path: Path, architecture: str, type_name: str
) -> None:
    """A random model against the float formula: exact activations for ternary and float types."""
    path = tmp_path / "m.gguf"
    write_tiny_model(
        path, arch=architecture, type=type_name, tied=architecture.startswith("bitnet")
    )
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


@pytest.mark.parametrize("type_name", ["I2_S", "Q4_0", "F32"])
def test_a_batch_gives_what_each_sequence_gives_alone(tmp_path: Path, type_name: str) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, type=type_name)
    engine = load_engine(open_weights(path))
    rng = np.random.default_rng(3)
    prompts = [[int(t) for t in rng.integers(0, 300, n)] for n in (3, 17, 1, 130, 5)]
    caches = [engine.new_cache() for _ in prompts]
    alone = []
    for prompt in prompts:
        cache = engine.new_cache()
        engine.forward(ids(prompt), cache)
        alone.append(engine.forward(ids([7]), cache)[0].copy())
    for prompt, cache in zip(prompts, caches, strict=True):
        engine.forward(ids(prompt), cache)
    together = engine.forward_batch(ids([7] * len(prompts)), caches)
    if type_name == "Q4_0" and engine.isa != "portable":
        # bfloat16 tiles, or sums block by block, against dot products in 16 lanes.
        assert np.abs(together - np.array(alone)).max() < 0.05 * np.abs(alone).max()
    else:
        assert np.array_equal(together, np.array(alone))
    assert [cache.length for cache in caches] == [len(prompt) + 1 for prompt in prompts]
    engine.close()


@pytest.mark.parametrize("type_name", RUNNABLE)
def test_few_tokens_get_the_bits_of_single_steps(
    tmp_path: Path, type_name: str, level: str
) -> None:
    path = tmp_path / "m.gguf"
    arch = "bitnet-b1.58" if FORMS[type_name] == "ternary" else "llama"
    write_tiny_model(path, arch=arch, type=type_name, num_layers=1, tied=False)
    engine = load_engine(open_weights(path), isa=level, threads=2)
    prompt, tokens = list(range(120)), list(range(200, 216))
    cache = engine.new_cache()
    engine.forward(ids(prompt), cache)
    alone = np.concatenate([engine.forward(ids([t]), cache).copy() for t in tokens])
    for count in (1, 3, 4, 16):
        cache.truncate(len(prompt))
        found = engine.forward_few(ids(tokens[:count]), cache)
        assert np.array_equal(found, alone[:count]), count
        assert cache.length == len(prompt) + count
    # Other steps may come between, and steps of one token go on from there.
    cache.truncate(len(prompt) + 2)
    engine.forward(ids(prompt), engine.new_cache())
    assert np.array_equal(engine.forward(ids(tokens[2:3]), cache)[0], alone[2])
    with pytest.raises(InputError, match="1 to 16 tokens, got 17"):
        engine.forward_few(ids([1] * 17), cache)
    engine.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[CPUEngine]:
    write_tiny_model(tmp_path / "m.gguf", context_length=64)
    engine = load_engine(open_weights(tmp_path / "m.gguf"))
    yield engine
    engine.close()


def test_truncating_a_cache_forgets(tiny: CPUEngine) -> None:
    tokens = [1, 5, 300, 270, 44, 9]
    expected = at_once(tiny, tokens)
    cache = tiny.new_cache()
    tiny.forward(ids([*tokens[:3], 8, 9, 10]), cache)
    cache.truncate(3)
    found = tiny.forward(ids(tokens[3:]), cache, all_logits=True)
    assert np.array_equal(found, expected[3:])
    with pytest.raises(InputError, match="to 99"):
        cache.truncate(99)


def test_refusals(tiny: CPUEngine) -> None:
    cache = tiny.new_cache()
    with pytest.raises(InputError, match=r"0\.\.\d+"):
        tiny.forward(ids([100000]), cache)
    with pytest.raises(InputError, match="-1"):
        tiny.forward(ids([-1, 3]), cache)
    with pytest.raises(InputError):
        tiny.forward(ids([]), cache)
    tiny.forward(ids([1] * 60), cache)
    with pytest.raises(ContextLengthError, match=r"60 \+ 5 tokens"):
        tiny.forward(ids([1] * 5), cache)
    assert cache.length == 60
    tiny.close()
    with pytest.raises(InputError, match="closed"):
        tiny.forward(ids([1]), tiny.new_cache())


def test_only_own_caches_are_taken(tiny: CPUEngine, tmp_path: Path) -> None:
    """Kernels write where a cache's address leads."""
    other = load_engine(open_weights(tmp_path / "m.gguf"), context_length=16)

    class Imitation:
        kv_type, length, address = "F16", 0, 4096
        owner = tiny.new_cache().owner

    for foreign in (other.new_cache(), KVCache([ATTENTION], 64, "F16"), Imitation(), None):
        for step in (tiny.forward, tiny.forward_few):
            with pytest.raises(InputError, match="not one of this engine's"):
                step(ids([1, 2]), foreign)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="not one of this engine's"):
            tiny.forward_batch(ids([1]), [foreign])  # type: ignore[list-item]
    other.close()
    cache = tiny.new_cache()
    for bad in (-1, 1.0, "3", None, np.int64(2)):
        cache.length = bad  # type: ignore[assignment]
        with pytest.raises(InputError, match="length"):
            tiny.forward(ids([1]), cache)
    cache.length = 10**12
    with pytest.raises(ContextLengthError):
        tiny.forward(ids([1]), cache)
    with pytest.raises(AttributeError):
        cache.address = 4096  # type: ignore[misc]
    with pytest.raises(InputError, match="kv_type"):
        tiny.new_cache("Q4")


def test_the_caches_of_a_batch_are_different_and_of_one_type(tiny: CPUEngine) -> None:
    cache = tiny.new_cache()
    with pytest.raises(InputError, match="twice"):
        tiny.forward_batch(ids([1, 2]), [cache, cache])
    with pytest.raises(InputError, match="one type"):
        tiny.forward_batch(ids([1, 2]), [cache, tiny.new_cache("F32")])
    with pytest.raises(InputError, match="as many caches"):
        tiny.forward_batch(ids([1, 2]), [cache])
    assert cache.length == 0


@pytest.mark.parametrize(
    "tokens", [[[1, 2]], [1.0, 2.0], ["a"], 5, [True], [1, 2**40], [None], []], ids=repr
)
def test_tokens_are_a_flat_sequence_of_ids(tiny: CPUEngine, tokens: Any) -> None:
    cache = tiny.new_cache()
    for step in (tiny.forward, tiny.forward_few):
        with pytest.raises(InputError):
            step(tokens, cache)
    with pytest.raises(InputError):
        tiny.forward_batch(tokens, [cache])
    assert cache.length == 0


def test_a_cache_without_memory_says_what_it_needs(tmp_path: Path) -> None:
    metadata = {"llama.context_length": 2**31 - 1}
    with pytest.raises(TrinityError, match=r"2147483648 positions in F32 .* [PTE]B of memory"):
        KVCache([ATTENTION] * 100000, 2**31 - 1, "F32")
    with pytest.raises(TrinityError, match="EB of memory"):
        zeros(2**62, "f4", "a test")
    write_tiny_model(tmp_path / "long.gguf", metadata=metadata)
    with pytest.raises(InputError, match="context_length is"):
        load_engine(open_weights(tmp_path / "long.gguf"), context_length=2**31)


def test_threads_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_model(tmp_path / "m.gguf")
    start = threading.Thread.start
    before = threading.active_count()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "trinity-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(TrinityError, match="only 2 of 4 threads could be started"):
        load_engine(open_weights(tmp_path / "m.gguf"), threads=4)
    monkeypatch.undo()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)  # the thread that fills page tables
    assert threading.active_count() == before


def test_refused_options(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf")
    provider = open_weights(tmp_path / "m.gguf")
    with pytest.raises(InputError, match="kv_type"):
        load_engine(provider, kv_type="q4")
    with pytest.raises(InputError, match="threads"):
        load_engine(provider, threads=0)
    with pytest.raises(InputError, match="context_length"):
        load_engine(provider, context_length=0)
    with pytest.raises(KernelError, match="unknown"):
        load_engine(provider, isa="sse9")
    lacking = [level for level in LEVELS if level not in HOST_LEVELS]
    with pytest.raises(KernelError, match="available are"):
        load_engine(provider, isa=lacking[0])


def test_unknown_architecture_and_missing_tensors(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", arch="mamba")
    with pytest.raises(UnsupportedError, match="mamba"):
        load_engine(open_weights(tmp_path / "m.gguf"))
    # A llama file that claims to be BitNet lacks the sub-norms.
    write_tiny_model(tmp_path / "n.gguf", arch="llama", type="I2_S")
    data = (tmp_path / "n.gguf").read_bytes()
    swapped = data.replace(b"blk.1.attn_q", b"blk.1.attn_z")
    (tmp_path / "n.gguf").write_bytes(swapped)
    with pytest.raises(ConfigError, match=r"blk\.1\.attn_q\.weight"):
        load_engine(open_weights(tmp_path / "n.gguf"))


def test_weights_are_not_copied(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", type="Q4_0", hidden_size=128)
    provider = open_weights(tmp_path / "m.gguf")
    engine = load_engine(provider)
    for name, weight in engine.linears():
        assert weight.data.base is not None, name
        assert np.shares_memory(weight.data, provider.tensor(f"{name}.weight").data), name
    engine.close()


def test_not_finite_scale_is_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", arch="bitnet-b1.58", type="I2_S")
    provider = open_weights(tmp_path / "m.gguf")
    tensor = provider.tensor("blk.0.attn_q.weight")
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    at = data.find(tensor.data.tobytes())
    assert at > 0
    data[at + tensor.nbytes - 32 : at + tensor.nbytes - 28] = np.float32(np.nan).tobytes()
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(TrinityError, match="scale nan"):
        load_engine(open_weights(tmp_path / "bad.gguf"))


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
