"""Grammars: errors, limits of cost, and special tokens."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import sys
from typing import Any

import pytest
from llguidance import LLTokenizer

import trinity
from tests.processor_time import check_least, seconds_of, within
from tests.toy_model import BOS, EOS, ToyTokenizer, toy_model
from trinity import InputError
from trinity.grammar.grammar import Grammar
from trinity.grammar.limits import DEEPEST, MOST_CHOICES, SECONDS


def test_immutable_and_comparable() -> None:
    grammar = Grammar.regex("a+")
    assert grammar == Grammar.regex("a+")
    assert len({grammar, Grammar.regex("a+"), Grammar.regex("b+")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        grammar.text = "x"  # type: ignore[misc]
    assert trinity.Grammar is Grammar


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Grammar.regex("(a"), "unclosed group"),
        (lambda: Grammar.regex(r"a\b"), "not supported"),
        (lambda: Grammar.regex("(?=a)b"), "look-around"),
        (lambda: Grammar.regex("(" * 200 + "a" + ")" * 200), f"more than {DEEPEST} levels"),
        (lambda: Grammar.regex(3), "of type int"),  # type: ignore[arg-type]
        (lambda: Grammar.regex("\ud800"), "lone surrogate"),
        (lambda: Grammar.choice([]), "a non-empty list of texts"),
        (lambda: Grammar.choice("ab"), "list of texts"),
        (lambda: Grammar.choice([1]), "list of texts"),  # type: ignore[list-item]
        (lambda: Grammar.choice(["x"] * (MOST_CHOICES + 1)), f"limit is {MOST_CHOICES}"),
        (lambda: Grammar.choice(["\ud800"]), "lone surrogate"),
        (lambda: Grammar.lark("start: x"), "unknown name"),
        (lambda: Grammar.lark('begin: "x"'), "start"),
        (lambda: Grammar.lark("start: " + "(" * 200 + '"a"' + ")" * 200), "levels of brackets"),
        (lambda: Grammar.lark('start[temperature=0.5]: "a"'), "temperature: it is an option"),
        (lambda: Grammar.lark('start: a\na[stop="x"]: /.*/'), "stop: generated text"),
        (lambda: Grammar.lark('start: %json {"contains": {}}'), "#/contains: "),
        (lambda: Grammar.lark("start: %json {"), "has no valid JSON after %json"),
        (lambda: Grammar.lark(""), "no start rule"),
        (lambda: Grammar.lark("start: a\na: b\nb: a"), "no text matches it"),
        (lambda: Grammar.lark('start: a\na: "b" x'), "line 2, column 4: unknown name"),
        (lambda: Grammar.regex("[a&&b]"), "no text matches it"),
        (lambda: Grammar.gbnf('root ::= "a"{' + "9" * 5000 + "}"), "too many digits"),
        (lambda: Grammar.lark("start: %json " + "9" * 5000), "too many digits"),
        (lambda: Grammar.json_schema("9" * 5000), "too many digits"),
        (lambda: Grammar.json_schema({"$ref": "#"}), "#/$ref: the references form a cycle: # -> #"),
        (
            lambda: Grammar.json_schema(
                {
                    "items": {"$ref": "#/$defs/a"},
                    "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
                }
            ),
            "#/items/$ref: the references form a cycle: #/$defs/a -> #/$defs/b -> #/$defs/a",
        ),
        (lambda: Grammar.gbnf('begin ::= "a"'), "no rule root"),
        (lambda: Grammar.gbnf('root ::= "a'), "not valid GBNF"),
        (lambda: Grammar.gbnf('root ::= "\\ud800"'), "not a character"),
        (lambda: Grammar.gbnf("root ::= x"), "Rule 'x' not found"),
        (lambda: Grammar.gbnf("root ::= <|end|>"), "needs a grammar in Lark"),
        (lambda: Grammar.gbnf("root ::= " + "(" * 300 + '"a"' + ")" * 300), "levels of brackets"),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


HOSTILE = {
    "a grammar of many words": lambda: Grammar.lark(
        "start: " + " | ".join(f'"w{i}x{i * 7919 % 1000003}"' for i in range(40000))
    ),
    "a multiple of a large prime": lambda: Grammar.json_schema(
        {"type": "integer", "multipleOf": 99999989}
    ),
    "cases of cases": lambda: Grammar.json_schema(
        {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": {"type": "integer"}}} for j in range(4)]}
                   for i in range(12)]}
    ),
    "patterns at once": lambda: Grammar.json_schema(
        {"allOf": [{"type": "string", "pattern": f"(.*{c}.{{15}})"} for c in "abcdefgh"]}
    ),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_end_within_their_time(name: str) -> None:

    def test() -> None:
        with pytest.raises(InputError):
            HOSTILE[name]()

    within(2 * SECONDS, test)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grammar.regex("((a{1,1000}){1,1000}){1,1000}"),
        lambda: Grammar.regex("(a|b)*a(a|b){30}c"),
        lambda: Grammar.regex(r"(\p{L}{1,200}\W?){1,300}"),
        lambda: Grammar.lark('start: e\ne: e e | "a" | e e e\n'),
        lambda: Grammar.json_schema({"type": "array", "minItems": 10**6, "items": {}}),
        lambda: Grammar.json_schema({"type": "string", "minLength": 10**6}),
    ],
)
def test_hostile_steps_end_within_their_time(make: Any) -> None:
    """A step may be refused, which ends the completion, but takes no longer than a long step."""
    try:
        grammar = make()
    except InputError:
        return
    model, _ = toy_model(context_length=100)

    def longest_step() -> float:
        guide = grammar.guide(model.tokenizer, 259)
        found = []

        def step() -> None:
            (allowed,) = guide.allowed().nonzero()
            guide.accept([int(allowed[-1])])
            guide.accept(guide.forced())

        with contextlib.suppress(InputError):
            while len(found) < 60 and not guide.complete:
                found.append(seconds_of(step))
        return max(found, default=0.0)

    check_least(0.5, longest_step)


def lets_through(grammar: Grammar, text: str) -> bool:
    """Whether llguidance accepts this text byte by byte."""
    matcher = grammar.compiled(LLTokenizer("byte"), {})
    return bool(matcher.consume_tokens(list(text.encode()))) and bool(matcher.is_accepting())


@pytest.mark.parametrize("texts", [["", "a", "ab", "b"], ["aab"], [""], ["a", "aa", "aaa"]])
def test_a_choice_is_its_texts_and_no_other(texts: list[str]) -> None:
    grammar = Grammar.choice(texts)
    strings = ["".join(s) for n in range(4) for s in itertools.product("ab", repeat=n)]
    assert {one for one in strings if lets_through(grammar, one)} == set(texts)


@pytest.mark.parametrize("count", [2000, 2001, MOST_CHOICES])
def test_a_choice_of_as_many_texts_as_the_limit_says(count: int) -> None:
    """llguidance's parser accepts 2,000 alternatives of a rule."""
    texts = [f"{number * 7919 % 100003} \u00fcber" for number in range(count)]
    grammar = Grammar.choice(texts)
    guide = grammar.guide(ToyTokenizer(), 259)  # type: ignore[arg-type]
    for byte in texts[-1].encode():
        assert guide.allowed()[byte + 3]
        guide.accept([byte + 3])
    assert guide.allowed().nonzero()[0].tolist() == [EOS]
    assert not lets_through(grammar, "100004 \u00fcber")


