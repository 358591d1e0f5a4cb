"""Parsing of tool calls in every format: correct and slightly wrong, whole, split and cut off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conversation.test_reader import meaning, read
from tests.conversation.transcripts import TOOLS
from tests.conversation.writers import JSON_WRITERS, WRITERS, Writer, dumped
from trinity.conversation import CallStart, form_of
from trinity.conversation.dialects import DIALECTS, GENERAL
from trinity.conversation.prompt import Form

Call = tuple[str, Mapping[str, Any]]
ROME: Call = ("weather", {"city": "Rome", "days": 3})
TIME: Call = ("get_time", {})


@dataclass(frozen=True)
class Crafted:
    """A response and its parsed meaning."""

    answer: str
    calls: list[Call] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    prompt: str = ""

    def form(self, writer: Writer) -> Form:
        return form_of(writer.template, tools=TOOLS, prompt=self.prompt, **self.given)


def one(city: str) -> list[Call]:
    return [("weather", {"city": city})]


Make = Callable[[Writer], Crafted]
RIGHT: dict[str, Make] = {
    "nothing": lambda w: Crafted(""),
    "text": lambda w: Crafted(w.said("Just text."), text="Just text."),
    "lines": lambda w: Crafted(w.said('a < b\n\n- {c}\n[d] "e"'), text='a < b\n\n- {c}\n[d] "e"'),
    "letters": lambda w: Crafted(w.said("Zürich 東京 🦓 e\u0301"), text="Zürich 東京 🦓 e\u0301"),
    "a name of a tool": lambda w: Crafted(w.said("Use weather now"), text="Use weather now"),
    "an object": lambda w: Crafted(w.said('{"city": "Rome"}'), text='{"city": "Rome"}'),
    "a list": lambda w: Crafted(w.said("[1, 2]"), text="[1, 2]"),
    "a fence": lambda w: Crafted(w.said("```json\n{}\n```"), text="```json\n{}\n```"),
    "code": lambda w: Crafted(w.said("```\nx = {'a': 1}\n```"), text="```\nx = {'a': 1}\n```"),
    "reasoning": lambda w: Crafted(w.thought("Hm, so."), reasoning="Hm, so."),
    "reasoning, text": lambda w: Crafted(
        w.thought("Hm.") + w.said("Yes."), text="Yes.", reasoning="Hm."
    ),
    "a call": lambda w: Crafted(w.calls([ROME]), [ROME]),
    "no arguments": lambda w: Crafted(w.calls([TIME]), [TIME]),
    "two calls": lambda w: Crafted(w.calls([ROME, TIME]), [ROME, TIME]),
    "the same call twice": lambda w: Crafted(w.calls([ROME, ROME]), [ROME, ROME]),
    "reasoning, a call": lambda w: Crafted(
        w.thought("Hm.") + w.calls([ROME]), [ROME], reasoning="Hm."
    ),
    "text, a call": lambda w: Crafted(w.said("I look.\n") + w.calls([ROME]), [ROME], "I look."),
    "all": lambda w: Crafted(
        w.thought("Hm.") + w.said("I look.") + w.calls([ROME, TIME]), [ROME, TIME], "I look.", "Hm."
    ),
    "white space": lambda w: Crafted(f"\n {w.calls([ROME])}\n\n ", [ROME]),
    "quotes": lambda w: Crafted(w.calls(one("\"x\" 'y'")), one("\"x\" 'y'")),
    "backslashes": lambda w: Crafted(w.calls(one("C:\\new\\table")), one("C:\\new\\table")),
    "brackets": lambda w: Crafted(w.calls(one("}]){[(")), one("}]){[(")),
    "tags": lambda w: Crafted(w.calls(one("<b>x</b> < > &amp;")), one("<b>x</b> < > &amp;")),
    "text in lines": lambda w: Crafted(w.calls(one("a\n  b\n\nc")), one("a\n  b\n\nc")),
    "text in letters": lambda w: Crafted(w.calls(one("東京 🦓 é")), one("東京 🦓 é")),
    "text like a number": lambda w: Crafted(w.calls(one("00123")), one("00123")),
    "text like a word": lambda w: Crafted(w.calls(one("true")), one("true")),
    "text with commas": lambda w: Crafted(w.calls(one("a, b: c, d")), one("a, b: c, d")),
    "no text": lambda w: Crafted(w.calls(one("")), one("")),
    "a negative number": lambda w: Crafted(
        w.calls([("weather", {"days": -12, "city": "x"})]),
        [("weather", {"days": -12, "city": "x"})],
    ),
    "true and false": lambda w: Crafted(
        w.calls([("weather", {"exact": True}), ("weather", {"exact": False})]),
        [("weather", {"exact": True}), ("weather", {"exact": False})],
    ),
    "a list of texts": lambda w: Crafted(
        w.calls([("weather", {"tags": ["a,", "]}", ""]})]),
        [("weather", {"tags": ["a,", "]}", ""]})],
    ),
    "an empty list": lambda w: Crafted(
        w.calls([("weather", {"tags": []})]), [("weather", {"tags": []})]
    ),
    "arguments nobody declared": lambda w: Crafted(
        w.calls([("get_time", {"zone": {"hours": [1, 2.5], "name": "CET"}})]),
        [("get_time", {"zone": {"hours": [1, 2.5], "name": "CET"}})],
    ),
    "three calls": lambda w: Crafted(w.calls([TIME, ROME, TIME]), [TIME, ROME, TIME]),
    "lists in lists": lambda w: Crafted(
        w.calls([("get_time", {"zone": [[1, [2]], [], [True, "x"]]})]),
        [("get_time", {"zone": [[1, [2]], [], [True, "x"]]})],
    ),
    "zero and a large number": lambda w: Crafted(
        w.calls([("weather", {"days": 0}), ("weather", {"days": 10**18})]),
        [("weather", {"days": 0}), ("weather", {"days": 10**18})],
    ),
    "a long text": lambda w: Crafted(w.calls(one("ab, " * 60 + "c")), one("ab, " * 60 + "c")),
    "marks of reasoning in a value": lambda w: Crafted(
        w.calls(one("<think>x</think> y")), one("<think>x</think> y")
    ),
    "marks of templates": lambda w: Crafted(
        w.calls(one("{{ x }} {% y %} ${z} 5% #a")), one("{{ x }} {% y %} ${z} 5% #a")
    ),
    "null": lambda w: Crafted(
        w.calls([("get_time", {"zone": None})]), [("get_time", {"zone": None})]
    ),
    "another tool": lambda w: Crafted(
        w.calls([("nope", {})]), text=w.calls([("nope", {})]).strip().removesuffix("<|call|>")
    ),
    "no tools": lambda w: Crafted(
        w.calls([ROME]),
        text=w.calls([ROME]).strip().removesuffix("<|call|>"),
        given={"tool_choice": "none"},
    ),
    "one call allowed": lambda w: Crafted(w.calls([ROME, TIME]), [ROME], given={"parallel": False}),
}
# A call in reasoning, marks that are cut or come twice.
OFF: dict[str, Make] = {
    "a call ends open reasoning": lambda w: Crafted(
        "Hm.\n" + w.calls([ROME]), [ROME], reasoning="Hm.", prompt=w.thinks[0]
    ),
    "a call before the end of reasoning": lambda w: Crafted(
        f"Hm.{w.calls([ROME])}\n{w.thinks[1]}\n\nDone.", [ROME], "Done.", "Hm.", prompt=w.thinks[0]
    ),
    "a call within marks of reasoning": lambda w: Crafted(
        w.thought("Hm.\n" + w.calls([ROME])), [ROME], reasoning="Hm."
    ),
    "reasoning opened twice": lambda w: Crafted(
        w.thought("Hm.") + w.calls([ROME]), [ROME], reasoning="Hm.", prompt=w.thinks[0]
    ),
    "reasoning closed twice": lambda w: Crafted(
        w.thought("Hm.") + w.thinks[1] + w.calls([ROME]), [ROME], reasoning="Hm."
    ),
    "the end comes twice": lambda w: Crafted(w.calls([ROME]) + w.last, [ROME]),
    "the end of all is missing": lambda w: Crafted(w.calls([ROME]).removesuffix(w.last), [ROME]),
    "a second call that breaks off": lambda w: Crafted(
        w.calls([ROME, TIME])[: len(w.first + w.call(*_text(w, ROME)) + w.between) + 4], [ROME]
    ),
    "a forced call that breaks off": lambda w: Crafted(
        w.calls([TIME]).partition("get_time")[0] + "get_ti", given={"tool_choice": "required"}
    ),
}


def _text(writer: Writer, call: Call) -> tuple[str, str]:
    return call[0], writer.values(call[1])


# Arguments that are no JSON, or JSON in another place.
JSON_SLIPS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "a comma too many": ('{"city": "Rome", "days": 3,}', ROME[1]),
    "a comma too few": ('{"city": "Rome" "days": 3}', ROME[1]),
    "lines without commas": ('{\n"city": "Rome"\n"days": 3\n}', ROME[1]),
    "semicolons": ('{"city": "Rome"; "days": 3}', ROME[1]),
    "Python's quotes": ("{'city': 'Rome', 'days': 3}", ROME[1]),
    "Python's words": ('{"exact": True, "tags": None}', {"exact": True, "tags": None}),
    "keys without quotes": ('{city: "Rome", days: 3}', ROME[1]),
    "a text without quotes": ('{"city": New York, "days": 3}', {"city": "New York", "days": 3}),
    "a text without quotes, with a comma": ('{"city": Rome, Italy}', {"city": "Rome, Italy"}),
    "quotes within a text": ('{"city": "the "eternal" one"}', {"city": 'the "eternal" one'}),
    "quotes and a comma": ('{"city": "say "a", then b"}', {"city": 'say "a", then b'}),
    "an apostrophe": ("{'city': 'L'Aquila'}", {"city": "L'Aquila"}),
    "a line feed in a text": ('{"city": "a\nb\tc"}', {"city": "a\nb\tc"}),
    "an escape that JSON lacks": (r'{"city": "\d+ \'x\' C:\x"}', {"city": r"\d+ 'x' C:\x"}),
    "an escape that is short": (r'{"city": "\u12 x"}', {"city": r"\u12 x"}),
    "a pair of surrogates": (r'{"city": "\ud83e\udd93"}', {"city": "🦓"}),
    "half a pair": (r'{"city": "\ud83e x \udd93"}', {"city": "\ufffd x \ufffd"}),
    "equals signs": ('{"city"="Rome", "days"=>3}', ROME[1]),
    "a number JSON lacks": ('{"days": 3.}', {"days": 3.0}),
    "a key without a value": ('{"city": "Rome", "days"}', {"city": "Rome", "days": None}),
    "JSON in a string": (dumped(dumped(ROME[1])), ROME[1]),
    "loose JSON in a string": (dumped("{'city': 'Rome', 'days': 3,}"), ROME[1]),
    "null": ("null", {}),
    "a list that does not end": ('{"tags": ["a", "b"}', {"tags": ["a", "b"]}),
}
JSON_CASES: dict[str, Make] = {
    name: lambda w, text=text, value=value: Crafted(w.spoilt("weather", text), [("weather", value)])
    for name, (text, value) in JSON_SLIPS.items()
}  # type: ignore[misc]
CASES: list[Any] = [
    pytest.param(writer, make, id=f"{writer.form}: {name}")
    for writer in WRITERS
    for name, make in (
        *RIGHT.items(),
        *OFF.items(),
        *(JSON_CASES.items() if writer in JSON_WRITERS else ()),
    )
]


def check(writer: Writer, crafted: Crafted) -> None:
    """Compare the meaning, with the text split; cut off, it still is JSON or text.

    Every third place is tried, from one that depends on the writer.
    """
    answer, form = crafted.answer, crafted.form(writer)
    assert form.dialect.name == writer.form
    whole = read(form, [answer])
    assert meaning(whole[0]) == (
        [(name, dict(arguments)) for name, arguments in crafted.calls],
        crafted.text,
        crafted.reasoning,
    )
    assert read(form, list(answer)) == whole
    for place in range(WRITERS.index(writer) % 3, len(answer) + 1, 3):
        assert read(form, [answer[:place], answer[place:]]) == whole
        parts, _ = read(form, [answer[:place]])
        calls, _, _ = meaning(parts)  # it reads the JSON of the arguments
        names = [name for name, _ in crafted.calls]
        assert [name for name, _ in calls] == names[: len(calls)]
        if form.forced:
            assert all(isinstance(part, CallStart) or part for part in parts)


@pytest.mark.few(30)
@pytest.mark.parametrize(("writer", "make"), CASES)
def test_what_an_answer_means(writer: Writer, make: Make) -> None:
    check(writer, make(writer))


def test_every_form_has_a_writer() -> None:
    assert {writer.form for writer in WRITERS} == {one.name for one in (*DIALECTS, GENERAL)}
