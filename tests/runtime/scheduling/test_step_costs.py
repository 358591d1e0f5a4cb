from __future__ import annotations

from trinity.runtime.scheduling.step_costs import (
    FIRST_ROWS,
    LEAST_ROWS,
    MANY_ROWS,
    StepCosts,
    StepFit,
    StepTimes,
    pairs,
)


def costs(target: float = 0.1, attended: float = 0.0, **times: float) -> StepCosts:
    return StepCosts(target, StepTimes(**times), 10_000, attended)


def test_it_starts_small_and_doubles() -> None:
    first = StepCosts(0.1)
    assert first.prompt_rows(1, 1) == FIRST_ROWS
    second = first.after(StepTimes(step=0.01, row=0.0001), 1, FIRST_ROWS, 36.0)
    assert second.prompt_rows(1, 1) == 2 * FIRST_ROWS
    # So many were tried, but not beside others.
    assert second.after(second.times, 0, 512, pairs(0, 512)).prompt_rows(1, 1) == 2 * FIRST_ROWS


def test_it_finds_what_fits_the_target() -> None:
    assert costs(step=0.03, row=0.0005).prompt_rows(1, 1) == 180  # 0.12 s
    assert costs(0.2, step=0.03, row=0.0005).prompt_rows(1, 1) == 420
    assert costs(step=0.01, running=0.02, prompts=0.01, row=0.0005).prompt_rows(1, 1) == 160
    assert costs(step=0.03, row=0.0004, pair=1e-6, attended=100).prompt_rows(1, 1) == 180


def test_prompts_get_as_much_time_as_those_that_run() -> None:
    assert costs(step=0.095, row=0.0005).prompt_rows(16, 1) == 190
    assert costs(step=0.12, running=0.01, row=0.0035).prompt_rows(18, 1) == 85


def test_rows_take_as_long_as_what_a_step_with_prompts_takes_more_anyway() -> None:
    assert costs(step=0.02, prompts=0.2, row=0.005).prompt_rows(4, 1) == 40


def test_a_step_is_longer_where_many_wait_for_each_that_runs() -> None:
    one = costs(step=0.03, row=0.001)
    assert one.prompt_rows(16, 1) == 90  # 0.12 s
    assert one.prompt_rows(4, 8) == 150
    assert one.prompt_rows(1, 99) == 270


def test_a_slow_machine_gets_on() -> None:
    assert costs(step=5.0, row=2.0).prompt_rows(1, 1) == LEAST_ROWS


def test_sequences_that_yield_have_long_steps() -> None:
    assert costs(row=0.001).last_rows == 250
    assert costs(row=0.1).last_rows == StepCosts(0.1).last_rows == MANY_ROWS


def test_steps_that_always_have_both_come_to_no_rest_at_few_rows() -> None:
    """No request ever runs alone, so the time of a step without prompts is unknown."""
    true, fit, found = StepTimes(0.035, 0.0135, 0.023, 0.005), StepFit(), StepCosts(0.1)
    for number in range(120):
        running = 3 + number // 7 % 4
        rows = found.prompt_rows(running, 8 - running)
        fit.note(running, rows, pairs(0, rows), true.seconds(running, rows))
        found = found.after(fit.times, running, rows, pairs(0, rows))
    known = StepCosts(0.1, true, 10_000)
    for running in range(3, 7):
        wanted = known.prompt_rows(running, 8 - running)
        assert 0.5 * wanted < found.prompt_rows(running, 8 - running) < 2 * wanted
