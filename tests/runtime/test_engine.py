"""The engine gives golden tokens and logits on every level, thread count and step size."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.matrix import IN_FILES, KINDS, some
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
from trinity.providers import open_weights
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.runtime.kv_cache import KVCache
from trinity.runtime.memory import mapped, zeros
from trinity.runtime.page_layout import PartSizes
from trinity.runtime.page_pool import PagePool
from trinity.runtime.page_search import LEAST_COPY
from trinity_kernels.cores import default_threads
from trinity_kernels.isa import LEVELS, available_levels
from trinity_kernels.ops.kv_layout import KV_TYPES
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
Logits = NDArray[np.float32]


def golden(shared_data: Path, name: str) -> tuple[dict[str, Any], Logits]:
    entry: dict[str, Any] = json.loads((shared_data / "models/golden.json").read_text())[name]
    return entry, np.load(shared_data / f"models/{name}.logits.npy")


def stepwise(engine: CPUEngine, tokens: list[int], cache: KVCache | None = None) -> Logits:
    cache = cache or engine.new_cache()
    return np.concatenate([engine.step([Rows(cache, [t])]) for t in tokens])


def at_once(engine: CPUEngine, tokens: list[int], cache: KVCache | None = None) -> Logits:
    return engine.step([Rows(cache or engine.new_cache(), tokens, logits=len(tokens))])


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


@pytest.mark.few(1)
@pytest.mark.parametrize("type_name", ["I2_S", "TQ1_0", "TQ2_0"])
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_ternary_logits_are_the_same_bits_everywhere(
    tmp_path: Path, type_name: str, kv_type: str, levels: tuple[str, ...]
) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, arch="bitnet-b1.58", type=type_name, num_layers=2)
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 300, 150)]
    reference: Logits | None = None
    for level in levels:
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
                    parts.append(at_once(engine, tokens[start:stop], cache))
                assert np.array_equal(np.concatenate(parts), reference), level
            engine.close()


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
        engine.step([Rows(cache, prompt)])
        alone.append(engine.step([Rows(cache, [7])])[0])
    for prompt, cache in zip(prompts, caches, strict=True):
        engine.step([Rows(cache, prompt)])
    together = engine.step([Rows(cache, [7]) for cache in caches])
    if type_name == "Q4_0" and engine.isa != "portable":
        # bfloat16 tiles, or sums block by block, against dot products in 16 lanes.
        assert np.abs(together - np.array(alone)).max() < 0.05 * np.abs(alone).max()
    else:
        assert np.array_equal(together, np.array(alone))
    assert [cache.length for cache in caches] == [len(prompt) + 1 for prompt in prompts]
    engine.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(
    ("type_name", "batch_invariant"), [("I2_S", False), ("Q4_0", True), ("Q8_0", True)]
)
def test_any_mixture_of_rows_leaves_the_bits_alone(
    tmp_path: Path, type_name: str, batch_invariant: bool, kv_type: str, level: str
) -> None:
    """Random steps have prompt chunks of many sizes and single tokens of several sequences."""
    path = tmp_path / "m.gguf"
    arch = "bitnet-b1.58" if type_name == "I2_S" else "llama"
    write_tiny_model(path, arch=arch, type=type_name, num_layers=1, context_length=512)
    engine = load_engine(
        open_weights(path), isa=level, threads=2, kv_type=kv_type, batch_invariant=batch_invariant
    )
    rng = np.random.default_rng([len(level), len(kv_type)])
    texts = [[int(t) for t in rng.integers(0, 300, n)] for n in (1, 40, 129, 300, 20)]
    alone = [stepwise(engine, text) for text in texts]
    caches = [engine.new_cache() for _ in texts]
    found: list[list[Logits]] = [[] for _ in texts]
    while left := [i for i, text in enumerate(texts) if caches[i].length < len(text)]:
        rows, sizes = [], []
        for i in left:
            size = int(min(rng.choice([0, 1, 1, 2, 17, 100]), len(texts[i]) - caches[i].length))
            if size:
                part = texts[i][caches[i].length :][:size]
                rows.append(Rows(caches[i], part, logits=size))
                sizes.append((i, size))
        if rows:
            logits = engine.step(rows)
            for i, size in sizes:
                found[i].append(logits[:size])
                logits = logits[size:]
            assert not len(logits)
    for i in range(len(texts)):
        assert np.array_equal(np.concatenate(found[i]), alone[i]), i
    engine.close()


@pytest.mark.few(5)
@pytest.mark.parametrize("type_name", some(RUNNABLE, {*KINDS, "F16"}))
def test_exact_steps_give_the_bits_of_single_ones(
    tmp_path: Path, type_name: str, level: str
) -> None:
    path = tmp_path / "m.gguf"
    arch = "bitnet-b1.58" if FORMS[type_name] == "ternary" else "llama"
    write_tiny_model(path, arch=arch, type=type_name, num_layers=1, tied=False)
    engine = load_engine(open_weights(path), isa=level, threads=2)
    prompt, tokens = list(range(120)), list(range(200, 216))
    cache = engine.new_cache()
    engine.step([Rows(cache, prompt)])
    alone = stepwise(engine, tokens, cache)
    for count in (1, 3, 4, 16):
        cache.truncate(len(prompt))
        found = engine.step([Rows(cache, tokens[:count], logits=count)], exact=True)
        assert np.array_equal(found, alone[:count]), count
        assert cache.length == len(prompt) + count
    # Other steps may come between, and steps of one token go on from there.
    cache.truncate(len(prompt) + 2)
    engine.step([Rows(engine.new_cache(), prompt)])
    assert np.array_equal(stepwise(engine, tokens[2:3], cache)[0], alone[2])
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
    tiny.step([Rows(cache, [*tokens[:3], 8, 9, 10])])
    cache.truncate(3)
    assert np.array_equal(at_once(tiny, tokens[3:], cache), expected[3:])
    with pytest.raises(InputError, match="to 99"):
        cache.truncate(99)


def test_refusals(tiny: CPUEngine) -> None:
    cache = tiny.new_cache()
    with pytest.raises(InputError, match=r"0\.\.\d+"):
        tiny.step([Rows(cache, [100000])])
    with pytest.raises(InputError, match="-1"):
        tiny.step([Rows(cache, [-1, 3])])
    with pytest.raises(InputError, match="at least one row"):
        tiny.step([])
    with pytest.raises(InputError, match="logits of 3 rows"):
        tiny.step([Rows(cache, [1, 2], logits=3)])
    with pytest.raises(InputError, match="a step takes 64 rows, got 80"):
        tiny.step([Rows(cache, [1] * 40), Rows(tiny.new_cache(), [1] * 40)])
    tiny.step([Rows(cache, [1] * 60)])
    with pytest.raises(ContextLengthError, match=r"60 \+ 5 tokens"):
        tiny.step([Rows(cache, [1] * 5)])
    assert cache.length == 60
    with pytest.raises(InputError, match="kv_type"):
        tiny.new_cache("Q4")
    tiny.close()
    with pytest.raises(InputError, match="closed"):
        tiny.step([Rows(tiny.new_cache(), [1])])


def test_logits_are_the_callers_own(tiny: CPUEngine) -> None:
    first = tiny.step([Rows(tiny.new_cache(), [1, 2, 3], logits=3)])
    before = first.copy()
    room = np.zeros((4, tiny.config.vocab_size), np.float32)
    second = tiny.step([Rows(tiny.new_cache(), [9, 8], logits=2)], out=room)
    assert np.array_equal(first, before)
    assert second.base is room
    assert not room[2:].any()
    assert room[:2].any()
    assert not len(tiny.step([Rows(tiny.new_cache(), [1, 2, 3], logits=0)]))
    for bad in (room[:1], room.astype(np.float64), room[:, ::2], np.zeros((4, 5), np.float32)):
        with pytest.raises(InputError, match="out"):
            tiny.step([Rows(tiny.new_cache(), [1, 2], logits=2)], out=bad)  # type: ignore[arg-type]


def test_only_own_caches_are_taken(tiny: CPUEngine, tmp_path: Path) -> None:
    """Kernels write to the addresses in a cache's table."""
    other = load_engine(open_weights(tmp_path / "m.gguf"), context_length=16)

    class Imitation:
        kv_type, length, address, pool = "F16", 0, 4096, tiny.pool

    strange = KVCache(PagePool({"F16": PartSizes(64)}, 1 << 20), "F16", 64)
    for foreign in (other.new_cache(), strange, Imitation(), None):
        with pytest.raises(InputError, match="not one of this engine's"):
            tiny.step([Rows(foreign, [1, 2])])  # type: ignore[arg-type]
    other.close()
    cache = tiny.new_cache()
    for name in ("address", "window_address", "length", "pool", "kv_type"):
        with pytest.raises(AttributeError):
            setattr(cache, name, 4096)


