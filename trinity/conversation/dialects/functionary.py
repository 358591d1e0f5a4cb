"""<function=name>{...}</function>: Functionary 3.1."""

from __future__ import annotations

from collections.abc import Sequence

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool


class Functionary(Dialect):
    """A tag with the name, and JSON in it."""

    name = "functionary"
    marks = ("<function=",)

    @property
    def closers(self) -> tuple[str, ...]:
        """The tag's end."""
        return ("</function>",)

    def claims(self, template: str) -> bool:
        """Recognize its tag, which others use for parameters in tags."""
        return "<function=" in template and "<parameter=" not in template

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse one call."""
        cursor = reading.cursor
        name, end = yield from cursor.name((">", "{"))
        cursor.at -= end == "{"
        yield from reading.call(name.strip("\"'"), self.closers)
        yield from reading.past(self.closers, self.marks)

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return a grammar of calls in sequence."""
        return lark.repeated("call", "", parallel) + lark.for_each(
            tools,
            "call",
            lambda tool: f'{lark.text(f"<function={tool.name}>")} {{arguments}} "</function>"',
        )
