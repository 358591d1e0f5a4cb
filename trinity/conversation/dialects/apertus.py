"""<|tools_prefix|>[{"NAME": {...}}]<|tools_suffix|>: Apertus."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.json_calls import read_items, read_object
from trinity.conversation.dialects.marked import Marked
from trinity.conversation.json_text import read_key
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool


class Apertus(Marked):
    """The name of the tool is the key of its arguments."""

    def __init__(self) -> None:
        super().__init__("apertus", "<|tools_prefix|>", "<|tools_suffix|>")

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse objects, in a list or in sequence."""
        cursor = reading.cursor
        yield from cursor.white()
        if (yield from reading.fence()):
            yield from cursor.white()
        listed = yield from cursor.skip("[")
        if not mark and not listed and (yield from cursor.peek()) != "{":
            raise NoCallError("")
        yield from read_items(reading, lambda: self._call(reading))
        yield from reading.past(self.closers, self.marks)

    def _call(self, reading: Reading) -> Steps[None]:
        """Parse one object; also one with keys for name and arguments."""
        cursor = reading.cursor
        yield from cursor.white()
        begin = cursor.at
        yield from cursor.expect("{")
        character = yield from cursor.white()
        if not character or character in "{[}],":
            raise NoCallError("no name of a tool follows", at_end=not character)
        name = str(json.loads((yield from read_key(cursor))))
        if name not in reading.tools:
            if not (yield from cursor.peek()):
                raise reading.unknown(name, at_end=True)
            cursor.at = begin
            yield from read_object(reading, self.closers)
            return
        character = yield from cursor.white()
        if character not in (":", "="):
            raise NoCallError("':' is missing", at_end=not character)
        cursor.at += 1
        yield from reading.call(name, self.closers)
        yield from cursor.white()
        yield from cursor.skip("}")
        reading.commit()

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write calls as the models do."""
        texts = (
            json.dumps({function["name"]: function["arguments"]}, ensure_ascii=False)
            for function in functions
        )
        return f"{self.opening}[{', '.join(texts)}]{self.closing}"

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return a list of objects."""

        def body(tool: Tool) -> str:
            return f'{lark.text(f"{{{json.dumps(tool.name)}: ")} {{arguments}} "}}"'

        more = ' (", " call)*' if parallel else ""
        calls = f'calls: {mark(self.opening)} "[" call{more} "]" {mark(self.closing)}\n'
        return calls + lark.for_each(tools, "call", body)


APERTUS = Apertus()
