from __future__ import annotations

from trinity.runtime.step_costs import FIRST_ROWS, LEAST_ROWS, StepCosts


def settled(
    costs: StepCosts, running: float, row: float, sequences: int = 1, waiting: int = 1
) -> int:
    """The rows of a piece after some steps on a machine with these seconds."""
    for _ in range(30):
        costs.note(sequences, 0, running)
        rows = costs.prompt_rows(sequences, waiting)
        costs.note(sequences, rows, running + row * rows)
    return costs.prompt_rows(sequences, waiting)


def test_it_starts_small_and_doubles() -> None:
    costs = StepCosts(0.1)
    assert costs.prompt_rows(1, 1) == FIRST_ROWS
    costs.note(1, FIRST_ROWS, 0.02)
    assert costs.prompt_rows(1, 1) == 2 * FIRST_ROWS


def test_it_finds_what_fits_the_target() -> None:
    assert settled(StepCosts(0.1), running=0.03, row=0.0005) in range(172, 182)  # of 0.12 s
    assert settled(StepCosts(0.2), running=0.03, row=0.0005) in range(402, 422)


def test_prompts_get_as_much_time_as_those_that_run() -> None:
    assert settled(StepCosts(0.1), running=0.095, row=0.0005, sequences=16) in range(186, 192)
    assert settled(StepCosts(0.1), running=0.3, row=0.005, sequences=16) in range(58, 62)


def test_a_step_is_longer_where_many_wait_for_each_that_runs() -> None:
    assert settled(StepCosts(0.1), 0.03, 0.001, sequences=16) in range(88, 92)  # of 0.12 s
    assert settled(StepCosts(0.1), 0.03, 0.001, sequences=4, waiting=8) in range(142, 152)
    assert settled(StepCosts(0.1), 0.03, 0.001, sequences=1, waiting=99) in range(264, 272)


def test_it_follows_a_change_within_a_few_steps() -> None:
    costs = StepCosts(0.1)
    settled(costs, 0.03, 0.0005)
    assert settled(costs, 0.03, 0.001) in range(86, 92)


def test_a_pause_is_soon_forgotten() -> None:
    costs = StepCosts(0.1)
    before = settled(costs, 0.03, 0.0005)
    costs.note(1, before, 30.0)
    costs.note(1, 0, 30.0)
    assert costs.prompt_rows(1, 1) >= LEAST_ROWS
    assert settled(costs, 0.03, 0.0005) in range(before - 5, before + 6)


def test_a_slow_machine_gets_on() -> None:
    assert settled(StepCosts(0.1), running=5.0, row=2.0) == LEAST_ROWS


def test_a_prompt_alone_tells_of_rows_too() -> None:
    costs = StepCosts(0.1)
    costs.note(0, 3, 2.0)  # not by so few
    costs.note(0, 512, 2.0)
    costs.note(1, 0, 0.03)
    # 17 by the figures, but so many were not tried beside others.
    assert costs.prompt_rows(1, 1) == FIRST_ROWS
    for _ in range(5):
        costs.note(0, 512, 40.0)
    assert costs.prompt_rows(1, 1) == LEAST_ROWS
