"""<function name="NAME"><param name="KEY">VALUE</param></function>: MiniCPM 5."""

from __future__ import annotations

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.tagged import Tagged, Tags
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool
from trinity.conversation.values import as_json, escaped

_BEGIN, _END = "<![CDATA[", "]]>"


class MiniCPM(Tagged):
    """A call has no delimiters of its own. A value may be in a CDATA section."""

    name = "minicpm"
    tags = Tags(
        ('<function name="', "</function>"),
        ("", '">'),
        "</function>",
        ('<param name="', '">'),
        "</param>",
    )

    def claims(self, template: str) -> bool:
        """Recognize its tags."""
        return self.tags.call[0] in template and self.tags.key[0] in template

    def _value(self, reading: Reading, head: str, types: frozenset[str]) -> Steps[bool]:
        """Parse a value; what a CDATA section contains is taken as it is."""
        cursor = reading.cursor
        if not (yield from cursor.skip(_BEGIN)):
            return (yield from super()._value(reading, head, types))
        pieces: list[str] = []
        if types <= {"string"}:
            reading.give(head + '"')
            yield from cursor.until((_END,), lambda text: reading.give(escaped(text)), part=False)
            reading.give('"')
        elif (yield from cursor.until((_END,), pieces.append, part=False)):
            reading.give(head + as_json("".join(pieces), types))
        else:
            return False
        yield from cursor.white()
        yield from cursor.skip(self.tags.value_end)
        return True

    def head(self, tool: Tool, mark: Mark) -> str:
        """Return the tag with the name."""
        return lark.text(f'<function name="{tool.name}">')

    def foot(self, mark: Mark) -> str:
        """Return the end of the tag."""
        return lark.text(self.tags.function_end)
