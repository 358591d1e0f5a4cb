"""Windowed parts: which ones stay, and the order in which others are dropped."""

from __future__ import annotations

import pytest

from tests.toy_model import PART_BYTES, held, part_sizes, seen, write
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.pages.page_layout import PartSizes, Window
from trinity.runtime.pages.page_pool import PagePool
from trinity_kernels.ops.kv_layout import PAGE

CONTEXT = 8 * PAGE
WINDOW = Window(PAGE, PAGE)  # a step sees three pages at most


def pool_of(parts: int, window: Window = WINDOW) -> PagePool:
    return PagePool(part_sizes(window), parts * PART_BYTES, window)


def cache_of(pool: PagePool) -> KVCache:
    return KVCache(pool, "F16", CONTEXT)


def text(length: int, seed: int = 0) -> list[int]:
    return [1000 * seed + place for place in range(length)]


def fill(cache: KVCache, tokens: list[int]) -> None:
    """Steps until the cache holds ``tokens``."""
    while (start := cache.length) < len(tokens):
        write(cache, tokens[start : start + WINDOW.rows])
        assert seen(cache, start) == tokens[max(0, start + 1 - PAGE) : cache.length]


def windows(cache: KVCache) -> list[bool]:
    """Which of a cache's pages have a windowed part."""
    return [page.windowed is not None for page in cache._pages]


def test_what_was_passed_is_free_at_once() -> None:
    pool = pool_of(100)
    cache = cache_of(pool)
    fill(cache, text(6 * PAGE))
    assert windows(cache) == [False] * 4 + [True] * 2
    assert [address != 0 for address in cache._window_table[:6]] == windows(cache)
    assert pool.nbytes <= (6 + 3) * PART_BYTES
    write(cache, [7])
    assert windows(cache) == [False] * 5 + [True] * 2
    assert pool.claimed == (7 + 2) * PART_BYTES


def test_a_shared_part_goes_when_the_last_has_passed() -> None:
    pool = pool_of(100)
    first, second = cache_of(pool), cache_of(pool)
    tokens = text(3 * PAGE)
    fill(first, tokens[: 2 * PAGE])
    assert second.reuse(tokens[: 2 * PAGE + 1]) == 2 * PAGE
    second._kept.clear()
    fill(first, tokens + [1] * PAGE)
    assert windows(first)[:2] == [False, True]
    fill(second, tokens + [2] * PAGE)
    assert windows(second)[:2] == [False, False]
    assert held(first)[: 3 * PAGE] == held(second)[: 3 * PAGE]


def test_a_sequence_begins_where_it_sees_all_that_it_must() -> None:
    pool = pool_of(100)
    first = cache_of(pool)
    tokens = text(5 * PAGE)
    fill(first, tokens)
    first.release()
    for length, reused in ((PAGE + 1, 0), (3 * PAGE, 0), (4 * PAGE, 4 * PAGE - 1)):
        other = cache_of(pool)
        assert other.reuse(tokens[:length]) == reused, length
        other.release()
    second = cache_of(pool)
    assert second.reuse([*tokens, 9]) == 5 * PAGE
    fill(second, [*tokens, 9])
    assert held(second) == [*tokens, 9]


def test_the_end_of_a_prompt_is_kept() -> None:
    """Another completion of the prompt, or a follow-up question, continues there."""
    pool = pool_of(100)
    first, prompt = cache_of(pool), text(3 * PAGE + 5)
    assert first.reuse(prompt) == 0
    fill(first, prompt + text(3 * PAGE, 1))
    assert windows(first) == [False, False, True, True, False, True, True]
    first.release()
    second = cache_of(pool)
    assert second.reuse(prompt + text(20, 2)) == len(prompt)
    assert seen(second, len(prompt)) == prompt[len(prompt) + 1 - PAGE :]


