"""Engines with a recurrent state give the same bits, however a text is divided into steps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import trinity
from tests.runtime.family_engines import CONTEXT, ROWS, Load, evaluate, text_of
from trinity.errors import InputError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.quantization.quantization import quantize
from trinity.runtime import engine_building as module
from trinity.runtime.engine import CPUEngine
from trinity.runtime.interface import Rows
from trinity.runtime.pages import slot_file
from trinity.runtime.pages.page import Domain
from trinity.runtime.speculation import budget as speculation_budget
from trinity_kernels.ops.kv_layout import PAGE

FAMILIES = ("falcon_h1", "granitehybrid", "lfm2_moe", "nemotron_h_moe", "qwen3_5", "qwen3_next")


@pytest.mark.few(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_levels_threads_and_pieces_change_no_bit(
    load: Load, family: str, levels: tuple[str, ...]
) -> None:
    whole = load(family, rows=CONTEXT)
    tokens = text_of(whole, 300)
    expected = evaluate(whole, tokens, whole.new_cache())
    for level in levels:
        engine = load(family, isa=level, threads=1 + (level == "portable"))
        for size in (1, 7, ROWS):
            some = tokens[: 140 if size == 1 else 300]
            found = evaluate(engine, some, engine.new_cache(), size)
            assert np.array_equal(found, expected[: len(some)]), (level, size)


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_of_several_sequences(load: Load, family: str) -> None:
    """Positions differ; one sequence is in its first page, one crosses a page boundary."""
    engine = load(family)
    texts = [text_of(engine, 200, seed) for seed in range(3)]
    expected = [evaluate(engine, text, engine.new_cache()) for text in texts]
    caches, begun = [engine.new_cache() for _ in texts], (0, 60, 120)
    for cache, text, start in zip(caches, texts, begun, strict=True):
        if start:
            evaluate(engine, text[:start], cache)
    for _ in range(3):
        places = [cache.length for cache in caches]
        pieces = [Rows(cache, text[at : at + 9], 9)
                  for cache, text, at in zip(caches, texts, places, strict=True)]  # fmt: skip
        found = engine.step(pieces).reshape(3, 9, -1)
        for logits, at, right in zip(found, places, expected, strict=True):
            assert np.array_equal(logits, right[at : at + 9])


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_cut_ends_where_a_state_is(load: Load, family: str) -> None:
    engine = load(family)
    tokens, cache = text_of(engine, 450), engine.new_cache()
    expected = evaluate(engine, tokens, cache)
    cache.truncate(450)
    assert cache.length == 450
    cache.truncate(430)
    assert cache.length == 0  # nothing was kept
    cache.keep(200)
    assert np.array_equal(evaluate(engine, tokens, cache), expected)
    cache.truncate(200)
    assert cache.length == PAGE
    assert np.array_equal(evaluate(engine, tokens[PAGE:], cache), expected[PAGE:])


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_sequences_share_a_beginning(load: Load, family: str) -> None:
    engine = load(family)
    common, ends = text_of(engine, 300), [text_of(engine, 60, seed) for seed in range(4)]
    expected = []
    for end in ends:
        cache = engine.new_cache()
        cache.separate()
        expected.append(evaluate(engine, common + end, cache)[-1])
        cache.release()
    reused = []
    for end, logits in zip(ends, expected, strict=True):
        cache = engine.new_cache()
        reused.append(cache.reuse(common + end))
        assert np.array_equal(evaluate(engine, (common + end)[reused[-1] :], cache)[-1], logits)
        cache.release()
    # The end of the page before a prompt's end was kept.
    assert reused == [0, 2 * PAGE, 2 * PAGE, 2 * PAGE]
    cache = engine.new_cache()
    whole = [*common, *ends[0], 7]
    assert cache.reuse(whole) == 360  # where a text ended
    other = engine.new_cache()
    other.separate()
    after = evaluate(engine, whole, other)[-1]
    assert np.array_equal(evaluate(engine, [7], cache)[-1], after)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_requests_that_fight_for_pages(
    family: str, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests lose pages and continue, with the same text, and free all memory at the end."""
    monkeypatch.setattr(module, "PREFILL_CHUNK", ROWS)
    path = shared_data / "architectures" / family / "model.gguf"
    options: Any = {"max_tokens": 60, "temperature": 0.0, "ignore_eos": True}
    with trinity.load(path, context_length=CONTEXT, batch_invariant=True) as model:
        engine: Any = model.engine
        needed = engine._parts.layout.sequence_bytes(engine.kv_type, CONTEXT)
        lengths = (20, 150, 200, 280, 300, 330)
        prompts = [text_of(engine, length, length % 3) for length in lengths]
        expected = [model.generate(prompt, **options).token_ids for prompt in prompts]
    with (
        trinity.load(
            path, context_length=CONTEXT, batch_invariant=True, kv_memory=2 * needed
        ) as model,
        ThreadPoolExecutor(12) as threads,
    ):  # fmt: skip
        calls = [threads.submit(model.generate, prompt, **options) for prompt in 2 * prompts]
        assert [call.result().token_ids for call in calls] == 2 * expected
        with model.exclusive() as engine:
            assert engine.pool.claimed == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_taken_back(load: Load, family: str, kv_type: str) -> None:
    """Each number of the five rows in turn is right; the rest are wrong and removed."""
    engine = load(family, kv_type=kv_type)
    tokens = text_of(engine, 450)
    expected = evaluate(engine, tokens, engine.new_cache())
    wrong = [(token + 1) % engine.config.vocab_size for token in tokens]
    cache = engine.new_cache()
    for right in (*range(1, 6), *range(5, 0, -1)) * 15:
        start = cache.length
        most = cache.most_revocable
        assert most == min(4, max(0, PAGE - 2 - start % PAGE))
        count = min(right, most + 1)
        rows = tokens[start : start + count] + wrong[start + count : start + 1 + most]
        found = engine.step([Rows(cache, rows, len(rows), revocable=True)], exact=True)
        cache.truncate(start + count)
        assert cache.length == start + count
        assert np.array_equal(found[:count], expected[start : start + count])
        if cache.length > 440:
            break
    cache.release()
    assert engine.pool.claimed == 0
    again = engine.new_cache()
    start = again.reuse(tokens)
    assert start > 0
    assert np.array_equal(evaluate(engine, tokens[start:], again), expected[start:])


