"""Requests of several clients take turns; one client's keep their order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.runtime.test_batching import Steps, alone
from tests.toy_model import ToyEngine
from trinity.runtime.generation import Completion
from trinity.runtime.turns import Turns, client
from trinity.server.clients import client_of
from trinity.server.models import has_share
from trinity.server.owner import owner


def order(sent: list[str]) -> list[str]:
    """The order in which requests of these clients begin that are all there."""
    turns, waiting = Turns(), []
    for number, name in enumerate(sent):
        waiting.append((turns.next(name), number, name))
    return [name for _, _, name in sorted(waiting)]


def test_one_client_keeps_its_order() -> None:
    turns = Turns()
    assert [turns.next("a") for _ in range(4)] == [0, 1, 2, 3]


def test_clients_take_turns() -> None:
    """By hand: start tags of equal requests, all sent before the first begins."""
    assert order(["a"] * 4 + ["b"] * 2 + ["c"]) == ["a", "b", "c", "a", "b", "a", "a"]


def test_whoever_comes_late_gets_no_credit_for_the_time_before() -> None:
    turns = Turns()
    sent = [turns.next("a") for _ in range(10)]
    turns.reached(sent[6])
    assert [turns.next("b"), turns.next("b"), turns.next("a")] == [6, 7, 10]


def test_clients_that_are_done_are_forgotten() -> None:
    turns = Turns()
    for number in range(5000):
        turns.reached(turns.next(f"client {number}") + 1)
    assert len(turns._last) < 1100


def ask_as(steps: Steps, who: str, name: str, **options: Any) -> None:
    token = client.set(who)
    try:
        steps.ask(name, [ord(name[0])] * 3, **options)
    finally:
        client.reset(token)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps(monkeypatch, ToyEngine(), 100.0)
    found.batch._most = 4
    return found


def test_who_has_most_gives_way_to_who_has_none(steps: Steps) -> None:
    """Four answers of one client run, others of it wait; another's begins in the next step."""
    for name in "abcdef":
        ask_as(steps, "first", name, max_tokens=50)
    for _ in range(3):
        steps.step()
    assert [s.client for s in steps.batch.admitted] == ["first"] * 4
    ask_as(steps, "second", "x", max_tokens=50)
    ask_as(steps, "second", "y", max_tokens=50)
    ask_as(steps, "second", "z", max_tokens=50)
    for _ in range(3):
        steps.step()
    clients = sorted(s.client for s in steps.batch.admitted)
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
    assert {s.client for s in steps.batch.admitted} == {"first"}


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
    assert client_of(scope) == name
    token = owner.set("key")
    assert client_of(scope) == "key"
    owner.reset(token)
    assert client_of({"type": "http", "client": None}) == ""
