from __future__ import annotations

import pytest

from trinity.runtime.speculation.budget import CHEAP, STAKE, SpeculationBudget

STEP = 0.01


def spent(hits: list[bool], cost: float, most: int = 15) -> float:
    """Steps' worth of time for tokens, each known to be right or wrong if it is proposed."""
    budget = SpeculationBudget()
    budget.single(STEP)
    at, time = 0, 1.0
    while at < len(hits):
        count, _ = budget.proposals(6, most)
        if count == 0:
            budget.learn(6, int(hits[at]), not hits[at])
            budget.single(STEP)
            at, time = at + 1, time + 1
            continue
        right = next((i for i in range(count) if at + i >= len(hits) or not hits[at + i]), count)
        steps = 1 + cost * count
        budget.learn(6, right, right < count)
        budget.several(count, right, steps * STEP)
        at, time = at + right + 1, time + steps
    return time


@pytest.mark.parametrize("cost", [0.05, 0.4, 1.0, 1.2])
@pytest.mark.parametrize("right", [0, 1, 2, 5, 20])
def test_losses_are_bounded(cost: float, right: int) -> None:
    """The text deceives: after every run of right tokens comes a wrong one."""
    hits = ([True] * right + [False]) * (1000 // (right + 1))
    assert spent(hits, cost) <= 1.04 * len(hits) + STAKE + 4 * cost


@pytest.mark.parametrize(("cost", "gain"), [(0.05, 7), (0.2, 3.3), (0.4, 1.9)])
def test_what_repeats_is_proposed_at_length(cost: float, gain: float) -> None:
    assert 500 / spent([True] * 500, cost) > gain


def test_it_comes_back_after_misses() -> None:
    assert spent([False] * 300 + [True] * 300, 0.2) < 300 * 1.05 + 150


def test_nothing_is_proposed_before_a_step_was_seen() -> None:
    budget = SpeculationBudget()
    assert budget.worthwhile
    assert budget.proposals(6, 15)[0] == 0
    budget.single(STEP)
    assert 0 < budget.proposals(6, 15)[0] <= 15
    assert budget.proposals(6, 0)[0] == 0


def test_cheap_steps_are_not_worth_it() -> None:
    budget = SpeculationBudget()
    budget.single(CHEAP / 2)
    assert not budget.worthwhile


def test_a_pause_of_the_process_counts_little() -> None:
    budget = SpeculationBudget()
    budget.single(STEP)
    for _ in range(3):
        budget.several(3, 0, 1000 * STEP)
    assert budget.proposals(6, 15)[0] == 0
    for _ in range(400):
        budget.single(STEP)
    assert budget.proposals(6, 15)[0] > 0


def drafted(right: list[bool], cost: float, draft_cost: float, most: int = 4) -> tuple[float, int]:
    """As ``spent``, where a layer makes proposals and doubts those that are wrong; and how many."""
    budget = SpeculationBudget()
    budget.single(STEP)
    at, time, proposed = 0, 1.0, 0
    while at < len(right):
        count, promised = budget.drafts(most)
        believed: list[float] = []
        if promised > 1:
            run = budget.run()
            for hit in right[at : at + count]:
                if not run.wants(0.9 if hit else 0.3):
                    break
            budget.drafted(run.looked, run.looked * draft_cost * STEP)
            believed, time = run.believed, time + run.looked * draft_cost
        if not believed:
            budget.single(STEP)
            at, time = at + 1, time + 1
            continue
        hits = right[at : at + len(believed)]
        found = hits.index(False) if False in hits else len(hits)
        budget.learn_draft(believed, found, found < len(hits))
        steps = 1 + cost * len(hits)
        budget.several(len(hits), found, steps * STEP)
        at, time, proposed = at + found + 1, time + steps, proposed + len(hits)
    return time, proposed


@pytest.mark.parametrize("cost", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("draft_cost", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("right", [0, 1, 3])
def test_losses_of_drafts_are_bounded(cost: float, draft_cost: float, right: int) -> None:
    hits = ([True] * right + [False]) * (1000 // (right + 1))
    time, _ = drafted(hits, cost, draft_cost)
    assert time <= 1.05 * len(hits) + STAKE + 5 * (cost + draft_cost)


def test_drafts_that_are_right_are_used() -> None:
    assert 500 / drafted([True] * 500, 0.15, 0.1)[0] > 2
    assert 600 / drafted([True, True, False] * 200, 0.15, 0.1)[0] > 1.5


def test_doubted_tokens_are_left_out() -> None:
    """Proposals of low probability are dropped once their acceptance rate is known."""
    _, proposed = drafted([True, False] * 500, 0.3, 0.05)
    assert proposed < 600  # of 1,000 that it would look at


def test_a_layer_is_tried_again() -> None:
    """The layer fails on the first text and succeeds on the following one."""
    assert drafted([False] * 400 + [True] * 400, 0.15, 0.1)[0] < 1.05 * 400 + 300


def test_nothing_is_drafted_before_a_step_was_seen() -> None:
    budget = SpeculationBudget()
    assert budget.drafts(4) == (0, 1.0)
    budget.drafted(0, 1.0)
    assert budget.credit == STAKE
