"""call:name{key:<|"|>text<|"|>,number:3} between marks: Gemma 4 and FunctionGemma."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.dialects.mistral import NAME_CHARACTERS
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.values import as_json, escaped, types_of

_DEEPEST = 64
_ANY: frozenset[str] = frozenset()


class Gemma(Dialect):
    """Objects without quotes around keys; a mark on both sides of text."""

    def __init__(self, name: str, opening: str, closing: str, quote: str) -> None:
        self.name = name
        self.marks = (opening,)
        self._closing, self._quote = closing, quote

    @property
    def all_marks(self) -> tuple[str, ...]:
        """With those within a call."""
        return (*self.marks, self._closing, self._quote)

    def claims(self, template: str) -> bool:
        """By its mark."""
        return self.marks[0] in template and self._quote in template

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """One call."""
        cursor = reading.cursor
        yield from cursor.white()
        yield from cursor.expect("call:")
        tool = reading.tool((yield from cursor.matching(NAME_CHARACTERS)))
        if (yield from cursor.white()) != "{":
            raise NoCallError(f"no arguments follow the call of {tool.name}")
        reading.begin(tool.name)
        yield from self._object(reading, tool, 0)
        reading.done()
        yield from cursor.white()
        yield from cursor.skip(self._closing)
        reading.commit()

    def _object(self, reading: Reading, tool: Tool | None, depth: int) -> Steps[None]:
        cursor = reading.cursor
        cursor.at += 1
        reading.give("{")
        before = ""
        while (yield from cursor.white()) != "}":
            if (yield from cursor.skip(self._quote)):
                key = yield from cursor.collect((self._quote,))
                yield from cursor.expect(":")
            else:
                key = (yield from cursor.collect((":",))).strip().strip('"')
            reading.give(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
            yield from self._value(reading, _ANY if tool is None else types_of(tool, key), depth)
            before = ", "
            if (yield from cursor.white()) == ",":
                cursor.at += 1
            elif (yield from cursor.peek()) != "}":
                raise NoCallError("neither ',' nor '}' follows an argument")
        cursor.at += 1
        reading.give("}")

    def _value(self, reading: Reading, types: frozenset[str], depth: int) -> Steps[None]:
        cursor = reading.cursor
        if depth > _DEEPEST:
            raise NoCallError("the arguments are nested too deeply")
        found = yield from cursor.white()
        if found == "{":
            yield from self._object(reading, None, depth + 1)
        elif found == "[":
            yield from self._list(reading, depth + 1)
        elif (yield from cursor.skip(self._quote)):
            reading.give('"')
            if not (
                yield from cursor.until((self._quote,), lambda text: reading.give(escaped(text)))
            ):
                raise NoCallError("a text has no end")
            reading.give('"')
        else:
            pieces: list[str] = []
            end = yield from cursor.until((",", "}", "]"), pieces.append)
            if not end:
                raise NoCallError("an argument has no end")
            cursor.at -= 1
            reading.give(as_json("".join(pieces).strip(), types))

    def _list(self, reading: Reading, depth: int) -> Steps[None]:
        cursor = reading.cursor
        cursor.at += 1
        reading.give("[")
        while (yield from cursor.white()) != "]":
            yield from self._value(reading, _ANY, depth)
            if (yield from cursor.white()) == ",":
                cursor.at += 1
                reading.give(", ")
            elif (yield from cursor.peek()) != "]":
                raise NoCallError("neither ',' nor ']' follows a value")
        cursor.at += 1
        reading.give("]")

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """The required arguments in the schema's order, by their types; then others."""
        quote, rules = mark(self._quote), list[str]()

        def value(schema: object) -> str:
            kind = schema.get("type") if isinstance(schema, Mapping) else None
            values = schema.get("enum") if isinstance(schema, Mapping) else None
            if values and all(isinstance(one, str) for one in values):
                return f"{quote} ({' | '.join(lark.text(one) for one in values)}) {quote}"
            names = {"string": "text", "object": "object", "array": "list", "boolean": "truth"}
            names |= {"integer": "INTEGER", "number": "NUMBER", "null": '"null"'}
            return names.get(str(kind), "value")

        def body(tool: Tool) -> str:
            number = next(i for i, one in enumerate(tools) if one is tool)
            properties = tool.parameters.get("properties") or {}
            required = [k for k in tool.parameters.get("required") or () if k in properties]
            others = [key for key in properties if key not in required]
            pairs = [f"{lark.text(key + ':')} {value(properties[key])}" for key in required]
            inner = ' "," '.join(pairs)
            if others:
                choice = " | ".join(
                    f"{lark.text(key + ':')} {value(properties[key])}" for key in others
                )
                rules.append(f"others_{number}: {choice}")
                one = f"others_{number}"
                inner += f' ("," {one})*' if inner else f'({one} ("," {one})*)?'
            head = f"{mark(self.marks[0])} {lark.text(f'call:{tool.name}{{')}"
            return f'{head} {inner} "}}" {mark(self._closing)}'

        shared = (
            f"text: {quote} /[^{self._quote[0]}]*/ {quote}\n"
            'value: text | object | list | truth | "null" | NUMBER\n'
            'object: "{" (pair ("," pair)*)? "}"\n'
            'pair: KEY ":" value\n'
            'list: "[" (value ("," value)*)? "]"\n'
            'truth: "true" | "false"\n'
            "KEY: /[a-zA-Z0-9_ -]+/\n"
            "INTEGER: /-?(0|[1-9][0-9]*)/\n"
            "NUMBER: /-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?/\n"
        )
        calls = lark.repeated("call", "", parallel)
        called = lark.for_each(tools, "call", body, arguments=False)
        return calls + called + "\n".join(rules) + "\n" + shared


GEMMA = Gemma("gemma", "<|tool_call>", "<tool_call|>", '<|"|>')
FUNCTION_GEMMA = Gemma("function-gemma", "<start_function_call>", "<end_function_call>", "<escape>")
