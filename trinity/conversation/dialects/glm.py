"""<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>: GLM, LongCat."""

from __future__ import annotations

from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.tagged import Tagged, Tags
from trinity.conversation.tools import Tool


def _tags(prefix: str = "") -> Tags:
    call, key, value = f"{prefix}tool_call", f"{prefix}arg_key", f"{prefix}arg_value"
    return Tags(
        (f"<{call}>", f"</{call}>"),
        ("", ""),
        f"</{call}>",
        (f"<{key}>", f"</{key}>"),
        f"</{value}>",
        value=f"<{value}>",
    )


class Glm(Tagged):
    """The name has no tag: it ends at the first argument, or at the call's end."""

    name = "glm"
    tags = _tags()

    def claims(self, template: str) -> bool:
        """Recognize its tags."""
        return "<arg_key>" in template and "<tool_call>" in template

    def head(self, tool: Tool, mark: Mark) -> str:
        """Return the name in a line."""
        return f"{mark(self.tags.call[0])} {lark.text(tool.name + chr(10))}"

    def foot(self, mark: Mark) -> str:
        """Return the delimiter alone."""
        return mark(self.tags.call[1])


class LongCat(Glm):
    """GLM's tags with a prefix: LongCat-Flash-Lite and LongCat-Flash-Thinking of 2026."""

    name = "longcat"
    tags = _tags("longcat_")

    def claims(self, template: str) -> bool:
        """Recognize its tags."""
        return "<longcat_arg_key>" in template
