from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

import trinity
from tests.conversation.transcripts import TOOLS, TRANSCRIPTS, Transcript
from trinity.conversation import CallArguments, CallStart, Reasoning, Text, form_of
from trinity.conversation.dialects import DIALECTS, GENERAL
from trinity.conversation.dialects.dialect import Dialect
from trinity.conversation.prompt import Form
from trinity.conversation.scribe import joined
from trinity.errors import InputError
from trinity.loading import demo_model

llguidance = pytest.importorskip("llguidance")
from trinity.grammar.grammar import Grammar  # noqa: E402 - needs llguidance

FORMS = [*DIALECTS, GENERAL]
THINK, THOUGHT, END = 256, 257, 258
TEXTS = [bytes([i]) for i in range(256)]
TOKENS = [*TEXTS, b"<think>", b"</think>", b"\xff<end>"]
# Those that come first end what they stand in, so that answers made by chance are short.
PREFERRED = [THOUGHT, *b'<"}])>', *b"01aeRo \n"]
ENDS = (
    "\n</parameter>",
    "</parameter>",
    "</｜DSML｜parameter>",
    "</arg_value>",
    "</longcat_arg_value>",
    "</arg_value:opensource>",
    "</param>",
    "</atem:parameter>",
    "]<]minimax[>[</city>",
    "]<]minimax[>[</item>",
    '<|"|>',
    "<escape>",
)


class Table:
    """A vocabulary of bytes, with delimiters of reasoning."""

    eos_token_id, bos_token_id = END, None
    tokens, special_token_ids = TOKENS, [END]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@pytest.fixture(scope="module")
def table() -> Any:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Table()))


def mark(text: str) -> str | int:
    return {"<think>": THINK, "</think>": THOUGHT}.get(text, text)


