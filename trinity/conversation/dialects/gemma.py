"""call:name{key:<|"|>text<|"|>,number:3} between marks: Gemma 4 and FunctionGemma."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.dialects.json_calls import NAME_CHARACTERS, read_json
from trinity.conversation.json_text import JsonReader
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.values import types_of


class _Arguments(JsonReader):
    """JSON with unquoted keys, and a delimiter on both sides of strings."""

    def __init__(self, reading: Reading, name: str, ends: tuple[str, ...], quote: str) -> None:
        super().__init__(reading.cursor, reading.give, ends, quote)
        self._tool = reading.tool(name)

    def types(self, key: str) -> frozenset[str]:
        """Return the types that the tool's schema allows."""
        return types_of(self._tool, key)


class Gemma(Dialect):
    """Objects with unquoted keys; a delimiter on both sides of strings."""

    bare = True

    def __init__(self, name: str, opening: str, closing: str, quote: str) -> None:
        self.name = name
        self.marks = (opening,)
        self._closing, self._quote = closing, quote

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All delimiters, including those within a call."""
        return (*self.marks, self._closing, self._quote)

    def claims(self, template: str) -> bool:
        """Recognize the delimiter."""
        return self.marks[0] in template and self._quote in template

    @property
    def closers(self) -> tuple[str, ...]:
        """The second delimiter."""
        return (self._closing,)

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse one call; models may also write a colon before it, or omit the delimiter."""
        cursor = reading.cursor
        yield from cursor.white()
        if mark:
            yield from cursor.skip(":")
            if (yield from cursor.peek()) in ("{", "["):
                yield from read_json(reading, self.closers)
                yield from reading.past(self.closers, self.marks)
                return
        if not (yield from cursor.skip("call:")) and not mark:
            raise NoCallError("")
        yield from cursor.white()
        name = yield from cursor.matching(NAME_CHARACTERS)
        character = yield from cursor.white()
        if name not in reading.tools:
            raise reading.unknown(name, at_end=not character)
        if character == "{":
            reading.begin(name)
            yield from reading.values(_Arguments(reading, name, self.closers, self._quote))
        elif mark and (yield from reading.at(self.closers)):
            reading.call_with(name, "{}")
        else:
            raise NoCallError(f"no arguments follow the call of {name}", at_end=not character)
        yield from reading.past(self.closers, self.marks)

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return a grammar: the required arguments in the schema's order, by type; then others."""
        quote, rules = mark(self._quote), list[str]()

        def value(schema: object) -> str:
            kind = schema.get("type") if isinstance(schema, Mapping) else None
            values = schema.get("enum") if isinstance(schema, Mapping) else None
            if values and all(isinstance(item, str) for item in values):
                return f"{quote} ({' | '.join(lark.text(item) for item in values)}) {quote}"
            names = {"string": "text", "object": "object", "array": "list", "boolean": "truth"}
            names |= {"integer": "INTEGER", "number": "NUMBER", "null": '"null"'}
            return names.get(str(kind), "value")

        def body(tool: Tool) -> str:
            number = next(i for i, other in enumerate(tools) if other is tool)
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
                member = f"others_{number}"
                inner += f' ("," {member})*' if inner else f'({member} ("," {member})*)?'
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
