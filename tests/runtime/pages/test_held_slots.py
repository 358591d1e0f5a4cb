"""The records of slots stay in proportion to the number of pages."""

from __future__ import annotations

import pytest

from tests.toy_model import part_sizes, write
from trinity.runtime.pages import held_slots
from trinity.runtime.pages.held_slots import Held, HeldSlots
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.pages.page import Domain
from trinity.runtime.pages.page_pool import PagePool
from trinity_kernels.ops.kv_layout import PAGE

CONTEXT, PAGES, LEAST = 4 * PAGE, 8, 1000


def test_of_many_slots_only_what_is_there_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_slots, "LEAST", LEAST)
    sizes = part_sizes(None)
    pool = PagePool(sizes, PAGES * sum(sizes["F16"]))
    for slot in range(200):
        cache = KVCache(pool, "F16", CONTEXT, domain=Domain(slot % 50, str(slot)))
        write(cache, [slot] * (3 * PAGE))
        cache.remember()
        cache.release()
        assert pool.held.tokens <= 2 * (LEAST + 2 * PAGES * PAGE)
    last = Domain(199 % 50, "199")
    held = pool.held.get(last)
    assert held is not None
    assert held.tokens == [199] * (3 * PAGE)
    assert pool.left_of(last, held) == 3 * PAGE
    pool.erase(last)
    assert pool.held.get(last) is None


def test_what_is_partly_gone_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_slots, "LEAST", 25)
    there, slots = {0: 10, 1: 4, 2: 0}, HeldSlots()
    for slot in range(3):
        held = Held("F16", (), list(range(10)))
        slots.add(Domain(slot), held, lambda domain, _: there[domain.slot or 0])
    found = [slots.get(Domain(slot)) for slot in range(3)]
    assert [None if one is None else len(one.tokens) for one in found] == [10, 4, None]
