from __future__ import annotations

from typing import Any

import pytest

from tests.conversation.transcripts import GRANITE_32, GRANITE_33, TOOLS
from tests.toy_model import toy_model
from trinity.conversation.parts import Part, Reasoning, Text
from trinity.conversation.prompt import ChatPrompt, form_of, hides, token_of
from trinity.conversation.scribe import joined
from trinity.errors import InputError
from trinity.tokenizers import tokenizer_from_metadata

MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]"]
CONTROL, USER_DEFINED = 3, 4
USER = {"role": "user", "content": "hi"}


def tokenizer(kind: int) -> Any:
    """Return a vocabulary of bytes in which the delimiters are tokens of a kind."""
    tokens = ["<unk>", "<s>", "</s>", *MARKS, *(f"<0x{i:02X}>" for i in range(256))]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, *[kind] * len(MARKS), *[6] * 256],
        "tokenizer.ggml.scores": [0.0] * (3 + len(MARKS) + 256),
    }
    return tokenizer_from_metadata(metadata)


@pytest.mark.parametrize(("kind", "hidden"), [(CONTROL, True), (USER_DEFINED, False)])
def test_special_marks_must_not_be_skipped(kind: int, hidden: bool) -> None:
    found, form = tokenizer(kind), form_of("<tool_call>", tools=TOOLS)
    assert token_of("<tool_call>", found) == 3
    assert token_of("<tool_cal", found) is None
    assert hides(form, found) == hidden
    ids = [3, *found.encode("{", add_bos=False), 4]
    for skip in (True, False):
        stream = found.stream(skip_special=skip)
        shown = "".join(stream.push(i) for i in ids) + stream.finish()
        assert ("<tool_call>" in shown) == (not hidden or not skip)


def test_a_prompt_knows_its_marks() -> None:
    form = form_of("<tool_call>", tools=TOOLS, tool_choice="required")
    prompt = ChatPrompt([1], "<s>", form, False, tokenizer(CONTROL), lambda text: [])
    assert prompt.mark("</think>") == 6
    assert prompt.mark("<other>") == "<other>"
    grammar = prompt.grammar(budget=9)
    assert grammar is not None
    assert "<[3]>" in grammar
    assert "(<[^6]>){0,9} <[6]>" in grammar
    assert prompt.reader().push("x")


@pytest.mark.parametrize(
    ("template", "begun", "rest", "parts"),
    [
        (GRANITE_33, "<think>a</think><response>b", " c</response>", (Text(" c"),)),
        (GRANITE_33, "<think>a</think>b", " c</response>", (Text(" c</response>"),)),
        (GRANITE_33, "<think>", "a</think><response>b</response>", (Reasoning("a"), Text("b"))),
        (GRANITE_33, "b <response>", " c</response>", (Text(" c</response>"),)),
        (GRANITE_32, "Here's my thought process:", " a\nHere's my response: b",
         (Reasoning("a"), Text("b"))),
    ],
)  # fmt: skip
def test_a_continued_response_has_the_marks_of_its_beginning(
    template: str, begun: str, rest: str, parts: tuple[Part, ...]
) -> None:
    prompt = ChatPrompt([1], "", form_of(template), False, tokenizer(CONTROL), lambda text: [])
    reader = prompt.continued(begun).reader()
    assert joined([*reader.push(rest), *reader.finish()]) == parts


def test_chat_prompt_reads_the_answers_to_it() -> None:
    model, _ = toy_model(context_length=2048)
    tools = [{"type": "function", "function": {"name": "f"}}]
    prompt = model.chat_prompt([USER], tools=tools, tool_choice="f")
    assert prompt.ids == model.tokenize(prompt.text, add_bos=False, parse_special=True)
    assert '{"name": "f"}' in prompt.text
    assert prompt.skip_special
    reader = prompt.reader()
    parts = reader.push('<tool_call>{"name": "f", "arguments": {}}</tool_call>') + reader.finish()
    assert [type(part).__name__ for part in parts] == ["CallStart", "CallArguments"]
    grammar = prompt.grammar()
    assert grammar is not None
    assert "start: calls" in grammar
    assert (
        model.chat_prompt([USER], tools=tools, tool_choice="none").text
        == model.chat_prompt([USER]).text
    )
    with pytest.raises(InputError, match="does not list tools"):
        model.chat([USER], tools=tools)


def _template(calls: str) -> str:
    """Return a template in Hermes' format that lists tools; ``calls`` renders a message's calls."""
    return (
        "{% if tools %}{{ tools | tojson }} <tool_call>{% endif %}{% for m in messages %}"
        "{{ m.role }}: {{ m.content or '' }}" + calls + "\n{% endfor %}"
    )


EVERY = "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
FIRST = "{% if m.tool_calls %}<tool_call>{{ m.tool_calls[0].function | tojson }}{% endif %}"
REFUSED = (
    "{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}"
    "{% endif %}<tool_call>{{ m.tool_calls[0].function | tojson }}{% endif %}"
)


@pytest.mark.parametrize(
    ("calls", "given", "choice", "parallel"),
    [
        (EVERY, None, "auto", True), (EVERY, None, "required", True), (EVERY, None, "f", False),
        (EVERY, False, "auto", False), (EVERY, True, "f", False),
        (FIRST, None, "auto", False), (FIRST, None, "required", False), (FIRST, True, "auto", True),
        (REFUSED, None, "auto", False), (REFUSED, True, "required", True),
        ("", None, "required", False), ("", None, "auto", False), ("", True, "required", True),
    ],
)  # fmt: skip
def test_several_calls_are_allowed_where_the_template_writes_them(
    calls: str, given: bool | None, choice: str, parallel: bool
) -> None:
    """The rule is llama.cpp's supports_parallel_tool_calls; a named function is called once."""
    model, _ = toy_model(context_length=2048)
    prompt = model.chat_prompt(
        [USER],
        template=_template(calls),
        tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice=choice,
        parallel_tool_calls=given,
    )
    assert prompt.form.parallel == parallel
    reader = prompt.reader()
    said = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    parts = [*reader.push(said), *reader.push(said)]
    assert reader.complete != parallel
    assert len([*parts, *reader.finish()]) == (4 if parallel else 2)
