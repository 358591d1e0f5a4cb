from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.toy_model import ToyEngine
from trinity.errors import ContextLengthError, InputError
from trinity.runtime.session import Session, all_logits


def held(session: Session) -> list[int]:
    return session._cache.tokens  # type: ignore[attr-defined, no-any-return]


def test_prefill_goes_in_chunks() -> None:
    engine = ToyEngine(prefill_chunk=4)
    session = Session(engine)
    logits = session.evaluate(range(3, 13))
    assert [len(step) for step in engine.evaluated] == [4, 4, 2]
    np.testing.assert_array_equal(logits, engine.logits_of(range(3, 13)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("second", "evaluated"),
    [
        ([5, 6, 7, 8, 9], [8, 9]),
        ([5, 6, 7], [7]),
        ([5, 6], [6]),
        ([5, 9, 7], [9, 7]),
        ([9], [9]),
    ],
)
def test_shared_prefix_is_reused(second: list[int], evaluated: list[int]) -> None:
    engine = ToyEngine()
    session = Session(engine)
    session.evaluate([5, 6, 7])
    engine.evaluated.clear()
    logits = session.evaluate(second)
    assert engine.evaluated == [evaluated]
    assert session.tokens == held(session) == second
    np.testing.assert_array_equal(logits, engine.logits_of(second))  # type: ignore[arg-type]


def test_extend_appends() -> None:
    engine = ToyEngine()
    session = Session(engine)
    session.evaluate([5])
    session.extend([6])
    assert session.tokens == [5, 6]
    assert len(session) == 2


def test_reset_forgets() -> None:
    session = Session(ToyEngine())
    session.evaluate([5, 6])
    session.reset()
    assert session.tokens == held(session) == []


def test_cancellation_is_seen_before_each_chunk() -> None:
    engine = ToyEngine(prefill_chunk=4)
    cancel = threading.Event()
    engine.before_forward = lambda tokens: cancel.set() if tokens[0] == 7 else None
    session = Session(engine)
    assert session.evaluate(range(3, 23), cancel) is None
    assert session.tokens == held(session) == list(range(3, 11))
    cancel.clear()
    engine.before_forward = lambda tokens: None
    logits = session.evaluate(range(3, 23), cancel)
    assert engine.evaluated[2] == [11, 12, 13, 14]
    np.testing.assert_array_equal(logits, engine.logits_of(range(3, 23)))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("after", [False, True])
def test_an_error_leaves_the_session_consistent(error: type[BaseException], after: bool) -> None:
    engine = ToyEngine(prefill_chunk=4)
    session = Session(engine)
    session.evaluate([3, 4])
    forward = engine.forward

    def failing(tokens, cache, *, all_logits=False):  # type: ignore[no-untyped-def]
        if after:
            forward(tokens, cache)
        raise error

    engine.forward = failing  # type: ignore[method-assign]
    with pytest.raises(error):
        session.evaluate([3, 4, 5, 6])
    assert session.tokens == held(session)
    engine.forward = forward  # type: ignore[method-assign]
    logits = session.evaluate([3, 4, 9])
    assert session.tokens == held(session) == [3, 4, 9]
    np.testing.assert_array_equal(logits, engine.logits_of([3, 4, 9]))  # type: ignore[arg-type]


def test_too_long_states_both_lengths() -> None:
    session = Session(ToyEngine(context_length=10))
    with pytest.raises(ContextLengthError, match=r"11 tokens.*holds 10"):
        session.evaluate(range(11))
    session.evaluate(range(10))
    with pytest.raises(ContextLengthError):
        session.extend([1])
    assert len(session) == 10


def test_no_tokens_is_an_error() -> None:
    with pytest.raises(InputError, match="no tokens"):
        Session(ToyEngine()).evaluate([])


def test_all_logits_are_those_of_each_prefix() -> None:
    engine = ToyEngine(prefill_chunk=4)
    ids = [3, 4, 5, 6, 7, 8]
    found = all_logits(engine, ids)
    assert found is not None
    expected = [engine.logits_of(ids[: n + 1]) for n in range(len(ids))]
    np.testing.assert_array_equal(found, expected)
    cancel = threading.Event()
    cancel.set()
    assert all_logits(engine, ids, cancel) is None
