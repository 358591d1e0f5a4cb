"""KV caches compared with a model of them: lists of each sequence's tokens."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import parts
from tests.toy_model import HIDDEN, PART_BYTES, held, part_sizes, seen, write
from trinity.errors import InputError, TrinityError
from trinity.runtime.pages import page_memory
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.pages.page import Domain, Page
from trinity.runtime.pages.page_layout import Window
from trinity.runtime.pages.page_pool import PagePool
from trinity_kernels.ops.kv_layout import PAGE

CONTEXT = 4 * PAGE


def pool_of(pages: int, window: Window | None = None) -> PagePool:
    """A pool for so many whole pages."""
    sizes = part_sizes(window)
    return PagePool(sizes, pages * sum(sizes["F16"]), window)


def text(seed: int, length: int) -> list[int]:
    """One of several texts that begin alike for a while."""
    tokens = np.random.default_rng(7).integers(0, 50, length).tolist()
    start = [0, 100, PAGE, PAGE + 60, 2 * PAGE, 300][seed % 6]
    tokens[start:] = np.random.default_rng(seed).integers(50, 99, max(length - start, 0)).tolist()
    return [int(token) for token in tokens]


def pages_of(pool: PagePool) -> list[Page]:
    """All pages in the trees of a pool."""
    found = [pool.root(kv_type) for kv_type in pool.sizes]
    for page in found:
        found += page.children
    return found[len(pool.sizes) :]


def check_tree(pool: PagePool) -> None:
    """Every page hangs once below its parent; what is idle is what nobody uses."""
    for kv_type in pool.sizes:
        stack = [pool.root(kv_type)]
        while stack:
            page = stack.pop()
            for child in page.children:
                assert child.parent is page
                assert page.users > 0 or child.users == 0 or page is pool.root(kv_type)
                unseen = child.windowed is not None and child.window_users == 0
                assert (child in pool._idle) == (child.users == 0 or unseen)
                assert child.window_users <= child.users
            assert len(set(map(id, page.children))) == len(page.children)
            stack += page.children
    for page in pool._idle:
        assert page.users == 0 or page.kept or page.windowed is not None


def check_bytes(pool: PagePool, caches: list[KVCache]) -> None:
    """What is in use was claimed, by full part and, for each cache, by what it sees at once."""
    assert pool.nbytes <= pool.limit
    used = {id(page): page for cache in caches for page in cache._pages}.values()
    full = sum(pool.sizes[page.kv_type].full for page in used)
    booked = sum(cache._booked * pool.sizes[cache.kv_type].windowed for cache in caches)
    assert pool.claimed == full + booked <= pool.limit
    windows = sum(pool.sizes[page.kv_type].windowed for page in used if page.window_users)
    assert pool.nbytes - pool.idle_bytes == full + windows
    for cache in caches:
        assert cache._high - cache._low <= cache._booked
        assert cache._window is None or cache._booked <= cache._window.most_pages


WINDOWS = st.one_of(
    st.none(),
    st.builds(Window, st.integers(1, 2 * PAGE), st.sampled_from([1, 40, 200]), st.just(False)),
    st.builds(Window, st.just(2), st.sampled_from([1, 40, 200]), st.just(True)),
)


@pytest.mark.full
@pytest.mark.parametrize("part", parts(8))
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_sequences_hold_their_own_tokens(part: int, data: st.DataObject) -> None:
    """Pages are shared, copied, cut, returned and reused, in a pool that is too small."""
    draw = data.draw
    window = draw(WINDOWS)
    pool = pool_of(draw(st.integers(2, 8)), window)
    caches: list[tuple[KVCache, list[int], list[int]]] = []  # with its text and what it holds
    promised: dict[int, int] = {}  # how many positions have room, by cache
    for _ in range(draw(st.integers(1, 40))):
        action = draw(st.sampled_from("nnnwwwwtskrx"))
        if action == "n":
            cache = KVCache(pool, draw(st.sampled_from(["F16", "F16", "F32"])), CONTEXT)
            whole = text(draw(st.integers(0, 11)), CONTEXT)
            if draw(st.integers(0, 4)):
                reused = cache.reuse(whole[: draw(st.integers(1, CONTEXT))])
            else:
                cache.separate()
                reused = 0
            caches.append((cache, whole, whole[:reused]))
            promised[cache.address] = reused
        elif caches:
            index = draw(st.integers(0, len(caches) - 1))
            cache, whole, held_here = caches[index]
            if action == "w":
                ahead = draw(st.integers(0, CONTEXT - cache.length))
                most = 200 if window is None else window.rows
                count = min(draw(st.integers(1, most)), CONTEXT - cache.length)
                rest = whole[cache.length : cache.length + count]
                if draw(st.integers(0, 5)) == 0:
                    rest = [99] * len(rest)  # a proposal that is wrong
                if cache.reserve(cache.length + max(ahead, count)):
                    before = cache.length
                    promised[cache.address] = before + max(ahead, count)
                    hidden = draw(st.integers(0, 3)) == 0
                    write(cache, rest, hidden=hidden)
                    held_here += [token + HIDDEN * hidden for token in rest]
                    if window is not None:  # what any of the new tokens sees
                        there = seen(cache, before)
                        assert there == held_here[len(held_here) - len(there) :]
                    if draw(st.booleans()):  # as far as a step goes, all can be taken back
                        del held_here[draw(st.integers(before, cache.length)) :]
                        cache.truncate(len(held_here))
                        assert cache.length == len(held_here) or pool.recurrent
                        del held_here[cache.length :]
                        promised[cache.address] = 0
            elif action == "t":
                length = draw(st.integers(0, cache.length))
                cache.truncate(length)
                assert cache.length <= length
                assert cache.length == length or window is not None
                del held_here[cache.length :]
                promised[cache.address] = 0
            elif action == "s":  # whatever others have done since
                while (start := cache.length) < promised[cache.address]:
                    end = min(promised[cache.address], start + (window.rows if window else CONTEXT))
                    held_here += whole[start:end]
                    write(cache, whole[start:end])
            elif action == "k":
                cache.keep(draw(st.integers(0, cache.length)))
            else:
                if action == "r":
                    cache.release()
                del caches[index], cache, held_here
                pool.available("F16")  # takes back what was collected
        for cache, _, expected in caches:
            assert cache.length == len(expected)
            assert held(cache) == expected
            if window is not None:
                there = seen(cache, cache.length)
                assert there == expected[len(expected) - len(there) :]
        check_tree(pool)
        check_bytes(pool, [cache for cache, _, _ in caches])
    cache = None  # type: ignore[assignment]
    caches.clear()
    assert pool.available("F16") == pool.limit // sum(pool.sizes["F16"])
    assert pool.claimed == 0
    assert pool.idle_bytes == pool.nbytes


def test_full_pages_are_shared_and_a_part_is_copied() -> None:
    pool = pool_of(8)
    first, second = (KVCache(pool, "F16", CONTEXT) for _ in range(2))
    tokens = text(0, 2 * PAGE + 50)
    write(first, tokens)
    assert second.reuse(tokens) == len(tokens) - 1
    assert pool.claimed == 4 * PART_BYTES  # two that both use, and two parts
    assert held(second) == tokens[:-1]
    write(second, [7])
    assert held(first) == tokens


def test_two_that_evaluate_the_same_end_with_the_same_pages() -> None:
    """This also holds if pages after the completed one were reserved."""
    pool = pool_of(8)
    first, second, third = (KVCache(pool, "F16", CONTEXT) for _ in range(3))
    tokens = text(0, 3 * PAGE)
    write(first, tokens[:200])
    write(second, tokens)
    write(first, tokens[200:])
    assert pool.claimed == 3 * PART_BYTES
    first.release()
    second.release()
    assert third.reuse([*tokens, 1]) == len(tokens)
    assert held(third) == tokens
    check_tree(pool)


def test_hidden_tokens_are_for_their_own_sequence() -> None:
    pool = pool_of(8)
    first, second, third = (KVCache(pool, "F16", CONTEXT, domain=Domain(0)) for _ in range(3))
    tokens = text(0, 3 * PAGE)
    write(first, tokens[:50])
    write(first, tokens[50 : 2 * PAGE + 20], hidden=True)
    write(first, tokens[2 * PAGE + 20 : 2 * PAGE + 30])
    assert held(first)[50] == tokens[50] + HIDDEN
    write(second, tokens[:PAGE])  # the same page, with other bits
    assert (held(second), held(first)[50]) == (tokens[:PAGE], tokens[50] + HIDDEN)
    assert third.reuse(tokens) == PAGE
    first.remember()
    left = pool.held.get(Domain(0))
    assert left is not None
    assert left.tokens == tokens[:50]
    for cache in (first, second, third):
        cache.release()
    assert pool.idle_bytes - pool._memory.spare_bytes == 2 * PART_BYTES  # nothing of the others
    assert third.reuse(tokens[:PAGE]) == PAGE - 1
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
    monkeypatch.setattr(page_memory, "SLAB_BYTES", 0)  # each part's memory is asked for alone
    pool = pool_of(4, Window(PAGE, PAGE))
    cache = KVCache(pool, "F16", CONTEXT)
    write(cache, [1] * PAGE)

    def refused(*arguments: Any) -> Any:
        raise TrinityError("no memory")

    monkeypatch.setattr(page_memory, "mapped", refused)
    with pytest.raises(TrinityError, match="no memory"):
        cache.reserve(2 * PAGE)
    cache.release()  # an idle page serves instead
    check_bytes(pool, [])
    assert KVCache(pool, "F16", CONTEXT).reserve(1)


def test_a_cache_that_is_dropped_gives_its_pages_back() -> None:
    pool = pool_of(2, Window(PAGE, PAGE))
    cache = KVCache(pool, "F16", CONTEXT)
    assert cache.reserve(2 * PAGE)
    assert pool.available("F16") == 0
    del cache
    gc.collect()
    assert pool.available("F16") == 2


def test_a_cut_beyond_its_length() -> None:
    cache = KVCache(pool_of(1), "F16", CONTEXT)
    with pytest.raises(InputError, match="0 positions to 1"):
        cache.truncate(1)
