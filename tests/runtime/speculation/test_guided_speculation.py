"""Speculation under a grammar: the same text in fewer steps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trinity
from tests.runtime.speculation.test_proposals import PROMPT, Babbler
from tests.toy_model import VOCAB_SIZE, ToyEngine, ToyTokenizer, chunks_of, ids_of
from trinity.grammar.grammar import Grammar
from trinity.grammar.guide import MatcherGuide
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.sampling.sampling_params import SamplingParams

STORIES = Path(__file__).resolve().parents[2] / "data" / "stories260K" / "Q4_0.gguf"
TEXT = {"type": "string", "pattern": "^[a-e ]{0,40}$"}
ROWS = {
    "type": "array", "minItems": 3, "maxItems": 6,
    "items": {"type": "object", "properties": {"first": TEXT, "second": TEXT},
              "required": ["first", "second"], "additionalProperties": False},
}  # fmt: skip
GRAMMARS: dict[str, Callable[[], Grammar]] = {
    "free": lambda: Grammar.regex("(?s).*"),
    "some letters": lambda: Grammar.regex("[abc ]{10,80}"),
    "forced words": lambda: Grammar.regex("([ab]cde ){20}"),
    "rows": lambda: Grammar.json_schema(ROWS),
    "any white space": lambda: Grammar.json_schema(ROWS, whitespace=True),
}


@pytest.fixture(autouse=True)
def steps_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tokens a step has: so proposals are always worth their price."""
    clock = itertools.count()
    monkeypatch.setattr(
        "trinity.runtime.scheduling.engine_loop.perf_counter", lambda: float(next(clock))
    )


def generated(
    engine: ToyEngine, grammar: Grammar, proposals: int, params: SamplingParams, **limits: Any
) -> tuple[list[tuple[Any, ...]], Any]:
    """Everything that a caller sees, and what it took."""
    options = {"grammar": grammar, "speculative": proposals}
    chunks = list(chunks_of(engine, PROMPT, params, GenerationLimits(**limits), **options))
    seen = [(c.text, c.token_ids, c.logprobs, c.finish_reason) for c in chunks]
    return seen, chunks[-1].timings


def answers(name: str, *rest: Any, context: int = 300, **limits: Any) -> tuple[Any, Any]:
    """What a babbler says."""
    return generated(Babbler(context_length=context), GRAMMARS[name](), *rest, **limits)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", GRAMMARS)
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_the_answer_is_the_same(name: str, data: st.DataObject) -> None:
    draw = data.draw
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.5, 1.5])),
        seed=draw(st.integers(0, 5)),
        top_k=draw(st.sampled_from([0, 2])),
        presence_penalty=draw(st.sampled_from([0.0, 0.1])),
    )
    limits: dict[str, Any] = {
        "max_tokens": draw(st.none() | st.integers(0, 120)),
        "stop": draw(st.sampled_from([(), ("ab",), ("aaaa",)])),
        "ignore_eos": draw(st.booleans()),
        "logprobs": draw(st.sampled_from([None, 0, 2])),
        "context": draw(st.sampled_from([40, 300])),
    }
    plain, timings = answers(name, 0, params, **limits)
    found, spent = answers(name, draw(st.integers(1, 20)), params, **limits)
    assert found == plain
    assert spent.decode_steps == timings.decode_steps
    assert spent.forced_tokens == timings.forced_tokens
    assert timings.proposed_tokens == 0
    assert spent.accepted_tokens <= spent.proposed_tokens