def test_tokens_are_named_by_their_texts() -> None:
    grammar = Grammar.lark('start: "<s> /<s>/" <s> /<[a]>/ <[2]>  # <nothing>')
    guide = grammar.guide(ToyTokenizer(), 259)  # type: ignore[arg-type]
    text = "<s> /<s>/"
    for byte in text.encode():
        assert guide.allowed()[byte + 3]
        guide.accept([byte + 3])
    assert guide.allowed().nonzero()[0].tolist() == [BOS]
    guide.accept([BOS])
    for byte in b"<a>":
        guide.accept([byte + 3])
    assert guide.allowed().nonzero()[0].tolist() == [EOS]


def test_a_token_that_the_vocabulary_lacks() -> None:
    grammar = Grammar.lark('start: "a" <|call|>')
    with pytest.raises(InputError, match=r"the token <\|call\|>.*does not have; it has </s>, <s>"):
        toy_model()[0].generate("a", grammar=grammar)
    with pytest.raises(InputError, match="range"):
        toy_model()[0].generate("a", grammar=Grammar.lark("start: <[999999]>"))


def test_a_guide_fails_closed() -> None:
    guide = Grammar.regex("ab").guide(ToyTokenizer(), 259)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(InputError, match="grammar"):
            guide.accept([ord("z") + 3])
        with pytest.raises(InputError, match="grammar"):
            guide.allowed()


def test_logits_of_another_size_than_the_vocabulary() -> None:
    grammar = Grammar.regex("[a-z]")
    large = grammar.guide(ToyTokenizer(), 300).allowed()  # type: ignore[arg-type]
    assert (len(large), int(large.sum())) == (300, 26)
    small = grammar.guide(ToyTokenizer(), 110).allowed()  # type: ignore[arg-type]
    assert (len(small), int(small.sum())) == (110, 110 - 3 - ord("a"))
    with pytest.raises(InputError, match="no token of the model's vocabulary"):
        grammar.guide(ToyTokenizer(), 20).allowed()  # type: ignore[arg-type]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InputError, match=r'pip install "trinity-llm\[grammar\]"'):
        Grammar.json_schema({"type": "string", "maxLength": 12345})


def test_text_of_a_schema_is_a_schema() -> None:
    schema = {"type": "array", "items": {"type": "null"}}
    assert Grammar.json_schema(json.dumps(schema)) == Grammar.json_schema(schema)
    assert Grammar.json_schema(True) != Grammar.json_object()
