"""Calls that are JSON objects with the tool's name and its arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.json_text import collect_value, read_key, read_string
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_NAMES = ("name", "tool_name", "function_name", "tool")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_DEEPEST = 2
NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_KNOWN = (*_NAMES, *_ARGUMENTS, "id", "type", "tool_call_id", "function", "function_call")


class JsonCalls(Dialect):
    """{"name": ..., "arguments": {...}} between delimiters; several in a list or in sequence.

    ``closes`` may end them; models omit them at the end of a response.
    """

    closes: tuple[str, ...] = ()
    arguments_key = "arguments"
    opening, closing = "", ""  # around a call in a grammar: delimiters or text
    inner = ""  # white space within the delimiters
    between = "\n"  # text between calls
    in_list = False  # in a grammar, the calls are a list between the delimiters

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All delimiters, including those that close."""
        return (*self.marks, *self.closes)

    @property
    def closers(self) -> tuple[str, ...]:
        """The declared closing delimiters."""
        return self.closes

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse objects, or a list, possibly in a code fence, and a possible closing delimiter."""
        cursor = reading.cursor
        yield from cursor.white()
        yield from reading.fence()
        character = yield from cursor.white()
        if character not in ("{", "[") and not mark:
            raise NoCallError("")
        yield from read_json(reading, self.closes)
        yield from reading.past(self.closes, self.marks)

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return objects in sequence, each between delimiters, or one list."""
        body = self.body
        if self.in_list:
            more = ' (", " call)*' if parallel else ""
            calls = f'calls: {self.open_in(mark)} "[" call{more} "]"{self.close_in(mark)}\n'
            return calls + lark.for_each(tools, "call", body)
        rule = f"one: {self.open_in(mark)} call{self.close_in(mark)}\n"
        between = lark.text(self.between) if self.between else ""
        return lark.repeated("one", between, parallel) + rule + lark.for_each(tools, "call", body)

    def body(self, tool: Tool) -> str:
        """Return the object of a call."""
        head = f'{{"name": {json.dumps(tool.name)}, {json.dumps(self.arguments_key)}: '
        return f'{lark.text(head)} {{arguments}} "}}"'

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write calls as models of this format do."""
        key = self.arguments_key
        texts = [
            json.dumps({"name": function["name"], key: function["arguments"]}, ensure_ascii=False)
            for function in functions
        ]
        if self.in_list:
            return f"{self.opening}[{', '.join(texts)}]{self.closing}"
        around = self.opening + self.inner, self.inner + self.closing
        return self.between.join(text.join(around) for text in texts)

    def open_in(self, mark: Mark) -> str:
        """Return the rule that opens a call."""
        if not self.opening:
            return ""
        return f"{mark(self.opening)} {lark.text(self.inner)}" if self.inner else mark(self.opening)

    def close_in(self, mark: Mark) -> str:
        """Return the rule that closes a call."""
        if not self.closing:
            return ""
        inner = f" {lark.text(self.inner)}" if self.inner else ""
        return f"{inner} {mark(self.closing)}"


def read_json(reading: Reading, ends: tuple[str, ...] = ()) -> Steps[None]:
    """Parse calls: a JSON list, JSON objects in sequence, or a name and its arguments.

    Raises NoCallError.
    """
    cursor = reading.cursor
    character = yield from cursor.white()
    if character == "[":
        yield from read_list(reading, ends)
        return
    if character != "{":
        name = yield from cursor.matching(NAME_CHARACTERS)
        if name not in reading.tools:
            raise reading.unknown(name, at_end=not (yield from cursor.peek()))
        character = yield from cursor.white()
        if character not in ("{", "`"):
            raise NoCallError("a JSON object is missing", at_end=not character)
        yield from reading.call(name, ends)
        return
    yield from read_object(reading, ends)
    while not reading.complete:
        begin = cursor.at
        yield from cursor.matching(" \t\r\n,;")
        if (yield from cursor.peek()) != "{":
            cursor.at = begin
            break
        yield from read_object(reading, ends)


def read_list(reading: Reading, ends: tuple[str, ...] = ()) -> Steps[None]:
    """Parse calls in a JSON list. Raises NoCallError."""
    cursor = reading.cursor
    yield from cursor.expect("[")
    if (yield from cursor.white()) == "]":
        raise NoCallError("the list of calls is empty")
    yield from read_items(reading, lambda: read_object(reading, ends))


def read_items(reading: Reading, read: Callable[[], Steps[None]]) -> Steps[None]:
    """Parse the calls of a list, each with ``read``, and the bracket after them, if any."""
    cursor = reading.cursor
    while True:
        yield from read()
        if reading.complete or (yield from cursor.white()) not in (",", "{"):
            break
        yield from cursor.skip(",")
        if (yield from cursor.white()) == "]":
            break
    yield from cursor.skip("]")
    reading.commit()


def read_object(reading: Reading, ends: tuple[str, ...] = (), depth: int = 0) -> Steps[None]:
    """Parse a call as a JSON object. Raises NoCallError as soon as it cannot be one.

    Arguments may come before the name, or be keys next to it. They may be JSON in a string.
    """
    cursor = reading.cursor
    yield from cursor.white()
    yield from cursor.expect("{")
    name, waiting, called = "", "", False
    beside: dict[str, str] = {}
    while True:
        character = yield from cursor.white()
        if not character or character in "{[}],":
            raise NoCallError("no key of a call follows", at_end=not character and not waiting)
        key = str(json.loads((yield from read_key(cursor))))
        character = yield from cursor.white()
        if character not in (":", "="):
            raise NoCallError("':' is missing", at_end=not character and not waiting)
        cursor.at += 1
        character = yield from cursor.white()
        if key not in _KNOWN and not called and not name:
            raise NoCallError(f"{key[:80]!r} is not a key of a call", at_end=not character)
        if key in ("function", "function_call") and character == "{":
            if depth == _DEEPEST:
                raise NoCallError("a function is in a function")
            yield from read_object(reading, ends, depth + 1)
            called = True
        elif not called and (key in _NAMES or (key == "function" and character in ("'", '"'))):
            name = yield from read_string(cursor)
            reading.tool(name)
            if waiting:
                reading.call_with(name, waiting)
                called = True
        elif key in _ARGUMENTS and not called:
            if name and character == "{":
                yield from reading.arguments(name, ends)
                called = True
            else:
                waiting = yield from reading.collected(name or "the call", ends)
                if name:
                    reading.call_with(name, waiting)
                    called = True
        else:
            value = yield from collect_value(cursor, ends)
            if name and not called and key not in _KNOWN:
                beside[key] = value
        character = yield from cursor.white()
        if called and character != ",":  # small models forget the last brace
            cursor.at += character == "}"
            reading.commit()
            return
        if character in ("}", "]") or (name and not called and (yield from reading.at(ends))):
            if not name:
                raise NoCallError("the name of the tool is missing")
            cursor.at += character == "}"
            pairs = (f"{json.dumps(key)}: {value}" for key, value in beside.items())
            reading.call_with(name, "{" + ", ".join(pairs) + "}")
            return
        if character == ",":
            cursor.at += 1
        elif not character:
            raise NoCallError("the text ends within a call", at_end=not waiting)