@pytest.mark.full
def test_a_guide_that_cuts_nothing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result depends on what the grammar allows and forces after each token."""
    params = SamplingParams(temperature=0.5, seed=3)
    wanted = {name: answers(name, 0, params, max_tokens=150) for name in GRAMMARS}
    monkeypatch.setattr(MatcherGuide, "fitting", lambda self, tokens: len(tokens))
    proposed = {}
    for name, (plain, _) in wanted.items():
        found, spent = answers(name, 15, params, max_tokens=150)
        assert found == plain
        proposed[name] = spent.proposed_tokens
    # Between words that are forced nothing is left to propose.
    assert [name for name in proposed if not proposed[name]] == ["forced words"]


def says(text: str, grammar: Grammar, proposals: int, **limits: Any) -> tuple[str, Any, int]:
    """The answer of a model that wants to say ``text``, what it took, and its steps."""
    engine = ToyEngine(context_length=600, prefill_chunk=64)
    engine.says(text, after=len(PROMPT))
    greedy = SamplingParams(temperature=0)
    seen, timings = generated(engine, grammar, proposals, greedy, **limits)
    return "".join(piece[0] for piece in seen), timings, len(engine.evaluated) - 1


def test_what_repeats_takes_fewer_steps() -> None:
    text = json.dumps([{"first": "abc de " * 4, "second": "abc de " * 4}] * 4)
    grammar = Grammar.json_schema(ROWS)
    assert says(text, grammar, 0)[0] == text
    found, timings, steps = says(text, grammar, 15)
    assert found == text
    assert timings.accepted_tokens > 0.8 * timings.proposed_tokens
    assert steps < says(text, grammar, 0)[2] / 3


def test_forced_tokens_are_proposals_where_each_has_a_step() -> None:
    """With log-probabilities each forced token is a proposal, and all are accepted."""
    text = json.dumps([{"first": "abcd", "second": letter} for letter in "abcde"])
    grammar = Grammar.json_schema(ROWS)
    found, timings, steps = says(text, grammar, 15, logprobs=1)
    plain, _, single = says(text, grammar, 0, logprobs=1)
    assert found == plain == text
    assert steps < single / 2
    assert timings.accepted_tokens > 0.8 * timings.proposed_tokens


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("[ab]*", "abab", 4),
        ("[ab]*", "abxb", 2),  # forbidden
        ("[ab]{3}", "abab", 2),  # the third ends it
        ("[ab]{3}c?", "abab", 3),
        ("(ab|ax)*", "axab", 4),
        ("([ab]yz)*", "ayza", 0),  # forced behind the first
        ("a[ab]yz", "aayz", 1),
        ("[ab]*", "", 0),
    ],
)
def test_which_tokens_fit(pattern: str, text: str, expected: int) -> None:
    guide = Grammar.regex(pattern).guide(ToyTokenizer(), VOCAB_SIZE)  # type: ignore[arg-type]
    before = guide.allowed()
    assert guide.fitting(ids_of(text)) == expected
    assert (guide.allowed() == before).all()
    assert guide.fitting([*ids_of("a"), VOCAB_SIZE + 5]) <= 1
    assert guide.fitting([1]) == 0  # a control token
    guide.accept(ids_of(text)[:1] or ids_of("a"))
    assert not guide.complete


@pytest.mark.full
@pytest.mark.parametrize("ref", [trinity.demo_model(), STORIES], ids=["ternary", "Q4_0"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_real_models_say_the_same(ref: str | Path, temperature: float) -> None:
    """Log-probabilities are equal to the last bit."""
    spent = 0
    with trinity.load(ref, context_length=256, threads=2) as model:
        for grammar in (GRAMMARS["rows"](), Grammar.regex("((The|A) (cat|dog) [a-z ]{3,9}, ){3,}")):
            for logprobs in (None, 1):
                plain, found = (
                    model.generate(
                        "Once upon a time", grammar=grammar, temperature=temperature, seed=1,
                        max_tokens=100, logprobs=logprobs, speculative=speculative,
                        cache_prompt=False,
                    )
                    for speculative in (False, True)
                )  # fmt: skip
                assert (found.token_ids, found.logprobs) == (plain.token_ids, plain.logprobs)
                assert plain.timings.proposed_tokens == 0
                spent += found.timings.accepted_tokens
    assert spent > 0
