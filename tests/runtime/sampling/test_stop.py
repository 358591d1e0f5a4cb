"""Stop strings: which one ends a text, and their cost."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processor_time import within
from trinity.errors import InputError
from trinity.runtime.limits import MOST_STOP_CHARACTERS, MOST_STOP_STRINGS, GenerationLimits
from trinity.runtime.sampling.stop import StopMatcher, StopStrings, automaton_of

PIECES = st.lists(st.text("ab", max_size=5), max_size=6)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=6)


def naive(pieces: list[str], stops: list[str]) -> tuple[list[str], str | None]:
    """What is shown after each piece, and the stop string: searched in the whole text so far."""
    text, shown, given = "", list[str](), ""
    for piece in pieces:
        text += piece
        found = min(((text.find(s), len(s), s) for s in stops if s in text), default=None)
        if found is not None:
            shown.append(text[len(given) : found[0]])
            return shown, found[2]
        ends = [n for s in stops for n in range(1, len(s)) if text.endswith(s[:n])]
        certain = len(text) - max(ends, default=0)
        shown.append(text[len(given) : certain])
        given = text[:certain]
    return shown, None


@pytest.mark.full
@settings(max_examples=2000, deadline=None)
@given(PIECES, STOPS)
def test_the_automaton_finds_what_a_search_finds(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = []
    for piece in pieces:
        shown.append(matcher.push(piece))
        if matcher.stopped:
            break
    assert (shown, matcher.found) == naive(pieces, stops)
    expected = "".join(pieces)
    if not matcher.stopped:
        assert "".join(shown) + matcher.finish() == expected
    assert matcher.finish() == ""


@pytest.mark.parametrize(
    "stops",
    [
        ["a" * (MOST_STOP_CHARACTERS - 1) + "b"],
        [f"{'a' * 7}{chr(0x4E00 + i)}" for i in range(1024)],
        ["a" * n + "b" for n in range(1, 127)],
    ],
    ids=["one long", "many", "each begins the next"],
)
def test_a_token_costs_no_more_with_many_stop_strings(stops: list[str]) -> None:
    """The cost is linear: about 100,000 steps; a search for each string would take 10^8."""

    def push() -> None:
        matcher = StopMatcher(GenerationLimits(stop=stops).stop)
        for _ in range(5000):
            assert not matcher.stopped
            matcher.push("aaaaaaaaac")

    within(3.0, push)


def test_requests_share_an_automaton_while_one_of_them_runs() -> None:
    one = automaton_of(["stop", "end"])
    assert automaton_of(("stop", "end")) is one
    assert len(one.depth) == 1 + 4 + 3
    del one
    gc.collect()
    assert len(automaton_of(["x"]).depth) == 2


def test_states_are_no_more_than_characters() -> None:
    stops = ["a" * 1000, "a" * 2000, "b" * 500]
    assert len(StopStrings(stops).depth) == 1 + 2000 + 500


def test_too_many_stop_strings() -> None:
    most = ["x"] * MOST_STOP_STRINGS
    assert len(GenerationLimits(stop=most).stop) == MOST_STOP_STRINGS
    with pytest.raises(InputError, match="stop has 1025 strings; at most 1024"):
        GenerationLimits(stop=[*most, "x"])
    assert GenerationLimits(stop="x" * MOST_STOP_CHARACTERS).stop
    with pytest.raises(InputError, match="8193 characters together; at most 8192"):
        GenerationLimits(stop=["x" * MOST_STOP_CHARACTERS, "y"])
