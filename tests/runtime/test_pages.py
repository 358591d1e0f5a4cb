"""Pages against a model of them: lists of the tokens that each sequence has evaluated."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy_model import PAGE_BYTES, held, slots
from trinity.errors import InputError, TrinityError
from trinity.runtime import pages as module
from trinity.runtime.pages import KVCache, PagePool
from trinity_kernels.ops.kv_layout import PAGE

CONTEXT = 4 * PAGE


def pool_of(pages: int) -> PagePool:
    return PagePool(PAGE_BYTES, pages * PAGE_BYTES["F16"])


def write(cache: KVCache, tokens: list[int]) -> None:
    """As a step does: room first, then the content, then the note of it."""
    assert cache.reserve(cache.length + len(tokens))
    for place, token in enumerate(tokens, cache.length):
        slots(cache, place // PAGE)[place % PAGE] = token
    cache.append(tokens)


def text(seed: int, length: int) -> list[int]:
    """One of several texts that begin alike for a while."""
    tokens = np.random.default_rng(7).integers(0, 50, length).tolist()
    start = [0, 100, PAGE, PAGE + 60, 2 * PAGE, 300][seed % 6]
    tokens[start:] = np.random.default_rng(seed).integers(50, 99, max(length - start, 0)).tolist()
    return [int(token) for token in tokens]


def counted(pool: PagePool) -> dict[str, int]:
    spare = sum(map(len, pool._spare.values()))
    used = pool.nbytes // PAGE_BYTES["F16"] - spare - len(pool._idle)
    return {"used": used, "idle": len(pool._idle), "spare": spare}


def check_tree(pool: PagePool) -> None:
    """Every page hangs once below its parent; an idle page has no child that is in use."""
    for kv_type in PAGE_BYTES:
        stack = [pool.root(kv_type)]
        while stack:
            page = stack.pop()
            for child in page.children:
                assert child.parent is page
                assert child.users > 0 or child in pool._idle
                assert page.users > 0 or child.users == 0 or page is pool.root(kv_type)
            assert len(set(map(id, page.children))) == len(page.children)
            stack += page.children
    for pages in pool._spare.values():
        for page in pages:
            assert page.parent is None
            assert not page.children
            assert not page.users


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_sequences_hold_their_own_tokens(data: st.DataObject) -> None:
    """Whatever is shared, copied, cut, returned and taken again, in a pool that is too small."""
    draw = data.draw
    pool = pool_of(draw(st.integers(2, 8)))
    caches: list[tuple[KVCache, list[int], list[int]]] = []  # with its text and what it holds
    for _ in range(draw(st.integers(1, 40))):
        action = draw(st.sampled_from("nnnwwwwtrx"))
        if action == "n":
            cache = KVCache(pool, draw(st.sampled_from(["F16", "F16", "F32"])), CONTEXT)
            whole = text(draw(st.integers(0, 11)), CONTEXT)
            if draw(st.integers(0, 4)):
                reused = cache.reuse(whole[: draw(st.integers(1, CONTEXT))])
            else:
                cache.separate()
                reused = 0
            caches.append((cache, whole, whole[:reused]))
        elif caches:
            index = draw(st.integers(0, len(caches) - 1))
            cache, whole, held_here = caches[index]
            if action == "w":
                ahead = draw(st.integers(0, CONTEXT - cache.length))
                count = min(draw(st.integers(1, 200)), CONTEXT - cache.length)
                rest = whole[cache.length : cache.length + count]
                if draw(st.integers(0, 5)) == 0:
                    rest = [99] * len(rest)  # a proposal that is wrong
                if cache.reserve(cache.length + max(ahead, count)):
                    write(cache, rest)
                    held_here += rest
            elif action == "t":
                length = draw(st.integers(0, cache.length))
                cache.truncate(length)
                del held_here[length:]
            else:
                if action == "r":
                    cache.release()
                del caches[index], cache, held_here
                pool.available("F16")  # takes back what was collected
        for cache, _, expected in caches:
            assert cache.length == len(expected)
            assert held(cache) == expected
        check_tree(pool)
        assert pool.nbytes <= pool.limit
    cache = None  # type: ignore[assignment]
    caches.clear()
    assert pool.available("F16") == pool.limit // PAGE_BYTES["F16"]
    assert counted(pool)["used"] == 0


def test_full_pages_are_shared_and_a_part_is_copied() -> None:
    pool = pool_of(8)
    first, second = (KVCache(pool, "F16", CONTEXT) for _ in range(2))
    tokens = text(0, 2 * PAGE + 50)
    write(first, tokens)
    assert second.reuse(tokens) == len(tokens) - 1
    assert counted(pool)["used"] == 4  # two that both use, and two parts
    assert held(second) == tokens[:-1]
    write(second, [7])
    assert held(first) == tokens


def test_two_that_evaluate_the_same_end_with_the_same_pages() -> None:
    """Also where pages behind the one that becomes full have been reserved."""
    pool = pool_of(8)
    first, second, third = (KVCache(pool, "F16", CONTEXT) for _ in range(3))
    tokens = text(0, 3 * PAGE)
    write(first, tokens[:200])
    write(second, tokens)
    write(first, tokens[200:])
    assert counted(pool)["used"] == 3
    first.release()
    second.release()
    assert third.reuse([*tokens, 1]) == len(tokens)
    assert held(third) == tokens
    check_tree(pool)


def test_the_page_that_was_used_longest_ago_goes_first() -> None:
    pool = pool_of(3)
    for seed in (6, 7, 8):  # texts of one page, of which nothing is alike
        cache = KVCache(pool, "F16", CONTEXT)
        write(cache, [seed] * PAGE)
        cache.release()
    again = KVCache(pool, "F16", CONTEXT)
    assert again.reuse([6] * PAGE + [0]) == PAGE
    again.release()
    other = KVCache(pool, "F16", CONTEXT)
    write(other, [9] * PAGE)
    found = {seed: KVCache(pool, "F16", CONTEXT).reuse([seed] * PAGE + [0]) for seed in (6, 7, 8)}
    assert found == {6: PAGE, 7: 0, 8: PAGE}


def test_no_page_is_left() -> None:
    pool = pool_of(2)
    cache, other = KVCache(pool, "F16", CONTEXT), KVCache(pool, "F16", CONTEXT)
    assert cache.reserve(2 * PAGE)
    assert not other.reserve(1)
    assert pool.available("F32") == 0
    cache.release()
    assert other.reserve(1)


def test_memory_of_one_type_goes_to_the_other() -> None:
    pool = pool_of(2)
    cache = KVCache(pool, "F16", CONTEXT)
    write(cache, [1] * 2 * PAGE)
    cache.release()
    other = KVCache(pool, "F32", CONTEXT)
    assert other.reuse([1] * PAGE) == 0
    write(other, [1] * 2 * PAGE)
    assert pool.nbytes == pool.limit


def test_what_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLAB_BYTES", 0)  # the memory of each page is asked for alone
    pool = pool_of(4)
    cache = KVCache(pool, "F16", CONTEXT)
    write(cache, [1] * PAGE)

    def refused(*arguments: Any) -> Any:
        raise TrinityError("no memory")

    monkeypatch.setattr(module, "mapped", refused)
    with pytest.raises(TrinityError, match="no memory"):
        cache.reserve(2 * PAGE)
    cache.release()  # an idle page serves instead
    assert KVCache(pool, "F16", CONTEXT).reserve(1)


def test_a_cache_that_is_dropped_gives_its_pages_back() -> None:
    pool = pool_of(2)
    cache = KVCache(pool, "F16", CONTEXT)
    assert cache.reserve(2 * PAGE)
    del cache
    gc.collect()
    assert pool.available("F16") == 2


def test_a_cut_beyond_its_length() -> None:
    cache = KVCache(pool_of(1), "F16", CONTEXT)
    with pytest.raises(InputError, match="0 positions to 1"):
        cache.truncate(1)