def test_more_rows_than_a_page_has_left(load: Load) -> None:
    engine = load("qwen3_5")
    cache = engine.new_cache()
    evaluate(engine, text_of(engine, 125), cache)
    with pytest.raises(
        InputError, match=r"2 of 3 rows are to be revocable, .* take back at most 1"
    ):
        engine.step([Rows(cache, [1, 2, 3], 3, revocable=True)])


def test_a_repeating_text_is_guessed(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation_budget, "CHEAP", 0.0)
    path = shared_data / "architectures" / "qwen3_5" / "model.gguf"
    options: Any = {"max_tokens": 200, "temperature": 0.0, "ignore_eos": True}
    with trinity.load(path, context_length=CONTEXT) as model:
        prompt = [20, 21, 22, 23, 24, 25] * 20
        found = model.generate(prompt, **options)
        assert found.timings.proposed_tokens > found.timings.accepted_tokens
        plain = model.generate(prompt, speculative=False, **options)
        assert plain.token_ids == found.token_ids


def test_a_step_that_fails_leaves_no_state(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load("qwen3_5")
    tokens, cache = text_of(engine, 200), engine.new_cache()
    expected = evaluate(engine, tokens, cache)
    cache.truncate(PAGE)
    assert cache.length == 0
    cache.keep(PAGE)
    evaluate(engine, tokens[:150], cache)
    run = engine._walk

    def fails(plan: Any) -> None:
        run(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_walk", fails)
    with pytest.raises(KeyboardInterrupt):
        evaluate(engine, tokens[150:160], cache)
    monkeypatch.setattr(engine, "_walk", run)
    assert cache.length == PAGE
    assert np.array_equal(evaluate(engine, tokens[PAGE:], cache), expected[PAGE:])
    cache.release()
    other = engine.new_cache()
    start = other.reuse(tokens)
    assert np.array_equal(evaluate(engine, tokens[start:], other), expected[start:])


@pytest.mark.parametrize("before", [0, 100, 200])
def test_a_step_of_pages_that_fails(
    load: Load, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:  # fmt: skip
    engine = load("qwen3_5", rows=CONTEXT)
    tokens, cache = text_of(engine, 500), engine.new_cache()
    expected = evaluate(engine, tokens, cache)
    cache.release()
    cache = engine.new_cache()
    cache.separate()
    if before:
        cache.keep(before)
        evaluate(engine, tokens[:before], cache)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_put_states", lambda rows: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            evaluate(engine, tokens[before:], cache)
    start = cache.length
    assert start == before // PAGE * PAGE
    assert np.array_equal(evaluate(engine, tokens[start:], cache), expected[start:])


@pytest.mark.parametrize("count", [1, 300])
def test_a_profile_takes_nothing_in(load: Load, count: int) -> None:
    engine = load("granitehybrid", rows=CONTEXT)
    tokens, cache = text_of(engine, 200), engine.new_cache()
    expected = evaluate(engine, tokens, cache)
    found = engine.profile([Rows(cache, [5] * count)], rounds=1)
    assert {"causal_conv", "selective_scan"} <= {one.kernel for one in found}
    assert np.array_equal(evaluate(engine, tokens[cache.length :], cache), expected)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_a_saved_slot_goes_on(load: Load, kv_type: str, tmp_path: Path) -> None:
    engine, other = (load("falcon_h1", kv_type=kv_type) for _ in range(2))
    tokens, cache = text_of(engine, 203), engine.new_cache(domain=Domain(0))
    expected = evaluate(engine, tokens, cache)
    cache.truncate(0)
    evaluate(engine, tokens[:200], cache)
    cache.remember()
    cache.release()
    path = str(tmp_path / "slot.bin")
    assert slot_file.save(engine, Domain(0), path)[0] == 200
    assert slot_file.restore(other, Domain(0), path)[0] == 200
    again = other.new_cache(domain=Domain(0))
    assert again.reuse(tokens) == 200
    assert np.array_equal(evaluate(other, tokens[200:], again), expected[200:])


def test_state_counts(load: Load) -> None:
    engine = load("qwen3_5")
    sizes = engine.pool.sizes
    # Three layers: 4 heads of 16 keys by 16 values, and 3 rows of 128 channels.
    assert {one.windowed for one in sizes.values()} == {3 * 4 * (4 * 16 * 16 + 3 * 128)}
    one_more = engine.bytes_per_token(2) - engine.bytes_per_token(1)
    assert engine.bytes_per_token(0) + one_more == engine.bytes_per_token(1)


def test_where_a_prompt_that_continues_an_earlier_text_begins(
    shared_data: Path, tmp_path: Path
) -> None:
    """At its last page boundary, or at its own end if no later token changed the state."""
    path, start = tmp_path / "model.gguf", PAGE + 22
    quantize(shared_data / "architectures" / "qwen3_5" / "model.gguf", path, "Q8_0")
    more: Any = {"temperature": 0, "ignore_eos": True}

    def found(generated: int, **options: Any) -> int:
        with trinity.load(path, context_length=CONTEXT, **options) as model:
            prompt = text_of(cast(CPUEngine, model.engine), start)
            answer = model.generate(prompt, max_tokens=generated, **more).token_ids
            again = model.generate([*prompt, *answer, 7, 8], max_tokens=1, **more)
            return again.timings.cached_tokens

    assert found(1) == start  # the only generated token is not evaluated
    assert found(10, reuse_answers=True) == start + 9
    assert found(10, batch_invariant=True) == start + 9
    with trinity.load(path, context_length=CONTEXT) as model:
        has_same_bits = model.engine.rounding == "single"
    assert found(10) == (start + 9 if has_same_bits else PAGE)


def test_a_model_without_attention(shared_data: Path, tmp_path: Path) -> None:
    """The bits equal those of a model with an attention layer that adds nothing."""
    folder = shared_data / "architectures" / "nemotron_h"  # of layers M-*-M
    without, idle = tmp_path / "without.gguf", tmp_path / "idle.gguf"
    write_without_attention(folder / "model.gguf", without, idle)
    options: Any = {"context_length": CONTEXT, "batch_invariant": True}
    greedy: Any = {"max_tokens": 40, "temperature": 0.0, "ignore_eos": True}
    with trinity.load(without, **options) as model, trinity.load(idle, **options) as other:
        texts = [text_of(cast(CPUEngine, model.engine), length) for length in (20, 150, 300, 300)]
        assert np.array_equal(model.logits(texts[2]), other.logits(texts[2]))
        found = [model.generate(text, **greedy) for text in texts]
        assert [one.token_ids for one in found] == [
            other.generate(text, **greedy).token_ids for text in texts
        ]
        assert found[-1].timings.cached_tokens == 2 * PAGE
        with model.exclusive() as engine:
            assert {one.full for one in cast(CPUEngine, engine).pool.sizes.values()} == {0}


def write_without_attention(source: Path, without: Path, idle: Path) -> None:
    """Layer 2 of five left out, and its output 0."""
    heads, widths = "nemotron_h.attention.head_count_kv", "nemotron_h.feed_forward_length"
    with (
        GGUFProvider(source) as provider, GGUFWriter(without) as cut, GGUFWriter(idle) as whole
    ):  # fmt: skip
        for key in provider.metadata:
            whole.add_encoded(key, provider.metadata.encoded(key))
            value = provider.metadata[key]
            if key in (heads, widths):
                cut.add(key, np.delete(np.asarray(value), 2))
            elif key == "nemotron_h.block_count":
                cut.add(key, 4)
            else:
                cut.add_encoded(key, provider.metadata.encoded(key))
        for name in provider.tensor_names():
            tensor = provider.tensor(name)
            data, parts = tensor.data, name.split(".")
            if parts[:3] == ["blk", "2", "attn_output"]:
                data = np.zeros_like(data)
            whole.add_tensor(name, tensor.shape, tensor.type, data)
            if parts[0] == "blk" and int(parts[1]) > 2:
                name = ".".join(["blk", str(int(parts[1]) - 1), *parts[2:]])
            if parts[:2] != ["blk", "2"]:
                cut.add_tensor(name, tensor.shape, tensor.type, data)
