"""Limits on processor time: slow work fails; a disturbed measurement or slow machine does not."""

from __future__ import annotations

import time

import pytest

from tests import processor_time
from tests.processor_time import TRIES, check_least, slowness, within


def spin(seconds: float) -> None:
    """Use the processor."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_work_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "slowness", lambda: 1.0)
    with pytest.raises(AssertionError, match="above its limit"):
        within(0.02, lambda: spin(0.03))
    assert within(0.02, lambda: "made") == "made"


def test_the_least_of_some_measurements_counts() -> None:
    measured = iter([1e9, 1e9, 0.5])
    check_least(1.0, lambda: next(measured))
    assert list(measured) == []
    calls: list[float] = []
    with pytest.raises(AssertionError, match="above its limit"):
        check_least(1.0, lambda: calls.append(1e9) or 1e9)  # type: ignore[func-returns-value]
    assert len(calls) == TRIES


def test_limits_grow_with_the_time_of_known_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= slowness() < 100
    monkeypatch.setattr(processor_time, "slowness", lambda: 3.0)
    check_least(1.0, lambda: 2.9)
    with pytest.raises(AssertionError, match=r"3\.1 of 3"):
        check_least(1.0, lambda: 3.1)


def test_slowness_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "known_work", lambda: spin(0.005))
    assert slowness() >= 0.005 / processor_time.REFERENCE_SECONDS
