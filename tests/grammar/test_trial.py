"""Results of compiling a grammar are cached, including refusals but not shortages of memory."""

from __future__ import annotations

import errno
import subprocess
from typing import Any

import pytest

from tests.toy_model import ToyTokenizer
from trinity.errors import ConfinedUnavailableError, InputError
from trinity.grammar import trial
from trinity.grammar.grammar import Grammar
from trinity.grammar.limits import MEMORY_BYTES, SECONDS
from trinity.grammar.trial import NotCompiledError, Outcome, Outcomes, only_known
from trinity.processes.confined import Confined

LARGE_PRIME = {"type": "integer", "multipleOf": 99999989}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records the requests that reach a process; the cache is empty at first."""
    found: list[Any] = []
    call = trial._processes.call

    def counted(request: Any, **options: Any) -> Any:
        found.append(request)
        return call(request, **options)

    monkeypatch.setattr(trial._processes, "call", counted)
    monkeypatch.setattr(trial, "_outcomes", Outcomes(trial.KNOWN, trial.KNOWN_BYTES))
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("schema", "message"),
    [(LARGE_PRIME, "too expensive"), ({"contains": {}}, "#/contains"), ({"$ref": "#"}, "cycle")],
)
def test_a_refusal_is_remembered(asked: list[Any], schema: Any, message: str) -> None:
    for _ in range(3):
        with pytest.raises(InputError, match=message):
            Grammar.json_schema(schema)
    assert len(asked) == 1


def test_a_grammar_is_compiled_once(asked: list[Any]) -> None:
    for made in (Grammar.regex("a+"), Grammar.regex("a+")):
        assert Grammar(made.kind, made.text) == made
    assert len(asked) == 1


def test_without_a_process_it_may_succeed_later(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Confined("trinity.grammar.compiling", memory_bytes=MEMORY_BYTES, seconds=SECONDS)
    monkeypatch.setattr(trial, "_processes", pool)

    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(ConfinedUnavailableError, match="temporarily unavailable"):
            Grammar.regex("ab")
    assert Grammar.regex("ab").kind == "lark"
    pool.close()


def test_where_only_known_ones_are_used_nothing_is_compiled(asked: list[Any]) -> None:
    tokenizer: Any = ToyTokenizer()
    token = only_known.set(True)
    try:
        with pytest.raises(NotCompiledError):
            Grammar.regex("abc")
        assert not asked
        only_known.set(False)
        grammar = Grammar.regex("abc")
        only_known.set(True)
        assert Grammar.regex("abc") == grammar
        with pytest.raises(NotCompiledError):
            grammar.prepare(tokenizer)
        only_known.set(False)
        grammar.prepare(tokenizer)
        only_known.set(True)
        grammar.prepare(tokenizer)
    finally:
        only_known.reset(token)


def test_outcomes_have_a_limit_in_number_and_in_bytes() -> None:
    kept = Outcomes(3, 4 * 100)
    for number in range(5):
        kept.put(bytes([number]), Outcome("", "x" * 10))
    kept.get(b"\2")
    kept.put(b"\5", Outcome("", "x" * 75))  # 95 characters; the oldest but for \2 is \3
    assert [kept.get(bytes([i])) is not None for i in range(6)] == [
        False, False, True, False, True, True,
    ]  # fmt: skip
    kept.put(b"\6", Outcome("x" * 101))  # larger than all together may be
    assert kept.get(b"\6") is None
