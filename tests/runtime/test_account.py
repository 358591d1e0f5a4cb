from __future__ import annotations

import pytest

from trinity.runtime.account import CHEAP, STAKE, Account

STEP = 0.01


def spent(hits: list[bool], cost: float, most: int = 15) -> float:
    """Steps' worth of time for tokens, each known to be right or wrong if it is proposed."""
    account = Account()
    account.single(STEP)
    at, time = 0, 1.0
    while at < len(hits):
        count = account.proposals(6, most)
        if count == 0:
            account.learn(6, int(hits[at]), not hits[at])
            account.single(STEP)
            at, time = at + 1, time + 1
            continue
        right = next((i for i in range(count) if at + i >= len(hits) or not hits[at + i]), count)
        steps = 1 + cost * count
        account.learn(6, right, right < count)
        account.several(count, right, steps * STEP)
        at, time = at + right + 1, time + steps
    return time


@pytest.mark.parametrize("cost", [0.05, 0.4, 1.0, 1.2])
@pytest.mark.parametrize("right", [0, 1, 2, 5, 20])
def test_losses_are_bounded(cost: float, right: int) -> None:
    """Text that deceives: after every run of right tokens a wrong one."""
    hits = ([True] * right + [False]) * (1000 // (right + 1))
    assert spent(hits, cost) <= 1.04 * len(hits) + STAKE + 4 * cost


@pytest.mark.parametrize(("cost", "gain"), [(0.05, 7), (0.2, 3.3), (0.4, 1.9)])
def test_what_repeats_is_proposed_at_length(cost: float, gain: float) -> None:
    assert 500 / spent([True] * 500, cost) > gain


def test_it_comes_back_after_misses() -> None:
    assert spent([False] * 300 + [True] * 300, 0.2) < 300 * 1.05 + 150


def test_nothing_is_proposed_before_a_step_was_seen() -> None:
    account = Account()
    assert account.worthwhile
    assert account.proposals(6, 15) == 0
    account.single(STEP)
    assert 0 < account.proposals(6, 15) <= 15
    assert account.proposals(6, 0) == 0


def test_cheap_steps_are_not_worth_it() -> None:
    account = Account()
    account.single(CHEAP / 2)
    assert not account.worthwhile


def test_a_pause_of_the_process_counts_little() -> None:
    account = Account()
    account.single(STEP)
    for _ in range(3):
        account.several(3, 0, 1000 * STEP)
    assert account.proposals(6, 15) == 0
    for _ in range(400):
        account.single(STEP)
    assert account.proposals(6, 15) > 0
