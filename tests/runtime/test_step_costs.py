from __future__ import annotations

from trinity.runtime.step_costs import FIRST_ROWS, LEAST_ROWS, StepCosts


def settled(costs: StepCosts, running: float, row: float) -> int:
    """The rows of a piece after some steps on a machine with these seconds."""
    for _ in range(30):
        costs.note(1, 0, running)
        rows = costs.prompt_rows()
        costs.note(1, rows, running + row * rows)
    return costs.prompt_rows()


def test_it_starts_small_and_doubles() -> None:
    costs = StepCosts(0.1)
    assert costs.prompt_rows() == FIRST_ROWS
    costs.note(1, FIRST_ROWS, 0.02)
    assert costs.prompt_rows() == 2 * FIRST_ROWS


def test_it_finds_what_fits_the_target() -> None:
    assert settled(StepCosts(0.1), running=0.03, row=0.0005) in range(135, 141)
    assert settled(StepCosts(0.2), running=0.03, row=0.0005) in range(330, 341)


def test_prompts_get_on_beside_many() -> None:
    assert settled(StepCosts(0.1), running=0.095, row=0.0005) in range(95, 102)


def test_it_follows_a_change_within_a_few_steps() -> None:
    costs = StepCosts(0.1)
    settled(costs, 0.03, 0.0005)
    assert settled(costs, 0.03, 0.001) in range(66, 71)


def test_a_pause_is_soon_forgotten() -> None:
    costs = StepCosts(0.1)
    before = settled(costs, 0.03, 0.0005)
    costs.note(1, before, 30.0)
    costs.note(1, 0, 30.0)
    assert costs.prompt_rows() >= LEAST_ROWS
    assert settled(costs, 0.03, 0.0005) in range(before - 5, before + 6)


def test_a_slow_machine_gets_on() -> None:
    assert settled(StepCosts(0.1), running=5.0, row=1.0) == LEAST_ROWS


def test_a_prompt_alone_tells_of_rows_too() -> None:
    costs = StepCosts(0.1)
    costs.note(0, 3, 2.0)  # not by so few
    costs.note(0, 512, 2.0)
    costs.note(1, 0, 0.03)
    assert costs.prompt_rows() == FIRST_ROWS  # 17 by the figures, and none was tried beside others
    for _ in range(3):
        costs.note(0, 512, 20.0)
    assert costs.prompt_rows() == LEAST_ROWS