def written(table: Any, grammar: str, seed: int, opening: bytes = b"") -> str:
    """Return a random text that a grammar accepts."""
    matcher = llguidance.LLMatcher(table, Grammar.lark(grammar).text)
    assert not matcher.is_error(), matcher.get_error()
    chance, out = random.Random(seed), bytearray()
    for byte in opening:
        assert matcher.consume_token(byte)
    for step in range(4000):
        if matcher.is_accepting() and (matcher.is_stopped() or step > 200):
            return bytes(opening + out).decode()
        any_text = max(map(out.rfind, (b"city", b"<item>")))
        if any_text > max(map(out.rfind, (b"days", b"exact", b"tags"))):
            for end in (one.encode() for one in chance.sample(ENDS, len(ENDS))):
                if b"minimax" in end and out.rfind(end[-7:].replace(b"/", b"")) < any_text - 1:
                    continue  # it ends another element
                if step % 9 == 0 and matcher.validate_tokens(list(end)) == len(end):
                    assert matcher.try_consume_tokens(list(end)) == len(end)
                    out += end
                    break
        mask = matcher.compute_bitmask()
        allowed = [i for i in range(len(TOKENS)) if mask[i // 8] >> (i % 8) & 1]
        if allowed == [END]:
            return bytes(opening + out).decode()
        plain = [i for i in allowed if i < 128 or i in (THINK, THOUGHT)]
        allowed = plain or allowed  # within a mark that is not ASCII, only its bytes
        first = [i for i in PREFERRED if i in allowed]
        token = chance.choice(first if first and chance.random() < 0.8 else allowed)
        assert matcher.consume_token(token)
        out += TOKENS[token]
    raise AssertionError(f"no end: {bytes(out)!r}")


def calls(form: Form, answer: str) -> list[tuple[str, Any]]:
    reader = form.reader()
    parts = joined([*reader.push(answer), *reader.finish()])
    assert not reader.problems, (answer, reader.problems)
    assert not [part for part in parts if isinstance(part, Text)], (answer, parts)
    starts = [part for part in parts if isinstance(part, CallStart)]
    texts = [part.text for part in parts if isinstance(part, CallArguments)]
    return [(start.name, json.loads(text)) for start, text in zip(starts, texts, strict=True)]


def forced(dialect: Dialect, choice: str, **given: Any) -> Form:
    return form_of("", tools=TOOLS, tool_choice=choice, dialect=dialect, **given)


@pytest.mark.parametrize("dialect", FORMS, ids=lambda one: one.name)
def test_what_a_grammar_forces_is_read_as_calls(dialect: Dialect, table: Any) -> None:
    for seed in range(4):
        form = forced(dialect, "required", parallel=seed % 2 == 0)
        grammar = form.grammar(lambda text: text)
        assert grammar is not None
        found = calls(form, written(table, grammar, seed))
        assert found
        for name, arguments in found:
            assert name in ("weather", "get_time")
            assert name == "get_time" or isinstance(arguments["city"], str)
            assert isinstance(arguments.get("days", 1), int)
            assert isinstance(arguments.get("exact", True), bool)
            assert isinstance(arguments.get("tags", []), list)


@pytest.mark.parametrize("dialect", FORMS, ids=lambda one: one.name)
def test_one_call_of_the_tool_that_was_named(dialect: Dialect, table: Any) -> None:
    form = forced(dialect, "get_time", parallel=False)
    grammar = form.grammar(lambda text: text)
    assert grammar is not None
    assert [name for name, _ in calls(form, written(table, grammar, 1))] == ["get_time"]


def test_reasoning_may_come_before_forced_calls(table: Any) -> None:
    form = forced(GENERAL, "get_time", prompt="<think>\n")
    grammar = form.grammar(mark)
    assert grammar is not None
    answer = written(table, grammar, 3)
    reader = form.reader()
    parts = [*reader.push(answer), *reader.finish()]
    assert reader.called
    assert all(isinstance(part, Reasoning | CallStart | CallArguments) for part in parts)
    optional = forced(GENERAL, "get_time").grammar(mark)
    assert optional is not None
    assert "<think>" in {written(table, optional, seed)[:7] for seed in range(30)}


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_reasoning_ends_with_its_budget(budget: int, table: Any) -> None:
    grammar = form_of("", prompt="<think>\n").grammar(mark, budget=budget)
    assert grammar is not None
    Grammar.lark(grammar)
    matcher = llguidance.LLMatcher(table, grammar)
    for _ in range(budget):
        assert matcher.consume_token(ord("x"))
    assert matcher.compute_ff_tokens() == [THOUGHT]
    assert matcher.consume_token(THOUGHT)
    assert matcher.try_consume_tokens(list(b"anything\n{")) == 10
    assert matcher.is_accepting()


def test_an_answer_of_ones_own_after_reasoning(table: Any) -> None:
    form = form_of("", prompt="<think>\n")
    grammar = form.grammar(mark, answer='%json {"type": "integer"}')
    assert grammar is not None
    matcher = llguidance.LLMatcher(table, grammar)
    assert matcher.try_consume_tokens([*b"hm", THOUGHT, *b"\n\n12"]) == 7
    assert matcher.is_accepting()
    assert form_of("").grammar(mark) is None


def accepts(table: Any, grammar: str, text: str) -> bool:
    """Whether a grammar accepts a complete text."""
    matcher = llguidance.LLMatcher(table, Grammar.lark(grammar).text)
    assert not matcher.is_error(), matcher.get_error()
    ids = list(text.encode())
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


@pytest.mark.parametrize("dialect", FORMS, ids=lambda one: one.name)
@pytest.mark.parametrize("answer", ['%json {"const": 5}', "%lark {\nstart: /[5]/\n}"])
def test_calls_or_a_form(dialect: Dialect, answer: str, table: Any) -> None:
    form = forced(dialect, "auto", parallel=False)
    either = form.grammar(lambda text: text, answer)
    call = forced(dialect, "required", parallel=False).grammar(lambda text: text)
    assert either is not None
    assert call is not None
    head = dialect.answer_head
    assert accepts(table, either, head + "5")
    assert not accepts(table, either, head + "6")
    said = written(table, call, 1)
    assert accepts(table, either, said)
    assert not accepts(table, either, said + head + "5")
    alone = forced(dialect, "none").grammar(lambda text: text, answer)
    assert alone is not None
    assert accepts(table, alone, head + "5")
    assert not accepts(table, alone, said)
    must = forced(dialect, "required", parallel=False).grammar(lambda text: text, answer)
    assert must == call


def test_text_of_a_form_that_looks_like_a_call_is_text() -> None:
    said = '{"name": "get_time", "arguments": {}}'
    formed = replace(forced(GENERAL, "auto"), formed=True)
    reader = formed.reader()
    assert joined([*reader.push(said), *reader.finish()]) == (Text(said),)
    assert calls(formed, f"<tool_call>\n{said}\n</tool_call>") == [("get_time", {})]


def test_harmony_thinks_in_its_channel_and_answers_in_another() -> None:
    ids = {"<|channel|>": 1, "<|message|>": 2, "<|end|>": 3, "<|start|>": 4}
    form = form_of("<|channel|>analysis<|message|><|end|>")
    wanted = '(<[1]> "analysis" <[2]> (<[^3]>){0,9} <[3]> <[4]> "assistant" WHITE)? calls'
    for answer in (None, '"x"'):
        grammar = form.grammar(lambda text: ids.get(text, text), answer, budget=9)
        assert grammar is not None
        assert grammar.startswith(f"start: {wanted}\n")
        Grammar.lark(grammar)
        assert answer is None or 'calls: <[1]> "final" <[2]> "x"' in grammar


def test_a_budget_needs_a_token_that_ends_reasoning() -> None:
    with pytest.raises(InputError, match="a reasoning budget is not supported"):
        form_of("").grammar(lambda text: text, budget=3)


@pytest.mark.parametrize("one", TRANSCRIPTS, ids=lambda one: one.name)
def test_marks_are_those_of_the_transcripts(one: Transcript) -> None:
    """Delimiters that a vocabulary may hide are recognized."""
    form = form_of(one.template, tools=TOOLS)
    for found in ("<|channel|>", "[TOOL_CALLS]", "[ARGS]", "<tool_call>", "<|tool_call|>", '<|"|>'):
        assert found not in one.answer or found in form.marks or not one.calls


def test_a_model_that_knows_no_tools_calls_one_when_forced() -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tools = [json.loads(json.dumps(TOOLS[0]))]
    schema = tools[0]["function"]["parameters"]
    schema["properties"] = {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2]}}
    schema |= {"required": ["city", "days"], "additionalProperties": False}
    with trinity.load(demo_model(), context_length=1024) as model:
        prompt = model.chat_prompt(
            [{"role": "user", "content": "Rome?"}],
            template=template,
            tools=tools,
            tool_choice="weather",
            parallel_tool_calls=False,
        )
        grammar = prompt.grammar()
        assert grammar is not None
        answer = model.generate(
            prompt.ids, grammar=Grammar.lark(grammar), skip_special=prompt.skip_special, seed=1
        )
        ((name, arguments),) = calls(prompt.form, answer.text)
    assert name == "weather"
    assert arguments.keys() == {"city", "days"}
    assert len(arguments["city"]) <= 8
    assert arguments["days"] in (1, 2)
