"""<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>: DeepSeek V3, R1 and V3.1."""

from __future__ import annotations

from collections.abc import Sequence

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.section import Section
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_FIRST, _LAST = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _MIDDLE, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


class DeepSeek(Section):
    """Both formats: V3 and R1 write "function", the name in a line, and JSON in a code fence."""

    name = "deepseek"
    first, begin, middle, end, last = _FIRST, _BEGIN, _MIDDLE, _END, _LAST

    def __init__(self, *, fenced: bool = False) -> None:
        self.fenced = fenced
        if fenced:
            self.name = "deepseek-fenced"

    def claims(self, template: str) -> bool:
        """Recognize the delimiter, and whether JSON is in a code fence."""
        return _BEGIN in template and ("```json" in template) == self.fenced

    def read_call(self, reading: Reading) -> Steps[None]:
        """Read a call; the arguments may be in a code fence."""
        cursor = reading.cursor
        yield from cursor.white()
        name, end = yield from cursor.name((_MIDDLE, "\n", "{", "```"))
        if end == _MIDDLE and name == "function" and name not in reading.tools:
            yield from cursor.white()
            name, end = yield from cursor.name(("\n", "{", "```", *self.closers))
        if end not in (_MIDDLE, "\n"):
            cursor.at -= len(end)
        yield from reading.call(name, self.closers)

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return calls between the first and the last delimiter."""
        begin, middle, end = mark(_BEGIN), mark(_MIDDLE), mark(_END)

        def body(tool: Tool) -> str:
            if self.fenced:
                head = f'{begin} "function" {middle} {lark.text(tool.name + chr(10))} "```json\\n"'
                return f'{head} {{arguments}} "\\n```" {end}'
            return f"{begin} {lark.text(tool.name)} {middle} {{arguments}} {end}"

        between = '"\\n"' if self.fenced else ""
        more = f" ({between} call)*" if parallel else ""
        calls = f"calls: {mark(_FIRST)} call{more} {mark(_LAST)}\n"
        return calls + lark.for_each(tools, "call", body)