def test_where_texts_part_is_kept() -> None:
    """The second text shows the common prefix, so the third need not compute it."""
    pool = pool_of(100)
    system = text(3 * PAGE + 50)
    reused = []
    for seed in (1, 2, 3, 4):
        cache = cache_of(pool)
        tokens = system + text(2 * PAGE, seed)
        reused.append(cache.reuse(tokens))
        fill(cache, tokens)
        cache.release()
    assert reused == [0, 0, len(system), len(system)]


def test_full_parts_come_together_and_windowed_parts_come_back() -> None:
    """A sequence that recomputes lost windowed parts gives them to the existing pages."""
    pool = pool_of(100)
    first, tokens = cache_of(pool), text(4 * PAGE)
    fill(first, tokens)
    second = cache_of(pool)
    assert second.reuse(tokens[: 2 * PAGE]) == 0
    fill(second, tokens[: 2 * PAGE])
    assert second._pages == first._pages[:2]
    assert windows(first) == [True] * 4
    assert held(first) == tokens
    assert pool.claimed == (4 + 2 + 2) * PART_BYTES  # windowed parts count for each


def test_what_was_used_longest_ago_goes_first() -> None:
    """Windowed parts of texts in use are evicted, and whole pages of others."""
    pool = pool_of(12)
    first, second = cache_of(pool), cache_of(pool)
    first.keep(PAGE)
    fill(first, text(3 * PAGE))  # three full parts, two windowed ones and one that is kept
    assert windows(first) == [True] * 3
    fill(second, text(PAGE, 5))
    second.release()
    assert pool.nbytes == 8 * PART_BYTES
    third = cache_of(pool)
    fill(third, text(2 * PAGE, 6))
    assert pool.nbytes == 12 * PART_BYTES
    write(third, [1])
    assert windows(first) == [False, True, True]
    assert cache_of(pool).reuse([*text(PAGE, 5), 1]) == PAGE
    write(first, [2])
    assert cache_of(pool).reuse([*text(PAGE, 5), 1]) == 0
    assert pool.nbytes == pool.limit


def test_what_was_promised_is_there_though_others_share() -> None:
    """A part that another sequence still reads cannot be reused by its first owner."""
    pool = pool_of(6 + 3 + 1)
    first, second = cache_of(pool), cache_of(pool)
    tokens = text(6 * PAGE)
    assert first.reserve(6 * PAGE)
    fill(first, tokens[: 2 * PAGE])
    assert second.reuse(tokens[: 2 * PAGE + 1]) == 2 * PAGE
    assert not second.reserve(3 * PAGE)
    assert pool.available("F16") == 0
    fill(first, tokens)
    assert held(second) == tokens[: 2 * PAGE]
    assert seen(second, 2 * PAGE) == tokens[PAGE + 1 : 2 * PAGE]


def test_a_failed_request_for_more_leaves_what_was_promised() -> None:
    pool = pool_of(4)
    cache = cache_of(pool)
    assert cache.reserve(PAGE)
    assert not cache.reserve(3 * PAGE)
    assert cache.reserve(PAGE)
    fill(cache, text(PAGE))
    assert cache.reserve(PAGE)


@pytest.mark.parametrize("positions", [1, 2, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
@pytest.mark.parametrize("rows", [1, 16, 300])
def test_one_sequence_of_a_whole_context_fits(positions: int, rows: int) -> None:
    """This includes models whose layers are all windowed and have no full part."""
    window = Window(positions, rows)
    for full in (PART_BYTES, 0):
        pages = min(CONTEXT // PAGE, window.most_pages)
        limit = CONTEXT // PAGE * full + pages * PART_BYTES
        pool = PagePool({"F16": PartSizes(full, PART_BYTES)}, limit, window)
        cache = cache_of(pool)
        assert cache.reserve(CONTEXT)
        assert pool.available("F16") == 0
        for start in range(0, CONTEXT, rows):
            assert cache.reserve(min(start + rows, CONTEXT))
            cache.append(text(CONTEXT)[start : start + rows])
        assert pool.nbytes <= limit
        cache.release()
        assert pool.claimed == 0