def test_the_caches_of_a_step_are_different_and_of_one_type(tiny: CPUEngine) -> None:
    cache = tiny.new_cache()
    with pytest.raises(InputError, match="twice"):
        tiny.step([Rows(cache, [1]), Rows(cache, [2])])
    with pytest.raises(InputError, match="one type"):
        tiny.step([Rows(cache, [1]), Rows(tiny.new_cache("F32"), [2])])
    assert cache.length == 0


@pytest.mark.parametrize(
    "tokens", [[[1, 2]], [1.0, 2.0], ["a"], 5, [True], [1, 2**40], [None], []], ids=repr
)
def test_tokens_are_a_flat_sequence_of_ids(tiny: CPUEngine, tokens: Any) -> None:
    cache = tiny.new_cache()
    with pytest.raises(InputError):
        tiny.step([Rows(cache, tokens)])
    assert cache.length == 0


def test_pages_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, context_length=512)
    with pytest.raises(InputError, match="kv_memory is 1000 bytes, but one sequence of 512"):
        load_engine(open_weights(path), kv_memory=1000)
    probe = load_engine(open_weights(path))
    page, windowed = probe.pool.sizes["F16"]
    assert not windowed
    probe.close()
    engine = load_engine(open_weights(path), kv_memory=4 * page)
    first, second = engine.new_cache(), engine.new_cache()
    engine.step([Rows(first, [1] * 300)])
    with pytest.raises(TrinityError, match="no free page"):
        engine.step([Rows(second, [2] * 200)])
    assert engine.pool.nbytes == 4 * page
    first.release()
    expected = at_once(engine, [2] * 200)
    assert np.array_equal(at_once(engine, [2] * 200, second), expected)
    assert engine.pool.nbytes == 4 * page
    engine.close()


