"""A step gives each row the bits that it gets alone, whatever else the step has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.matrix import IN_FILES, KINDS, some
from tests.runtime.steps import Logits, at_once, stepwise
from tests.tiny_models import write_tiny_model
from trinity.providers import open_weights
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.runtime.pages.page_search import LEAST_COPY
from trinity_kernels.ops.kv_layout import KV_TYPES
from trinity_kernels.ops.matmul.activations import FORMS

RUNNABLE = sorted(IN_FILES)


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
