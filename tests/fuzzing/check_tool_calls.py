"""Render tool calls with chat templates and parse them from the rendered text.

    python tests/fuzzing/check_tool_calls.py FOLDER_OR_SOURCE_PACKAGE

Takes the *.jinja files that compare_templates.py takes. Each template renders a conversation that
ends with calls; what it writes more than for the same conversation without them must give the same
calls, text and reasoning, whole and cut at every place. Where a template lists no tools, or is of
no known form, the general form is used. Ends with status 1 where something differs.

Llama 3's templates refuse a message with several calls ("This model only supports single tool-calls
at once!"), so those models write each call in a turn of its own. There each turn is a response, and
the message with all calls must be rendered as these turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compare_templates import called, said, templates

from trinity.conversation.parallel import renders_all_calls
from trinity.conversation.parts import CallArguments, CallStart, Part, Reasoning, Text
from trinity.conversation.prompt import Form, form_of
from trinity.conversation.rendering import render_conversation
from trinity.conversation.scribe import joined
from trinity.conversation.traits import traits_of
from trinity.errors import TrinityError
from trinity.formats.defaults import ChatTemplate

ARGUMENTS: list[dict[str, Any]] = [
    {"city": 'Zürich "x" \\ {y}\n<b>', "days": 3},
    {},
    {"tags": ["a", "b,}", ""], "exact": True, "ratio": -2.5, "more": {"k": [1, None, {"z": "]"}]}},
]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Says what is",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name"},
                    "days": {"type": "integer", "description": "How many"},
                    "exact": {"type": "boolean", "description": "Whether"},
                    "ratio": {"type": "number", "description": "How much"},
                    "tags": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Some",
                    },
                    "more": {"type": "object", "description": "Else"},
                },
                "required": [],
            },
        },
    }
    for name in ("weather", "get_time")
]


def read(form: Form, pieces: Sequence[str]) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Parse a text that arrives in parts; return the parts without ids, and the reader's state."""
    reader = form.reader()
    parts = [part for piece in pieces for part in reader.push(piece)]
    parts += reader.finish()
    kept = (CallStart(p.index, "", p.name) if isinstance(p, CallStart) else p for p in parts)
    return joined(kept), tuple(reader.problems)


def expected(content: str, thought: str, calls: Sequence[tuple[str, Any]]) -> list[object]:
    parts: list[object] = [Reasoning(thought)] if thought else []
    parts += [Text(content)] if content else []
    return parts + list(calls)


def found(parts: Sequence[Part]) -> list[object]:
    """Return a call as its name and arguments, and other parts as they are."""
    out: list[object] = []
    for part in parts:
        if isinstance(part, CallStart):
            out.append((part.name, None))
        elif isinstance(part, CallArguments):
            out[-1] = (out[-1][0], json.loads(part.text))  # type: ignore[index]
        else:
            out.append(part)
    return out


def render(template: ChatTemplate, messages: list[Any], prompt: bool) -> Any:
    return render_conversation(
        (template,), messages, tools=TOOLS, general=True,
        bos_token="<s>", eos_token="</s>", add_generation_prompt=prompt,
    )  # fmt: skip


def check(source: str) -> Iterator[tuple[str, str]]:
    """Yield each case and its result."""
    template = ChatTemplate(source)
    ask = [said("user", "What is it like?")]
    try:
        prompt = render(template, ask, True)
    except TrinityError as error:
        yield "prompt", f"not rendered: {str(error)[:100]}"
        return
    form = form_of(source, tools=TOOLS, dialect=prompt.dialect)
    # As render_conversation decides it; other templates without calls have them as text.
    one_per_message = traits_of(template).calls and not renders_all_calls(template)
    for several in (False, True):
        for content in ("", "Let me see."):
            for thought in ("", "They ask\nfor it."):
                calls = [("weather", ARGUMENTS[0])]
                if several:
                    calls += [("get_time", ARGUMENTS[1]), ("weather", ARGUMENTS[2])]
                case = f"{len(calls)} calls, text {bool(content)}, reasoning {bool(thought)}"
                wanted = (content, thought, calls)
                if several and one_per_message:
                    yield case, outcome_of_turns(template, form, ask, wanted)
                else:
                    message = calling(*wanted)
                    yield case, outcome(template, form, ask, prompt, message, wanted)


