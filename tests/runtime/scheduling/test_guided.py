"""Grammars in the scheduler: steps, forced tokens, other requests, ends and errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.runtime.scheduling.test_engine_thread import soon
from tests.toy_model import EOS, VOCAB_SIZE, ids_of, toy_model
from trinity import InputError
from trinity.grammar.grammar import Grammar

PERSON = {
    "type": "object",
    "properties": {"first_name": {"type": "string", "maxLength": 3}, "ok": {"type": "boolean"}},
    "required": ["first_name", "ok"],
    "additionalProperties": False,
}


class Script:
    """A grammar of steps: the characters of which one is chosen, and the text that then follows."""

    def __init__(self, *steps: tuple[str, str], error: BaseException | None = None) -> None:
        self.steps, self.error = steps, error
        self.masks = 0
        self.threads: set[str] = set()

    def guide(self, tokenizer: object, vocab_size: int) -> ScriptGuide:
        return ScriptGuide(self)


class ScriptGuide:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.steps = list(script.steps)
        self.complete = not self.steps

    def allowed(self) -> NDArray[np.bool_]:
        self.script.masks += 1
        self.script.threads.add(threading.current_thread().name)
        if self.script.error is not None and len(self.steps) == 1:
            raise self.script.error
        mask = np.zeros(VOCAB_SIZE, np.bool_)
        for token in ids_of(self.steps[0][0]):
            mask[token] = True
        return mask

    def accept(self, tokens: Sequence[int]) -> None:
        allowed, forced = self.steps[0]
        if list(tokens) == ids_of(forced):
            self.steps.pop(0)
        else:
            assert [tokens[0]] in [[i] for i in ids_of(allowed)]
        self.complete = not self.steps

    def forced(self) -> list[int]:
        return ids_of(self.steps[0][1]) if self.steps and self.script.masks else []

    def fitting(self, tokens: Sequence[int]) -> int:
        return 0  # something is forced behind each


def two_steps(error: BaseException | None = None) -> Script:
    return Script(("ab", "cdefghijklmnopqrstuv"), ("xy", "!"), error=error)


def test_forced_tokens_are_evaluated_together() -> None:
    model, engine = toy_model()
    script = two_steps()
    masks = iter([1, 1, 1, 2])  # that the thread has begun during each step

    def wait(tokens: list[int]) -> None:
        wanted = next(masks)
        soon(lambda: script.masks >= wanted)

    engine.before_forward = wait
    found = model.generate("z", grammar=script, temperature=0)
    assert found.text[1:21] == "cdefghijklmnopqrstuv"
    assert (found.text[0], found.text[21:]) in {(a, b) for a in "ab" for b in ("x!", "y!")}
    assert (found.finish_reason, found.timings.completion_tokens) == ("stop", 23)
    assert found.timings.forced_tokens == 21
    # The prompt, then the first token and twenty more in pieces of the most rows of a step.
    assert list(map(len, engine.evaluated)) == [2, 8, 8, 5]
    assert script.masks == 2
    assert script.threads == {"trinity-mask"}


def test_log_probabilities_take_a_step_each_and_change_nothing() -> None:
    model, engine = toy_model()
    plain = model.generate("z", grammar=two_steps(), seed=1)
    engine.evaluated.clear()
    found = model.generate("z", grammar=two_steps(), seed=1, logprobs=2, speculative=False)
    assert found.token_ids == plain.token_ids
    assert list(map(len, engine.evaluated))[1:] == [1] * 22
    assert found.logprobs is not None
    tokens = model.tokenize("z")
    for one, token in zip(found.logprobs, found.token_ids, strict=True):
        logits = engine.logits_of(tokens).astype(np.float64)  # as the model has them
        expected = logits[token] - np.log(np.exp(logits).sum())
        assert one.logprob == pytest.approx(expected, abs=1e-4)
        assert len(one.top) == 2
        tokens.append(token)


@pytest.mark.parametrize("most", [1, 5, 21, 22])
def test_max_tokens(most: int) -> None:
    whole = toy_model()[0].generate("z", grammar=two_steps(), temperature=0)
    found = toy_model()[0].generate("z", grammar=two_steps(), temperature=0, max_tokens=most)
    assert (found.text, found.finish_reason) == (whole.text[:most], "length")


def test_max_tokens_of_a_whole_answer() -> None:
    found = toy_model()[0].generate("z", grammar=two_steps(), max_tokens=23)
    assert len(found.token_ids) == 23


def test_a_full_context_ends_with_length() -> None:
    model, _ = toy_model(context_length=10)
    found = model.generate("z", grammar=two_steps())
    assert (len(found.token_ids), found.finish_reason) == (10 - 2, "length")


def test_stop_string_in_forced_text() -> None:
    found = toy_model()[0].generate("z", grammar=two_steps(), stop="hij")
    assert (found.text[1:], found.finish_reason) == ("cdefg", "stop")


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_end_of_generation(ignore_eos: bool) -> None:
    """Where the text may end or continue, the model decides, unless ends are ignored."""
    model, engine = toy_model()
    engine.says("ab", after=2)
    grammar = Grammar.regex("[a-c]{1,6}")
    found = model.generate("z", grammar=grammar, temperature=0, ignore_eos=ignore_eos)
    assert found.finish_reason == "stop"
    assert (found.text == "ab") != ignore_eos
    assert len(found.text) == 2 or ignore_eos
    assert EOS not in found.token_ids


def test_an_error_ends_its_own_answer_alone() -> None:
    model, _ = toy_model()
    alone = model.generate("q", seed=3, max_tokens=30).token_ids
    results: dict[str, Any] = {}

    def run(name: str, **options: Any) -> None:
        try:
            results[name] = model.generate("q" if name == "free" else "z", **options).token_ids
        except InputError as error:
            results[name] = str(error)

    failing = two_steps(InputError("too complex"))
    threads = [
        threading.Thread(target=run, args=("free",), kwargs={"seed": 3, "max_tokens": 30}),
        threading.Thread(target=run, args=("bad",), kwargs={"grammar": failing}),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == {"free": alone, "bad": "too complex"}


def test_a_bias_that_forbids_all_that_is_allowed() -> None:
    bias = {token: float("-inf") for token in ids_of("ab")}
    with pytest.raises(InputError, match="logit_bias forbids every token that the grammar allows"):
        toy_model()[0].generate("z", grammar=two_steps(), logit_bias=bias)


def test_a_bias_acts_before_the_mask() -> None:
    model, _ = toy_model()
    bias = {ids_of("b")[0]: 100.0, ids_of("w")[0]: 1000.0}
    for seed in range(5):
        found = model.generate("z", grammar=two_steps(), logit_bias=bias, seed=seed)
        assert found.text[0] == "b"


@pytest.mark.parametrize("bad", ["x", {"type": "object"}, Grammar, 3])
def test_what_is_no_grammar(bad: Any) -> None:
    with pytest.raises(InputError, match=r"grammar is .*must be a trinity\.Grammar"):
        toy_model()[0].generate("z", grammar=bad)


def test_cancel_in_mid_grammar() -> None:
    model, engine = toy_model()
    grammar = Grammar.regex("[a-z]{50}")
    chunks = model.stream("z", grammar=grammar, seed=1)
    texts = [next(chunks).text for _ in range(3)]
    chunks.close()
    assert len("".join(texts)) == 3
    steps = len(engine.evaluated)
    model.generate("q", max_tokens=1)
    assert len(engine.evaluated) <= steps + 3


@pytest.mark.full
def test_pages_that_are_taken_away_change_nothing() -> None:
    """Two completions do not fit into memory: the younger one is computed again."""
    grammar = Grammar.regex("[a-c]{100}x{8}[a-c]{60}")
    alone = [
        toy_model(context_length=250)[0].generate("z", grammar=grammar, seed=s).token_ids
        for s in range(3)
    ]
    model, engine = toy_model(context_length=250, pages=4)
    found = model.generate_batch(["z"] * 3, grammar=grammar, seed=0, cache_prompt=False)
    evaluated = {place: done.token_ids for place, done in found}
    assert evaluated == dict.fromkeys(range(3), alone[0])
    assert sum(map(len, engine.evaluated)) > 3 * 170  # some were evaluated twice


def test_a_batch_gives_what_each_gives_alone() -> None:
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("Once", {"seed": 1}),
        ("The cat", {"seed": 2, "grammar": Grammar.json_schema(PERSON)}),
        ("A dog", {"temperature": 0.0}),
        ("Once upon", {"seed": 3, "grammar": Grammar.regex("[a-z ]{20,30}")}),
        ("He said", {"seed": 4, "grammar": Grammar.choice(["no", "yes, of course she did"])}),
        ("She", {"seed": 5, "repetition_penalty": 1.2}),
        ("They", {"temperature": 0.0, "grammar": Grammar.json_object()}),
        ("It is", {"seed": 6, "grammar": Grammar.json_schema(PERSON), "logprobs": 1}),
    ]
    with trinity.load(trinity.demo_model(), context_length=128) as model:

        def run(place: int) -> None:
            prompt, options = wanted[place]
            results[place] = model.generate(prompt, max_tokens=40, **options).text

        results: dict[int, str] = {}
        for place in range(8):
            run(place)
        alone, results = results, {}
        threads = [threading.Thread(target=run, args=(place,)) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert results == alone
        person = json.loads(alone[1])
        assert list(person) == ["first_name", "ok"]


def test_forced_pieces_share_a_step_with_running_ones() -> None:
    model, engine = toy_model(prefill_chunk=24)
    forced = two_steps()
    results: dict[int, Any] = {}

    def run(place: int) -> None:
        grammar = forced if place == 0 else None
        results[place] = model.generate("z", grammar=grammar, seed=1, max_tokens=40).token_ids

    threads = [threading.Thread(target=run, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    alone = toy_model()[0].generate("z", seed=1, max_tokens=40).token_ids
    assert results[1] == results[2] == alone
    assert len(results[0]) == 23
    assert max(map(len, engine.evaluated)) > 1


def test_a_grammar_of_a_closed_model_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    model, _ = toy_model()
    model.generate("z", grammar=two_steps())
    new = set(threading.enumerate()) - before
    assert {thread.name for thread in new} == {"trinity-mask", "trinity-engine"}
    model.close()
    for thread in new:
        thread.join(120)
        assert not thread.is_alive()
