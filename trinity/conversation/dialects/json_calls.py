"""Calls that are JSON objects with the tool's name and its arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.json_text import collect_value, read_string, read_value
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_KNOWN = (*_NAMES, *_ARGUMENTS, "id", "type", "tool_call_id", "function")


class JsonCalls(Dialect):
    """{"name": ..., "arguments": {...}} between marks, several in a list or one after the other.

    ``closes`` may end them; models leave them out at an answer's end.
    """

    closes: tuple[str, ...] = ()
    arguments_key = "arguments"
    opening, closing = "", ""  # around a call in a grammar, marks or texts
    inner = ""  # white space within the marks
    in_list = False  # in a grammar: the calls are a list between the marks

    @property
    def all_marks(self) -> tuple[str, ...]:
        """Those that close, too."""
        return (*self.marks, *self.closes)

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Objects, or a list of them, then perhaps a closing mark."""
        cursor = reading.cursor
        if (yield from cursor.white()) == "[":
            yield from read_list(reading)
        else:
            yield from read_object(reading)
            while (yield from cursor.white()) == "{":
                yield from read_object(reading)
        yield from cursor.white()
        for close in self.closes:
            if (yield from cursor.skip(close)):
                break
        reading.commit()

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """One object after the other, each between marks, or one list."""
        key = json.dumps(self.arguments_key)

        def body(tool: Tool) -> str:
            head = f'{{"name": {json.dumps(tool.name)}, {key}: '
            return f'{lark.text(head)} {{arguments}} "}}"'

        if self.in_list:
            more = ' (", " call)*' if parallel else ""
            calls = f'calls: {self.open_in(mark)} "[" call{more} "]"{self.close_in(mark)}\n'
            return calls + lark.for_each(tools, "call", body)
        one = f"one: {self.open_in(mark)} call{self.close_in(mark)}\n"
        return lark.repeated("one", '"\\n"', parallel) + one + lark.for_each(tools, "call", body)

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """As models of this form write them."""
        key = self.arguments_key
        texts = [
            json.dumps({"name": one["name"], key: one["arguments"]}, ensure_ascii=False)
            for one in functions
        ]
        if self.in_list:
            return f"{self.opening}[{', '.join(texts)}]{self.closing}"
        inner = self.inner
        return "\n".join(f"{self.opening}{inner}{one}{inner}{self.closing}" for one in texts)

    def open_in(self, mark: Mark) -> str:
        """What opens a call, in a grammar."""
        if not self.opening:
            return ""
        return f"{mark(self.opening)} {lark.text(self.inner)}" if self.inner else mark(self.opening)

    def close_in(self, mark: Mark) -> str:
        """What closes a call, in a grammar."""
        if not self.closing:
            return ""
        inner = f" {lark.text(self.inner)}" if self.inner else ""
        return f"{inner} {mark(self.closing)}"


def read_list(reading: Reading) -> Steps[None]:
    """Calls in a JSON list, which is next. Raises NoCallError."""
    cursor = reading.cursor
    yield from cursor.expect("[")
    while True:
        if (yield from cursor.white()) == "]" and reading.scribe.calls:
            break
        yield from read_object(reading)
        if (yield from cursor.white()) != ",":
            break
        cursor.at += 1
    yield from cursor.expect("]")
    reading.commit()


def read_object(reading: Reading) -> Steps[None]:
    """A call as a JSON object. Raises NoCallError as soon as it is none.

    Arguments that come before the name wait for it. Arguments may be JSON in a string.
    """
    cursor = reading.cursor
    yield from cursor.white()
    yield from cursor.expect("{")
    name, waiting, called = "", "", False
    while True:
        yield from cursor.white()
        key = yield from read_string(cursor)
        yield from cursor.white()
        yield from cursor.expect(":")
        found = yield from cursor.white()
        if key not in _KNOWN and not called and not name:
            raise NoCallError(f"{key[:80]!r} is no key of a call")
        if key == "function" and found == "{":
            yield from read_object(reading)
            called = True
        elif key in _NAMES or (key == "function" and found == '"'):
            name = yield from read_string(cursor)
            reading.tool(name)
            if waiting and not called:
                reading.call_with(name, waiting)
                called = True
        elif key in _ARGUMENTS and not called:
            if name and found == "{":
                yield from reading.call(name)
                called = True
            else:
                waiting = yield from _arguments(reading, found)
                if name:
                    reading.call_with(name, waiting)
                    called = True
        else:
            yield from read_value(cursor, _ignore)
        found = yield from cursor.white()
        if found == "}" and not called and name:
            cursor.at += 1
            reading.call_with(name, "{}")
            return
        if called and found != ",":  # small models forget the last brace
            cursor.at += found == "}"
            reading.commit()
            return
        yield from cursor.expect(",")


def _arguments(reading: Reading, found: str) -> Steps[str]:
    """The text of arguments that are an object, or an object in a string, or null."""
    text = yield from collect_value(reading.cursor)
    value = json.loads(text)
    if isinstance(value, str):
        text = value.strip() or "{}"
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise NoCallError("the arguments are text that is no JSON") from None
    if value is None:
        return "{}"
    if not isinstance(value, dict):
        raise NoCallError("the arguments are no JSON object")
    return text


def _ignore(text: str) -> None:
    pass