def calling(content: str, thought: str, calls: Sequence[tuple[str, Any]], first: int = 0) -> Any:
    """Return the message with these calls; ``first`` is the number in the first call's id."""
    made = [called(name, given, id=f"call0000{i}") for i, (name, given) in enumerate(calls, first)]
    message = said("assistant", content, tool_calls=made)
    if thought:
        message["reasoning_content"] = thought
    return message


def outcome_of_turns(template: ChatTemplate, form: Form, ask: list[Any], wanted: Any) -> str:
    """Check each call as a response of its own, and the message that has all of them."""
    content, thought, calls = wanted
    history, results, found = list(ask), [], Counter[str]()
    for number, call in enumerate(calls):
        turn = (content, thought, [call]) if number == 0 else ("", "", [call])
        message = calling(*turn, first=number)
        try:
            prompt = render(template, history, True)
        except TrinityError as error:
            return f"not rendered: {str(error)[:100]}"
        found[outcome(template, form, history, prompt, message, turn)] += 1
        results.append(said("tool", "4", name=call[0], tool_call_id=f"call0000{number}"))
        history += [message, results[-1]]
    texts = (
        render(template, one, False).text for one in (history, [*ask, calling(*wanted), *results])
    )
    if len(set(texts)) > 1:
        return "OTHER CALLS: a message with all calls is not its turns"
    return max(found, key=lambda one: (one != "the same", ":" in one))


def outcome(
    template: ChatTemplate, form: Form, ask: list[Any], prompt: Any, message: Any, wanted: Any
) -> str:
    try:
        text = render(template, [*ask, message], False).text
    except TrinityError as error:
        return f"not rendered: {str(error)[:100]}"
    same = (a == b for a, b in zip(text, prompt.text, strict=False))
    begin = sum(1 for _ in itertools.takewhile(bool, same))
    tag = max(text.rfind("<", 0, begin), text.rfind("[", 0, begin))
    if tag > max(text.rfind(">", 0, begin), text.rfind("]", 0, begin)):
        begin = tag  # not within a mark
    if form.thinking.is_open(prompt.text[:begin]) and form.thinking.end in text[begin:]:
        form = form_of(template.text, tools=TOOLS, dialect=form.dialect, prompt=prompt.text[:begin])
    answer = text[begin:]
    parts, problems = read(form, [answer])
    for place in range(len(answer)):
        if read(form, [answer[:place], answer[place:]]) != (parts, problems):
            return f"differs where it is cut at {place}: {answer!r}"
    if read(form, list(answer)) != (parts, problems):
        return f"differs character by character: {answer!r}"
    content, thought, calls = wanted
    got = found(parts)
    if isinstance(got[-1], Text):  # what ends the turn, which the engine leaves out
        del got[-1]
    if any(name not in answer for name, _ in calls) or answer.count("weather") < len(calls) - 1:
        return "the template leaves out calls"
    if not [one for one in got if isinstance(one, tuple)]:
        return f"NO CALLS: {answer!r} gives {parts}"
    if [one for one in got if isinstance(one, tuple)] != calls:
        return f"OTHER CALLS: {answer!r} gives {got}"
    whole = expected(content, thought, calls)
    if got == whole:
        return "the same"
    if all(one in whole for one in got):
        return "the template leaves out text or reasoning"
    other = [one for one in got if one not in whole]
    return f"the same calls, other text: {answer[:160]!r} gives {other}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("where", type=Path, help="a folder or a .tar.gz with *.jinja files")
    parser.add_argument("--only", default="", help="a part of the file's name")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    for name, source in templates(arguments.where):
        if arguments.only not in name:
            continue
        results = list(check(source))
        form = form_of(source).dialect.name
        counts = Counter(result.partition(":")[0] for _, result in results)
        total.update(counts)
        print(f"{name:52} {form:16} " + ", ".join(f"{n} {r}" for r, n in sorted(counts.items())))
        for case, result in results:
            if ":" in result:
                print(f"    {case}: {result}")
    print(dict(total))
    return 0 if not any("CALLS" in one or "differs" in one for one in total) else 1


if __name__ == "__main__":
    sys.exit(main())
