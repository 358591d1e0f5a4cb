"""What a step takes: tokens, caches and memory for logits; and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.steps import at_once
from tests.tiny_models import write_tiny_model
from trinity.errors import (
    ContextLengthError,
    InputError,
    TrinityError,
)
from trinity.providers import open_weights
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.pages.page_layout import PartSizes
from trinity.runtime.pages.page_pool import PagePool


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
