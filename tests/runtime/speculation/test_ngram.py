from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trinity.runtime.speculation.proposals import SIZES, NgramIndex


def searched(tokens: list[int]) -> tuple[int, int]:
    """The same by looking at every position from the end."""
    for size in SIZES:
        for start in range(len(tokens) - 1, size - 1, -1):
            if tokens[start - size : start] == tokens[-size:]:
                return size, start
    return 0, 0


@given(st.lists(st.integers(0, 2), max_size=80), st.integers(0, 80))
def test_the_last_occurrence_of_the_longest(tokens: list[int], prompt: int) -> None:
    index = NgramIndex(tokens[:prompt])
    for at in range(prompt, len(tokens)):
        index.append(tokens[at])
        assert index.match() == searched(tokens[: at + 1])
    assert index.tokens == tokens


def test_continuation() -> None:
    index = NgramIndex([1, 2, 3, 4, 5, 1, 2, 3])
    assert index.match() == (3, 3)
    assert index.continuation(3, 2) == [4, 5]
    # Behind the end the period goes on.
    assert index.continuation(3, 9) == [4, 5, 1, 2, 3, 4, 5, 1, 2]


def test_nothing_to_go_by() -> None:
    for tokens in ([], [1], [1, 2, 3], [1, 2, 1, 2]):
        assert NgramIndex(tokens).match() == (0, 0)
