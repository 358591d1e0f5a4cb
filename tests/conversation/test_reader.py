from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversation.transcripts import CODER, HERMES, TOOLS, TRANSCRIPTS, Transcript
from tests.processor_time import within
from trinity.conversation import CallArguments, CallStart, Part, Reasoning, Text, form_of, parse
from trinity.conversation.dialects import DIALECTS
from trinity.conversation.prompt import Form
from trinity.conversation.scribe import joined

ROME = '{"name": "weather", "arguments": {"city": "Rome"}}'


def form(one: Transcript, **given: Any) -> Form:
    return form_of(one.template, tools=TOOLS, prompt=one.prompt, **given)


def read(form: Form, pieces: Sequence[str]) -> tuple[tuple[Part, ...], list[str]]:
    reader = form.reader()
    parts = [part for piece in pieces for part in reader.push(piece)]
    parts += reader.finish()
    assert reader.push("more") == reader.finish() == ()
    without_ids = (CallStart(p.index, "", p.name) if isinstance(p, CallStart) else p for p in parts)
    return joined(without_ids), reader.problems


def hermes(answer: str, **given: Any) -> tuple[tuple[Part, ...], list[str]]:
    return read(form_of(HERMES, tools=TOOLS, **given), [answer])


def meaning(parts: Sequence[Part]) -> tuple[list[tuple[str, Any]], str, str]:
    calls = [[part.name, ""] for part in parts if isinstance(part, CallStart)]
    for part in parts:
        if isinstance(part, CallArguments):
            calls[part.index][1] += part.text
    text = "".join(part.text for part in parts if isinstance(part, Text))
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
    return [(name, json.loads(arguments)) for name, arguments in calls], text, reasoning


@pytest.mark.parametrize("one", TRANSCRIPTS, ids=lambda one: one.name)
def test_transcripts_whole_and_cut_at_every_place(one: Transcript) -> None:
    wanted = form(one)
    assert wanted.dialect.name == one.form
    whole = read(wanted, [one.answer])
    assert meaning(whole[0]) == (one.calls, one.text, one.reasoning)
    for place in range(len(one.answer) + 1):
        assert read(wanted, [one.answer[:place], one.answer[place:]]) == whole
    assert read(wanted, list(one.answer)) == whole


@pytest.mark.parametrize("one", TRANSCRIPTS, ids=lambda one: one.name)
def test_answers_that_are_cut_short_raise_nothing(one: Transcript) -> None:
    wanted = form(one)
    for end in range(len(one.answer)):
        parts, _ = read(wanted, [one.answer[:end]])
        assert read(wanted, list(one.answer[:end]))[0] == parts
        started = [part.name for part in parts if isinstance(part, CallStart)]
        assert started == [name for name, _ in one.calls][: len(started)]


MARKS = sorted({mark for one in DIALECTS for mark in one.all_marks if mark})
PIECES = [*MARKS, "<think>", "</think>", ROME, '{"name": "get_time"', '"arguments": ', "{", "}",
          "[", "]", ",", ":", '"', "'", "\\", "\n", " ", "weather", "```json\n", "get_time",
          "<function=weather>", "<parameter=city>", "call:weather{", "<arg_key>", "a, b: c",
          "city", "3", "tru", "é", "<",
          "<|channel|>commentary to=functions.weather<|message|>", "call:",
          "functions.get_time:0"]  # fmt: skip


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([one.template for one in TRANSCRIPTS]),
    st.lists(st.sampled_from(PIECES), max_size=14),
    st.booleans(),
    st.data(),
)
def test_any_text_is_read_the_same_however_it_is_cut(
    template: str, pieces: list[str], inside: bool, data: st.DataObject
) -> None:
    answer = "".join(pieces)
    prompt = form_of(template).thinking.begin if inside else ""
    wanted = form_of(template, tools=TOOLS, prompt=prompt)
    whole = read(wanted, [answer])
    for name, arguments in meaning(whole[0])[0]:  # it reads their JSON
        assert name in ("weather", "get_time")
        assert isinstance(arguments, dict)
    places = data.draw(st.lists(st.integers(0, len(answer)), max_size=6).map(sorted))
    cuts = [answer[a:b] for a, b in zip([0, *places], [*places, len(answer)], strict=True)]
    assert read(wanted, cuts) == whole == read(wanted, list(answer))


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
))  # fmt: skip
def test_arguments_are_the_models_own_json(text: str, value: Any) -> None:
    arguments = json.dumps({"city": text, "more": value}, ensure_ascii=False)
    said = f'<tool_call>{{"name": "weather", "arguments": {arguments}}}</tool_call>'
    parts, problems = hermes(said)
    assert parts == (CallStart(0, "", "weather"), CallArguments(0, arguments))
    assert not problems


def test_text_comes_as_soon_as_it_is_certain() -> None:
    reader = form_of(HERMES, tools=TOOLS).reader()
    assert reader.push("Hello") == (Text("Hello"),)
    assert reader.push(" <tool") == ()
    assert reader.push("box>") == (Text(" <toolbox>"),)
    assert reader.push('<tool_call>{"name": "weather", "arguments": ') == ()
    assert reader.push('{"ci')[1:] == (CallArguments(0, "{"),)
    assert reader.push('ty": "Ro') == (CallArguments(0, '"city": "Ro'),)
    assert reader.called
    assert reader.push('me"}}</tool_call>') == (CallArguments(0, 'me"}'),)
    assert reader.finish() == ()


