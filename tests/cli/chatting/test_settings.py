"""/set accepts every generation option, from its declaration."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.toy_model import toy_model
from trinity.cli.chatting.settings import SETTINGS, change, listed, setting, shown, value_text
from trinity.errors import InputError
from trinity.options.option import Declared
from trinity.runtime.options import Request
from trinity.tools.chat_session import ChatSession


@pytest.fixture
def session() -> Iterator[ChatSession]:
    model, _ = toy_model()
    with model:
        yield ChatSession(model, {})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.1", 0.1),
        ("temp", "0", 0.0),
        ("--top-k", "5", 5),
        ("TOP_K", "5", 5),
        ("seed", "7", 7),
        ("seed", "-1", None),
        ("max_tokens", "-1", None),
        ("max-tokens", "3", 3),
        ("ignore_eos", "on", True),
        ("ignore_eos", "no", False),
        ("speculative", "off", False),
        ("speculative", "4", 4),
        ("stop", "'a b' c", ("a b", "c")),
        ("logit_bias", "5=-inf 7=1", {5: -math.inf, 7: 1.0}),
    ],
)
def test_value(session: ChatSession, name: str, text: str, value: object) -> None:
    one = setting(name)
    change(session, one, text)
    assert session.options == {one.name: value}
    change(session, one, "none")
    assert session.options == {}


@pytest.mark.parametrize("one", SETTINGS, ids=lambda one: one.name)
def test_no_option_takes_what_is_no_value(session: ChatSession, one: Declared) -> None:
    of_texts = one.name in ("stop", "dry_sequence_breakers")
    with pytest.raises(InputError, match="/set|" + one.name):
        change(session, one, "'open" if of_texts else "much")
    assert session.options == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [("temperature", "-1"), ("temperature", "nan"), ("top_k", "1.5"), ("top_p", "2"),
     ("max_tokens", "-5"), ("stop", "'open"), ("seed", "9" * 5000)],
)  # fmt: skip
def test_value_out_of_range(session: ChatSession, name: str, text: str) -> None:
    with pytest.raises(InputError, match=name if name != "stop" else "stop is"):
        change(session, setting(name), text)


def test_shifting_is_the_sessions_own(session: ChatSession) -> None:
    change(session, setting("ctx-shift"), "on")
    assert session.shifts
    assert session.options == {}
    assert shown(session, setting("ctx_shift"))[0].endswith(" on")
    change(session, setting("context_shift"), "none")
    assert not session.shifts


def test_unknown_name_has_near_ones() -> None:
    with pytest.raises(InputError, match=r"'temprature' \(did you mean temperature"):
        setting("temprature")
    with pytest.raises(InputError, match="/set lists all"):
        setting("")


def test_list_has_values_and_every_option(session: ChatSession) -> None:
    change(session, setting("temperature"), "0.25")
    lines = list(listed(session))
    assert [named.split()[0] for named, _ in lines] == [one.name for one in SETTINGS]
    values = dict(named.split(maxsplit=1) for named, _ in lines)
    assert (values["temperature"], values["seed"]) == ("0.25", "none")


def test_every_value_shown_is_one_that_can_be_set(session: ChatSession) -> None:
    for one in SETTINGS:
        change(session, one, value_text(one.default))
    Request.of(**session.options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text"), [("stop", "'a b' c"), ("stop", "User:"), ("logit_bias", "5=-inf 7=0.5"),
                       ("speculative", "4"), ("ignore_eos", "on"), ("temperature", "0.1234567")],
)  # fmt: skip
def test_value_is_shown_as_it_is_typed(session: ChatSession, name: str, text: str) -> None:
    change(session, setting(name), text)
    assert value_text(session.options[name]) == text
