"""Requests of several clients take turns; those of one client keep their order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.runtime.scheduling.test_scheduler import Steps, alone
from tests.toy_model import ToyEngine
from trinity.runtime.generation import Completion
from trinity.server.caller import OWNER, caller_of
from trinity.server.served import has_share


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps(monkeypatch, ToyEngine(), 100.0)
    found.scheduler._most = 4
    return found


@pytest.mark.parametrize(
    ("sent", "begun"),
    [
        ("aaaa", "0123"),  # one client keeps its order
        ("aaaabbc", "0461523"),  # by hand: the first of each, the second of each, the rest
        ("abab", "0123"),
    ],
)
def test_clients_take_turns(sent: str, begun: str, steps: Steps) -> None:
    """The order in which waiting requests begin, one at a time."""
    steps.scheduler._most = 1
    for number, who in enumerate(sent):
        ask_as(steps, who, str(number), max_tokens=1)
    steps.finish()
    order: list[str] = []
    for rows in steps.rows:
        order += [name for name in rows if name not in order]
    assert "".join(order) == begun


def test_a_client_who_asks_again_and_again_waits_for_one_of_the_others(steps: Steps) -> None:
    """One client's long completions use all slots while other clients wait."""
    for name in "abcdefgh":
        ask_as(steps, "first", name, max_tokens=300)
    for _ in range(5):
        steps.step()
    for name in "stuvwxyz":
        ask_as(steps, "second", name, max_tokens=3)
        for _ in range(4):
            steps.step()
        assert name in steps.found
    assert "a" not in steps.found


def test_the_first_client_is_not_behind_once_it_is_alone(steps: Steps) -> None:
    for name in "abc":
        ask_as(steps, "first", name, max_tokens=30)
    ask_as(steps, "second", "x", max_tokens=1)
    for _ in range(5):
        steps.step()
    assert "x" in steps.found
    assert {s.turn for s in steps.scheduler.all()} == {(0, 0)}


def ask_as(steps: Steps, who: str, name: str, **options: Any) -> None:
    steps.ask(name, [ord(name[0])] * 3, client=who, **options)


def test_who_has_most_gives_way_to_who_has_none(steps: Steps) -> None:
    """Four requests of one client run and others wait; another client's begins in the next step."""
    for name in "abcdef":
        ask_as(steps, "first", name, max_tokens=50)
    for _ in range(3):
        steps.step()
    assert [s.client for s in steps.scheduler.admitted] == ["first"] * 4
    ask_as(steps, "second", "x", max_tokens=50)
    ask_as(steps, "second", "y", max_tokens=50)
    ask_as(steps, "second", "z", max_tokens=50)
    for _ in range(3):
        steps.step()
    clients = sorted(s.client for s in steps.scheduler.admitted)
    assert clients == ["first", "first", "second", "second"]


def test_answers_that_gave_way_end_as_they_would_have(steps: Steps) -> None:
    for name in "abcdef":
        ask_as(steps, "first", name, max_tokens=20)
    for _ in range(5):
        steps.step()
    ask_as(steps, "second", "x", max_tokens=20)
    steps.finish()
    assert sorted(steps.found) == list("abcdefx")
    for name, found in steps.found.items():
        assert isinstance(found, Completion)
        assert found.token_ids == alone([ord(name)] * 3, 20)


def test_a_higher_priority_gives_no_way(steps: Steps) -> None:
    for name in "abcd":
        ask_as(steps, "first", name, max_tokens=50, priority=-1)
    for _ in range(3):
        steps.step()
    ask_as(steps, "second", "x", max_tokens=50)
    for _ in range(3):
        steps.step()
    assert {s.client for s in steps.scheduler.admitted} == {"first"}


@pytest.mark.parametrize(
    ("name", "waiting", "let_in"),
    [
        ("a", {"a": 256}, False),  # alone a client has the whole queue, and no more
        ("b", {"a": 256}, True),
        ("b", {"a": 256, "b": 127}, True),
        ("b", {"a": 256, "b": 128}, False),
        ("a", {"a": 256, "b": 1}, False),
        ("c", {"a": 256, "b": 256}, False),  # all together twice as many
    ],
)
def test_a_full_queue_lets_in_who_has_less_than_his_part(
    name: str, waiting: dict[str, int], let_in: bool
) -> None:
    assert has_share(name, Counter(waiting), 256) is let_in


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_client_is_an_owner_or_an_address(address: str, name: str) -> None:
    scope = {"type": "http", "client": (address, 1)}
    assert caller_of(scope).client == name
    assert caller_of({**scope, OWNER: "key"}).client == "key"
    assert caller_of({"type": "http", "client": None}).client == ""