@pytest.mark.parametrize(
    ("inner", "problem"),
    [
        ('{"name": "nope", "arguments": {}}', "no tool 'nope'"),
        ('{"arguments": {}}', "is missing"),
        ('{"nome": "weather"}', "not a key of a call"),
        ("weather", "is missing"),
        ('{"name": "weather", "arguments": [1]}', "not a JSON object"),
        ('{"name": "weather", "arguments": "{"}', "not a JSON object"),
        ('{"name": "weather", "arguments": ' + "[" * 200 + "]" * 200 + "}", "nested more than"),
    ],
)
def test_what_is_no_call_is_text_and_says_why(inner: str, problem: str) -> None:
    answer = f"A <tool_call>{inner}</tool_call> B <tool_call>{ROME}</tool_call>"
    parts, problems = hermes(answer)
    assert parts[0] == Text(f"A <tool_call>{inner}</tool_call> B")
    assert parts[1] == CallStart(0, "", "weather")
    assert re.search(problem, problems[0])


def test_arguments_that_are_nested_too_deeply_end_there() -> None:
    deep = '{"city": "Rome", "tags": ' + "[" * 200 + "]" * 200 + "}"
    parts, problems = hermes(
        '<tool_call>{"name": "weather", "arguments": ' + deep + "}</tool_call>"
    )
    ((name, arguments),), text, _ = meaning(parts)
    assert (name, arguments["city"]) == ("weather", "Rome")
    assert text.startswith("[" * 70)
    assert re.search("nested more than", problems[0])


def test_a_last_brace_that_is_missing() -> None:
    said = f"<tool_call>{ROME[:-1]}\n</tool_call>\n<tool_call>{ROME}</tool_call>"
    parts, problems = hermes(said)
    assert meaning(parts) == ([("weather", {"city": "Rome"})] * 2, "", "")
    assert not problems


def test_line_feeds_within_json_strings_become_escapes() -> None:
    parts, _ = hermes('<tool_call>{"name": "weather", "arguments": {"city": "a\n\tb"}}')
    assert parts[1] == CallArguments(0, '{"city": "a\\n\\tb"}')


def test_only_tools_that_may_be_called() -> None:
    said = f"<tool_call>{ROME}</tool_call>"
    assert hermes(said, tool_choice="none")[0] == (Text(said),)
    assert hermes(said, tool_choice="get_time")[0] == (Text(said),)
    assert hermes(said, tool_choice="weather")[0][0] == CallStart(0, "", "weather")


def test_one_call_where_no_more_are_allowed() -> None:
    reader = form_of(HERMES, tools=TOOLS, parallel=False).reader()
    parts = reader.push(f"<tool_call>{ROME}</tool_call><tool_call>{ROME}</tool_call> x")
    assert len(parts) == 2
    assert reader.complete
    assert reader.finish() == ()
    assert hermes(f"<tool_call>[{ROME}, {ROME}]</tool_call>", parallel=False)[0] == joined(
        (CallStart(0, "", "weather"), CallArguments(0, '{"city": "Rome"}'))
    )


def test_ids_are_unique_and_of_the_templates_kind() -> None:
    for template, pattern in ((HERMES, r"call_\w{24}"), ("[TOOL_CALLS]", r"[a-zA-Z0-9]{9}")):
        mark = template.partition(">")[0] + ">" if "<" in template else template
        answer = f"{mark}{ROME}" if "<" in mark else f"{mark}[{ROME},{ROME}]"
        ids = [
            part.id
            for _ in range(40)
            for part in parse(answer, template, tools=TOOLS)
            if isinstance(part, CallStart)
        ]
        assert len(set(ids)) == len(ids) >= 40
        assert all(re.fullmatch(pattern, one) for one in ids)


def test_think_marks_within_a_text_are_text() -> None:
    said = "Write <think> and </think> around it."
    assert hermes(said)[0] == (Text(said),)


def test_reasoning_that_does_not_end() -> None:
    assert hermes("<think>\nOn and on\n")[0] == (Reasoning("On and on"),)


def test_a_long_answer_takes_linear_time() -> None:
    reader = form_of(HERMES, tools=TOOLS).reader()
    text = "".join(
        part.text for _ in range(4000) for part in reader.push("word < ") if isinstance(part, Text)
    )
    assert text.count("word") == 4000
    assert len(reader._reading.cursor.text) < 10_000


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "piece",
    [
        "<function=",
        "<tool_call>",
        '{"function": ',
        '["',
        '",',
        ",a",
        "a, ",
        "'a ",
        "\\",
        "```",
        "{a:",
    ],
)
@pytest.mark.parametrize("opening", ["", "<tool_call>\n<function=weather>\n{", '"city": "'])
def test_repeated_pieces_take_linear_time_and_no_deep_stack(opening: str, piece: str) -> None:
    answer = f"<tool_call>\n<function=weather>\n{{{opening}" + piece * 3000
    form = form_of(CODER, tools=TOOLS)

    def test() -> None:
        whole = read(form, [answer])
        meaning(whole[0])
        assert read(form, list(answer)) == whole

    within(5.0, test)
