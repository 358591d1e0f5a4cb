from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trinity.speech.rules import DecodingRules, log_softmax

END, WITHOUT, FIRST, SIZE = 10, 14, 15, 40  # texts are below END
CONFIG: Any = SimpleNamespace(suppressed=(11, 12), suppressed_first=(3, END), latest_first_time=5)
TOKENS: Any = SimpleNamespace(end=END, without_times=WITHOUT, first_time=FIRST)
ALL_TIMES = set(range(FIRST, SIZE))
TEXTS = {*range(END), 13}


def allowed(text: list[int], *, times: bool, likely: int | None = None) -> set[int]:
    logits = np.zeros(SIZE, np.float32)
    logits[FIRST:] = -20  # so that times are chosen only where they must be
    if likely is not None:
        logits[likely] = 20
    DecodingRules(CONFIG, TOKENS, times).apply(logits, text)
    return {int(i) for i in np.nonzero(np.isfinite(logits))[0]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([], set(range(FIRST, FIRST + 6))),  # a time at first, none after the latest
        ([FIRST + 2], TEXTS | {END}),  # it counts as a pair's second
        ([FIRST + 2, 5], TEXTS | {END} | set(range(FIRST + 3, SIZE))),  # a piece has a length
        ([FIRST + 2, 5, FIRST + 7], {END, 13} | set(range(FIRST + 7, SIZE))),  # no text
        ([FIRST + 2, 5, FIRST + 7, FIRST + 7], TEXTS | {END}),  # no third time
        ([FIRST + 2, 5, FIRST + 7, FIRST + 9, 6], TEXTS | {END} | set(range(FIRST + 10, SIZE))),
    ],
)
def test_times_come_in_pairs_and_never_decrease(text: list[int], expected: set[int]) -> None:
    assert allowed(text, times=True) == expected


def test_a_time_where_all_times_together_beat_the_best_text() -> None:
    text = [FIRST, 5]
    assert allowed(text, times=True, likely=FIRST + 9) == set(range(FIRST + 1, SIZE))
    logits = np.zeros(SIZE, np.float32)
    logits[4] = np.log(SIZE - FIRST - 1) - 0.1  # 24 times of probability 1 each are more
    DecodingRules(CONFIG, TOKENS, True).apply(logits, text)
    assert not np.isfinite(logits[:FIRST]).any()
    logits = np.zeros(SIZE, np.float32)
    logits[4] = np.log(SIZE - FIRST - 1) + 0.1
    DecodingRules(CONFIG, TOKENS, True).apply(logits, text)
    assert np.isfinite(logits[4])


def test_without_times_only_the_lists_count() -> None:
    assert allowed([], times=False) == set(range(SIZE)) - {3, END, 11, 12}
    assert allowed([5], times=False) == set(range(SIZE)) - {11, 12}


def test_log_softmax_of_large_logits() -> None:
    logits = np.array([[1e4, 1e4, -np.inf], [0, np.log(3), -np.inf]], np.float32)
    expected = [[0.5, 0.5, 0], [0.25, 0.75, 0]]
    np.testing.assert_allclose(np.exp(log_softmax(logits)), expected, atol=1e-6)
