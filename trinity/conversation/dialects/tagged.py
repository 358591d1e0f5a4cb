"""Calls whose arguments stand in tags of their own, one for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.values import as_json, escaped, types_of
from trinity.grammar.schema import closed_schema


@dataclass(frozen=True, slots=True)
class Tags:
    """What stands around calls, functions and arguments.

    ``call`` opens and closes calls; ``function`` stands around a function's name, ``function_end``
    behind its arguments; ``key`` around an argument's name, ``value`` before its value where that
    has a mark of its own, and ``value_end`` behind it. ``break_lines``: values have lines of their
    own.
    """

    call: tuple[str, str]
    function: tuple[str, str]
    function_end: str
    key: tuple[str, str]
    value_end: str
    value: str = ""
    break_lines: bool = False


class Tagged(Dialect):
    """Reads arguments by the tool's schema: text where it wants a string, else JSON."""

    tags: Tags

    @property
    def marks(self) -> tuple[str, ...]:  # type: ignore[override]
        """What opens calls."""
        return (self.tags.call[0],)

    @property
    def all_marks(self) -> tuple[str, ...]:
        """Whatever stands around something; one may be a token."""
        tags = self.tags
        around = (*tags.call, *tags.function, tags.function_end, *tags.key, tags.value)
        return tuple(one for one in (*around, tags.value_end) if one)

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Functions up to the closing mark."""
        cursor, tags = reading.cursor, self.tags
        while True:
            yield from cursor.white()
            yield from cursor.expect(tags.function[0])
            name = (yield from cursor.collect((tags.function[1],))).strip()
            yield from self._arguments(reading, reading.tool(name))
            yield from cursor.white()
            if reading.complete or not tags.function[0]:
                break
            if not (yield from cursor.starts(tags.function[0])):
                break
        yield from cursor.skip(tags.call[1])
        reading.commit()

    def _arguments(self, reading: Reading, tool: Tool) -> Steps[None]:
        cursor, tags = reading.cursor, self.tags
        reading.begin(tool.name)
        before = "{"
        while True:
            yield from cursor.white()
            if not (yield from cursor.skip(tags.key[0])):
                break
            said = yield from cursor.collect((tags.key[1],))
            key, types = self.key_of(said, types_of(tool, said))
            if tags.value:
                yield from cursor.white()
                yield from cursor.expect(tags.value)
            if tags.break_lines:
                yield from cursor.skip("\n")
            reading.give(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
            yield from self._value(reading, types)
            before = ", "
        if not (yield from cursor.skip(tags.function_end)):
            raise NoCallError(f"{tags.function_end!r} is missing")
        reading.give("{}" if before == "{" else "}")
        reading.done()

    def _value(self, reading: Reading, types: frozenset[str]) -> Steps[None]:
        cursor, tags = reading.cursor, self.tags
        ends = ("\n" + tags.value_end, tags.value_end) if tags.break_lines else (tags.value_end,)
        if types != {"string"}:
            reading.give(as_json((yield from cursor.collect(ends)), types))
            return
        reading.give('"')
        if not (yield from cursor.until(ends, lambda text: reading.give(escaped(text)))):
            raise NoCallError(f"{tags.value_end!r} is missing")
        reading.give('"')

    def key_of(self, said: str, types: frozenset[str]) -> tuple[str, frozenset[str]]:
        """An argument's name and types, by what stands in its tag."""
        return said.strip(), types

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Arguments in the schema's order; a string is all text up to its end."""
        tags, rules = self.tags, list[str]()
        line = ' "\\n"' if tags.break_lines else ""

        def body(tool: Tool) -> str:
            number = next(i for i, one in enumerate(tools) if one is tool)
            properties = tool.parameters.get("properties") or {}
            required = tool.parameters.get("required") or ()
            parts = [self.head(tool, mark)]
            for place, (key, schema) in enumerate(properties.items()):
                rule = f"argument_{number}_{place}"
                open_key = lark.text(tags.key[0] + self.key_text(key, schema) + tags.key[1])
                value = f" {lark.text(tags.value)}" if tags.value else ""
                end = lark.text(("\n" if tags.break_lines else "") + tags.value_end)
                whole = {**schema, **_definitions(tool)} if isinstance(schema, Mapping) else {}
                whole = closed_schema(whole)
                rules.append(f"{rule}: {open_key}{value}{line} {rule}_value")
                if types_of(tool, key) == {"string"} and "enum" not in whole:
                    rules.append(f"{rule}_value[suffix={lark.text(tags.value_end)}]: /(.|\\n)*/")
                elif types_of(tool, key) == {"string"}:
                    texts = " | ".join(lark.text(str(one)) for one in whole["enum"])
                    rules.append(f"{rule}_value: ({texts}) {end}")
                else:
                    rules.append(f"{rule}_value: %json {json.dumps(whole)} {end}")
                parts.append(f'({rule} "\\n"?)' + ("" if key in required else "?"))
            parts.append(self.foot(mark))
            return " ".join(parts)

        calls = lark.repeated("call", '"\\n"?', parallel)
        return calls + lark.for_each(tools, "call", body, arguments=False) + "\n".join(rules) + "\n"

    def head(self, tool: Tool, mark: Mark) -> str:
        """What stands before the arguments, in a grammar."""
        tags = self.tags
        name = lark.text(f"\n{tags.function[0]}{tool.name}{tags.function[1]}\n")
        return f"{mark(tags.call[0])} {name}"

    def foot(self, mark: Mark) -> str:
        """What stands behind the arguments, in a grammar."""
        tags = self.tags
        return f"{lark.text(tags.function_end + chr(10))} {mark(tags.call[1])}"

    def key_text(self, key: str, schema: Any) -> str:
        """An argument's name in its tag."""
        return key


def _definitions(tool: Tool) -> dict[str, Any]:
    return {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
