"""Engines whose windowed layers keep only their window give the same logits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.naive import float_tensors, naive_logits
from tests.runtime.family_engines import CONTEXT, ROWS, Load, evaluate, text_of
from tests.tiny_models import write_tiny_model
from trinity.errors import InputError
from trinity.model import Model
from trinity.providers import open_weights
from trinity.runtime import engine_building as module
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.tools.bench import Bench
from trinity_kernels.ops.kv_layout import PAGE

# Some layers are windowed, or all of them (phi3), by 16 positions.
FAMILIES = (
    "cohere2", "exaone4_window", "gemma2", "gemma3", "gemma4", "gemma4_e", "gpt_oss", "olmo3",
    "phi3",
)  # fmt: skip


def least(engine: CPUEngine) -> int:
    """Bytes that one sequence of a whole context needs."""
    return engine._parts.layout.sequence_bytes(engine.kv_type, CONTEXT)


@pytest.mark.few(4)
@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_a_cache_that_keeps_all(load: Load, family: str, kv_type: str) -> None:
    whole = load(family, rows=CONTEXT, kv_type=kv_type)
    assert whole._parts.layout.window is None
    tokens = text_of(whole, 450)
    expected = evaluate(whole, tokens, whole.new_cache())
    probe = load(family, kv_type=kv_type)
    sizes = probe.pool.sizes[probe.kv_type]
    assert sum(sizes) == whole.pool.sizes[whole.kv_type].full
    assert sizes.windowed
    assert (sizes.full == 0) == (family == "phi3")
    assert least(probe) == 4 * sizes.full + 2 * sizes.windowed
    with pytest.raises(InputError, match=f"kv_memory is {least(probe) - 1} bytes"):
        load(family, kv_type=kv_type, kv_memory=least(probe) - 1)
    engine = load(family, kv_type=kv_type, kv_memory=least(probe))
    cache = engine.new_cache()
    assert np.array_equal(evaluate(engine, tokens[:400], cache), expected[:400])
    single = [evaluate(engine, [token], cache) for token in tokens[400:]]
    assert np.array_equal(np.concatenate(single), expected[400:])
    assert engine.pool.nbytes <= engine.pool.limit == least(probe)


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_sequences_share_a_beginning(load: Load, family: str) -> None:
    whole, engine = load(family, rows=CONTEXT), load(family)
    common, ends = text_of(whole, 300), [text_of(whole, 120, seed) for seed in range(5)]
    expected = [evaluate(whole, common + end, whole.new_cache())[-1] for end in ends]
    reused = []
    for end, logits in zip(ends, expected, strict=True):
        cache = engine.new_cache()
        reused.append(cache.reuse(common + end))
        assert np.array_equal(evaluate(engine, (common + end)[reused[-1] :], cache)[-1], logits)
        cache.release()
    # The second one finds that there is a common beginning: from then on its end is kept.
    assert reused == [0, 0, 300, 300, 300]
    cache = engine.new_cache()
    assert cache.reuse(common + ends[0] + [7]) == 420  # where a text ended
    after = evaluate(whole, common + ends[0] + [7], whole.new_cache())[-1]
    assert np.array_equal(evaluate(engine, [7], cache)[-1], after)


@pytest.mark.few(1)
@pytest.mark.parametrize("contexts", [2, 1])
@pytest.mark.parametrize("family", ["gemma3", "phi3"])
def test_requests_that_fight_for_pages(
    family: str, contexts: int, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests lose pages and continue, with the same text, and free all memory at the end."""
    monkeypatch.setattr(module, "PREFILL_CHUNK", ROWS)

    def model_of(**options: Any) -> Model:
        path = shared_data / "architectures" / family / "model.gguf"
        return trinity.load(path, context_length=CONTEXT, batch_invariant=True, **options)

    options: Any = {"max_tokens": 60, "temperature": 0.0, "ignore_eos": True}
    with model_of() as model:
        engine: Any = model.engine
        needed = least(engine)
        lengths = (20, 150, 200, 280, 300, 330)
        prompts = [text_of(engine, length, length % 3) for length in lengths]
        expected = [model.generate(prompt, **options).token_ids for prompt in prompts]
    with model_of(kv_memory=contexts * needed) as model, ThreadPoolExecutor(12) as threads:
        calls = [threads.submit(model.generate, prompt, **options) for prompt in 2 * prompts]
        assert [call.result().token_ids for call in calls] == 2 * expected
        with model.exclusive() as engine:
            assert engine.pool.claimed == 0
            assert engine.pool.nbytes == engine.pool.idle_bytes <= engine.pool.limit


@pytest.mark.parametrize("windows", [20, 130])
def test_a_long_text_by_the_formulas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    monkeypatch.setattr(module, "PREFILL_CHUNK", 24)
    metadata = {"llama.attention.sliding_window": np.uint32(windows)}
    write_tiny_model(tmp_path / "m.gguf", metadata=metadata, context_length=512)
    provider = open_weights(tmp_path / "m.gguf")
    engine = load_engine(provider, kv_type="f32", kv_memory=None)
    assert engine.pool.window is not None
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, 300, 3 * PAGE + 50)]
    found = evaluate(engine, tokens, engine.new_cache())
    expected = naive_logits(
        float_tensors(provider), provider.config, tokens, arch="llama", int8_activations=False
    )
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 1e-5
    engine.close()


def test_a_cut_behind_what_is_seen(load: Load) -> None:
    """The cut moves to a position that can continue; the kept parts stay."""
    engine = load("gemma3")
    tokens = text_of(engine, 450)
    cache = engine.new_cache()
    expected = evaluate(engine, tokens, cache)
    cache.truncate(430)  # the page before is still seen
    assert cache.length == 430
    assert np.array_equal(evaluate(engine, tokens[430:], cache), expected[430:])
    cache.truncate(200)
    assert cache.length == 0
    cache.keep(200)
    assert np.array_equal(evaluate(engine, tokens, cache), expected)
    cache.truncate(200)
    assert cache.length == 200
    assert np.array_equal(evaluate(engine, tokens[200:], cache), expected[200:])


def test_a_profile_knows_what_windowed_layers_read(load: Load) -> None:
    """The profile leaves the cache unchanged, although its step moved past the window."""
    engine = load("gemma3")
    tokens = text_of(engine, 400)
    cache = engine.new_cache()
    for count in (100, 300):
        evaluate(engine, tokens[cache.length : count], cache)
        found = engine.profile([Rows(cache, tokens[count : count + 1])], rounds=1)
        read = sum(op.nbytes for op in found if op.kernel == "attention_parts")
        assert read == engine.bytes_per_token(count + 1) - engine.bytes_per_token(0)
        engine.profile([Rows(cache, tokens[count : count + ROWS])], rounds=1)
        assert cache.length == count
    expected = evaluate(engine, tokens, engine.new_cache())[300:]
    assert np.array_equal(evaluate(engine, tokens[300:], cache), expected)


@pytest.mark.full
def test_a_benchmark_fills_a_context_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load("gemma3")
    bench, rows, step = Bench(engine), list[int](), engine.step

    def counted(pieces: Any, **options: Any) -> Any:
        rows.append(sum(len(piece.tokens) for piece in pieces))
        return step(pieces, **options)

    with monkeypatch.context() as patch:  # undone before the engine is closed
        patch.setattr(engine, "step", counted)
        for repetition in range(3):
            bench.generation(170, depth=300)
            assert sum(rows) == 300 + 170 * (repetition + 1)
