"""Calls in Python's notation, NAME(KEY="VALUE", KEY=3): LFM 2 and 2.5, OLMo 3."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.dialects.json_calls import NAME_CHARACTERS, read_json, read_list
from trinity.conversation.json_text import JsonReader
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.values import types_of
from trinity.grammar.schema import closed_schema

_FIRST, _LAST = "<|tool_call_start|>", "<|tool_call_end|>"


class KeywordArguments(JsonReader):
    """Python's keyword arguments after "(", as a JSON object."""

    colons = (":", "=")

    def __init__(self, reading: Reading, name: str, ends: tuple[str, ...]) -> None:
        super().__init__(reading.cursor, reading.give, ends)
        self._tool = reading.tool(name)

    def types(self, key: str) -> frozenset[str]:
        """Return the types that the tool's schema allows."""
        return types_of(self._tool, key)

    def _begin(self) -> Steps[None]:
        """Open the object."""
        self._give("{")
        self._open.append("}")
        yield from ()


class Lfm(Dialect):
    """A list of calls in Python's notation; JSON's constants are allowed, too."""

    name = "lfm"
    first, last = _FIRST, _LAST
    before, between, after = "[", ", ", "]"  # around calls

    @property
    def marks(self) -> tuple[str, ...]:  # type: ignore[override]
        """The first delimiter."""
        return (self.first,)

    @property
    def all_marks(self) -> tuple[str, ...]:
        """Both delimiters."""
        return (self.first, self.last)

    @property
    def closers(self) -> tuple[str, ...]:
        """The second delimiter."""
        return (self.last,)

    def claims(self, template: str) -> bool:
        """Recognize its delimiter, or that of the list of tools."""
        return _FIRST in template or "<|tool_list_start|>" in template

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse a list of calls, which may lack its brackets, or calls as JSON."""
        cursor = reading.cursor
        yield from cursor.white()
        yield from reading.fence()
        character, begin = (yield from cursor.white()), cursor.at
        if character == "[":
            cursor.at += 1
            character = yield from cursor.white()
        if character == "{":
            cursor.at = begin
            listed = (yield from cursor.peek()) == "["
            yield from (read_list if listed else read_json)(reading, self.closers)
        else:
            yield from self._calls(reading)
        yield from reading.past(self.closers, self.marks)

    def _calls(self, reading: Reading) -> Steps[None]:
        cursor = reading.cursor
        while True:
            name = yield from cursor.matching(NAME_CHARACTERS)
            character = yield from cursor.white()
            if name not in reading.tools:
                raise reading.unknown(name, at_end=not character)
            if character != "(":
                raise NoCallError("'(' is missing", at_end=not character)
            cursor.at += 1
            reading.begin(name)
            yield from reading.values(KeywordArguments(reading, name, (")", *self.closers)))
            yield from cursor.skip(")")
            reading.commit()
            if reading.complete:
                break
            character = yield from cursor.white()
            if character in (",", ";"):
                cursor.at += 1
                character = yield from cursor.white()
            if not character or character not in NAME_CHARACTERS:
                break
        yield from cursor.skip("]")
        reading.commit()

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write calls as the models do."""
        texts = (
            f"{function['name']}("
            + ", ".join(
                f"{key}={json.dumps(value, ensure_ascii=False)}"
                for key, value in function["arguments"].items()
            )
            + ")"
            for function in functions
        )
        inner = self.between.join(texts)
        return f"{self.first}{self.before}{inner}{self.after}{self.last}"

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return a list of calls: the required arguments in the schema's order, then others."""
        rules: list[str] = []

        def body(tool: Tool) -> str:
            number = next(i for i, other in enumerate(tools) if other is tool)
            schema = closed_schema(tool.parameters)
            properties = schema.get("properties") or {}
            shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
            names = []
            for place, (key, value) in enumerate(properties.items()):
                whole = {**value, **shared} if isinstance(value, Mapping) else value
                rules.append(
                    f"argument_{number}_{place}: {lark.text(key + '=')} %json {json.dumps(whole)}"
                )
                names.append((f"argument_{number}_{place}", key in (schema.get("required") or ())))
            inner = ' ", " '.join(name for name, required in names if required)
            others = " | ".join(name for name, required in names if not required)
            if others and inner:
                inner += f' (", " ({others}))*'
            elif others:
                inner = f'(({others}) (", " ({others}))*)?'
            return f'{lark.text(tool.name + "(")} {inner} ")"'

        more = f" ({lark.text(self.between)} call)*" if parallel else ""
        first = f"{mark(self.first)} {lark.text(self.before)}"
        calls = f"calls: {first} call{more} {lark.text(self.after)} {mark(self.last)}\n"
        listed = lark.for_each(tools, "call", body, arguments=False)
        return calls + listed + "\n".join(rules) + "\n"


class Olmo(Lfm):
    """A call in each line, between tags: OLMo 3."""

    name = "olmo"
    first, last = "<function_calls>", "</function_calls>"
    before = between = after = "\n"

    def claims(self, template: str) -> bool:
        """Recognize its tag, which other models write around other forms."""
        return self.first in template and "<invoke" not in template
