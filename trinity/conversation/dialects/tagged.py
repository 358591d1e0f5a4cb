"""Calls with a tag for each argument."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.dialects.json_calls import read_json
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.values import as_json, escaped, is_cut, types_of
from trinity.grammar.schema import closed_schema


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags around calls, functions and arguments."""

    call: tuple[str, str]  # opens and closes calls
    function: tuple[str, str]  # around a function's name
    function_end: str  # after its arguments
    key: tuple[str, str]  # around an argument's name
    value_end: str  # after an argument's value
    value: str = ""  # before an argument's value, if it has a tag
    break_lines: bool = False  # whether values have lines of their own


class Tagged(Dialect):
    """Parse arguments by the tool's schema: text if it requires a string, otherwise JSON."""

    tags: Tags

    @property
    def marks(self) -> tuple[str, ...]:  # type: ignore[override]
        """Delimiters that open calls; models sometimes omit the first."""
        tags = self.tags
        return (tags.call[0], tags.function[0]) if tags.function[0] else (tags.call[0],)

    @property
    def closers(self) -> tuple[str, ...]:
        """The ends of functions and of calls."""
        return tuple(dict.fromkeys((self.tags.function_end, self.tags.call[1])))

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All delimiters; any of them may be a token."""
        tags = self.tags
        around = (*tags.call, *tags.function, tags.function_end, *tags.key, tags.value)
        return tuple(mark for mark in (*around, tags.value_end) if mark)

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse functions up to the closing delimiter, or calls as JSON."""
        cursor, tags = reading.cursor, self.tags
        if mark == tags.call[0]:
            yield from cursor.white()
            yield from reading.fence()
            if (yield from cursor.white()) in ("{", "["):
                yield from read_json(reading, self.closers)
                yield from reading.past(self.closers, self.marks)
                return
            yield from cursor.expect(tags.function[0])
        while True:
            yield from self._call(reading, (yield from self._tool(reading)))
            yield from reading.past((tags.function_end,), (*self.marks, tags.call[1]))
            if reading.complete or not tags.function[0]:
                break
            if not (yield from cursor.skip(tags.function[0])):
                break
        yield from reading.past(self.closers, self.marks)

    def _tool(self, reading: Reading) -> Steps[Tool]:
        """Return the tool whose name comes next, possibly in quotes or before a parenthesis."""
        cursor, tags = reading.cursor, self.tags
        marks = (tags.function[1] or tags.key[0], ">", "\n", "{", "(", *self.closers)
        name, end = yield from cursor.name(marks)
        if end not in (tags.function[1], ">", "("):
            cursor.at -= len(end)
        return reading.tool(name.strip("\"'"))

    def _call(self, reading: Reading, tool: Tool) -> Steps[None]:
        """Parse a call after its name. Text between its arguments is placed after the call."""
        cursor, tags = reading.cursor, self.tags
        ends = (*self.closers, *self.marks)
        given, strays = False, list[str]()
        while True:
            character = yield from cursor.white()
            if (yield from reading.at(ends)) or not character:
                break
            if (yield from cursor.skip(tags.key[0])):
                if not reading.in_call and (yield from cursor.peek()) == "{":
                    yield from self._json(reading, tool)
                    return
                if not reading.in_call:
                    reading.begin(tool.name)
                before = ", " if given else "{"
                given = (yield from self._argument(reading, tool, before, strays)) or given
            elif not reading.in_call and character in ("{", "`"):
                yield from reading.call(tool.name, self.closers)
                return
            else:
                yield from self._stray(reading, (tags.key[0], *ends), strays)
        if not reading.in_call:
            if not character:
                raise NoCallError("the text ends before the arguments", at_end=True)
            reading.begin(tool.name)
        reading.give("}" if given else "{}")
        reading.done()
        if strays:
            reading.scribe.turn()
            reading.scribe.text(" ".join(strays))
        reading.cut = not character
        if reading.cut:
            raise NoCallError("the text ends within the arguments", at_end=True)

    def _json(self, reading: Reading, tool: Tool) -> Steps[None]:
        """Parse all arguments as one JSON object, in the place of an argument's name."""
        yield from reading.call(tool.name, (self.tags.key[1], *self.closers))
        yield from reading.cursor.white()
        yield from reading.cursor.skip(self.tags.key[1])
        reading.commit()

    def _stray(self, reading: Reading, marks: tuple[str, ...], strays: list[str]) -> Steps[None]:
        """Read text at the place of an argument, up to the next of ``marks``."""
        cursor, tags = reading.cursor, self.tags
        if not reading.in_call:
            raise NoCallError("text follows the name of a function")
        for mark in (tags.value_end, tags.key[1], tags.value):
            if mark and (yield from cursor.skip(mark)):
                return
        pieces: list[str] = []
        end = yield from cursor.until((*marks, tags.value_end), pieces.append)
        if end != tags.value_end:
            cursor.at -= len(end)
        strays.append("".join(pieces).strip())

    def _argument(
        self, reading: Reading, tool: Tool, before: str, strays: list[str]
    ) -> Steps[bool]:
        """Parse one argument after the beginning of its tag, and return whether it was given."""
        cursor, tags = reading.cursor, self.tags
        try:
            said, end = yield from cursor.name(
                (tags.key[1], "\n", *((tags.value,) * bool(tags.value)))
            )
        except NoCallError as problem:
            if problem.at_end:
                cursor.at = len(cursor.text)
            return False
        if end == tags.value:
            cursor.at -= len(end)
        key, types = self.key_of(said.strip(">\"'"), types_of(tool, said.strip(">\"'")))
        ends = (*self.closers, *self.marks)
        if tags.value:
            yield from cursor.white()
            if not (yield from cursor.skip(tags.value)) and (
                (yield from reading.at((tags.key[0], *ends))) or not (yield from cursor.peek())
            ):
                strays.append(key)
                return False
        if tags.break_lines and end != "\n":
            yield from cursor.skip("\n")
        return (
            yield from self._value(
                reading, f"{before}{json.dumps(key, ensure_ascii=False)}: ", types
            )
        )

    def _value(self, reading: Reading, head: str, types: frozenset[str]) -> Steps[bool]:
        """Parse a value up to its end, or up to the next tag in a line if the end is missing."""
        cursor, tags = reading.cursor, self.tags
        ends = ("\n" + tags.value_end, tags.value_end) if tags.break_lines else (tags.value_end,)
        later = self._later()
        if types == {"string"}:
            reading.give(head + '"')
            end = yield from cursor.until(
                (*ends, *later), lambda text: reading.give(escaped(text)), part=False
            )
            reading.give('"')
        else:
            pieces: list[str] = []
            end = yield from cursor.until((*ends, *later), pieces.append, part=False)
            text = "".join(pieces)
            if not end and types and is_cut(text):
                return False
            reading.give(head + as_json(text, types))
        if end in later:
            cursor.at -= len(end.lstrip("\n"))
        return True

    def _later(self) -> tuple[str, ...]:
        """Return what ends a value whose own end is missing."""
        tags = self.tags
        closing = ["\n" + tags.key[0], *("\n" + mark for mark in self.closers)]
        if tags.function_end != tags.call[1]:
            closing += (tags.function_end + between + tags.call[1] for between in ("", "\n"))
        else:
            closing += (tags.key[0], tags.call[1])
        return tuple(closing)

    def key_of(self, said: str, types: frozenset[str]) -> tuple[str, frozenset[str]]:
        """Return an argument's name and types from the text in its tag."""
        return said.strip(), types

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return arguments in the schema's order; a string is any text up to its end."""
        tags, rules = self.tags, list[str]()
        line = ' "\\n"' if tags.break_lines else ""

        def body(tool: Tool) -> str:
            number = next(i for i, other in enumerate(tools) if other is tool)
            properties = tool.parameters.get("properties") or {}
            required = tool.parameters.get("required") or ()
            parts = [self.head(tool, mark)]
            for place, (key, schema) in enumerate(properties.items()):
                rule = f"argument_{number}_{place}"
                open_key = lark.text(tags.key[0] + self.key_text(key, schema) + tags.key[1])
                value = f" {lark.text(tags.value)}" if tags.value else ""
                end = lark.text(("\n" if tags.break_lines else "") + tags.value_end)
                whole = {**schema, **definitions_of(tool)} if isinstance(schema, Mapping) else {}
                whole = closed_schema(whole)
                rules.append(f"{rule}: {open_key}{value}{line} {rule}_value")
                if types_of(tool, key) == {"string"} and "enum" not in whole:
                    rules.append(f"{rule}_value[suffix={lark.text(tags.value_end)}]: /(.|\\n)*/")
                elif types_of(tool, key) == {"string"}:
                    texts = " | ".join(lark.text(str(item)) for item in whole["enum"])
                    rules.append(f"{rule}_value: ({texts}) {end}")
                else:
                    rules.append(f"{rule}_value: %json {json.dumps(whole)} {end}")
                parts.append(f'({rule} "\\n"?)' + ("" if key in required else "?"))
            parts.append(self.foot(mark))
            return " ".join(parts)

        calls = self.sequence(parallel=parallel, mark=mark)
        return calls + lark.for_each(tools, "call", body, arguments=False) + "\n".join(rules) + "\n"

    def sequence(self, *, parallel: bool, mark: Mark) -> str:
        """Return the rule ``calls`` of one or several ``call``."""
        return lark.repeated("call", '"\\n"?', parallel)

    def head(self, tool: Tool, mark: Mark) -> str:
        """Return the text before the arguments."""
        tags = self.tags
        name = lark.text(f"\n{tags.function[0]}{tool.name}{tags.function[1]}\n")
        return f"{mark(tags.call[0])} {name}"

    def foot(self, mark: Mark) -> str:
        """Return the text after the arguments."""
        tags = self.tags
        return f"{lark.text(tags.function_end + chr(10))} {mark(tags.call[1])}"

    def key_text(self, key: str, schema: Any) -> str:
        """Return an argument's name in its tag."""
        return key


def definitions_of(tool: Tool) -> dict[str, Any]:
    """Return what the schemas of a tool's arguments may refer to."""
    return {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