def test_shared_pages_give_the_same_logits(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, arch="bitnet-b1.58", type="I2_S", context_length=512)
    engine, fresh = (load_engine(open_weights(path)) for _ in range(2))
    rng = np.random.default_rng(5)
    text = [int(t) for t in rng.integers(0, 300, 420)]
    expected = at_once(fresh, text)
    first = engine.new_cache()
    engine.step([Rows(first, text[:400])])
    for shared, end in ((399, 400), (300, 400), (384, 400), (130, 140), (2, 400)):
        other = [*text[:shared], *(299 - t for t in text[shared:end]), 5]
        alone = at_once(fresh, other)[-1]
        second = engine.new_cache()
        held = second.reuse(other)
        # A few tokens of a page are not worth a copy.
        assert held >= (shared if shared % 128 >= LEAST_COPY else shared // 128 * 128)
        found = engine.step([Rows(second, other[held:])])[0]
        assert np.array_equal(found, alone), shared
        second.release()
    # The first one's pages were left alone.
    assert np.array_equal(at_once(engine, text[400:], first), expected[400:])
    engine.close()
    fresh.close()


def test_memory_that_the_system_does_not_give(tmp_path: Path) -> None:
    metadata = {"llama.context_length": 2**31 - 1}
    with pytest.raises(TrinityError, match="EB of memory"):
        zeros(2**62, "f4", "a test")
    with pytest.raises(TrinityError, match="EB of memory"):
        mapped(2**62, "a test")
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
    deadline = time.monotonic() + 60
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
    write_tiny_model(tmp_path / "m.gguf", arch="rwkv6")
    with pytest.raises(UnsupportedError, match="rwkv6"):
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


def test_what_does_no_good_is_told(tmp_path: Path) -> None:
    """Warnings about too many threads or too large a context need an explicit option."""
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, context_length=64)
    cores = default_threads()
    for threads, context, expected in (
        (None, None, []), (cores, 64, []),
        (cores + 1, 65, [f"{cores + 1} threads, but", "a context of 65 tokens, but the model was"]),
    ):  # fmt: skip
        lines: list[str] = []
        with closing(open_weights(path)) as provider:
            load_engine(
                provider, threads=threads, context_length=context, progress=lines.append
            ).close()
        told = [line for line in lines if line.startswith("warning: ")]
        assert len(told) == len(expected)
        assert all(part in line for part, line in zip(expected, told, strict=True))
