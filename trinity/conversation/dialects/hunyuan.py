"""<tool_calls:opensource><tool_call:opensource>NAME<tool_sep:opensource>...: Hunyuan 3 (Hy3)."""

from __future__ import annotations

from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark, Thinking
from trinity.conversation.dialects.tagged import Tagged, Tags
from trinity.conversation.tools import Tool

_SUFFIX = ":opensource>"


class Hunyuan(Tagged):
    """GLM's tags with a suffix, all calls in one section."""

    name = "hunyuan"
    thinking = Thinking(f"<think{_SUFFIX}", f"</think{_SUFFIX}")
    tags = Tags(
        (f"<tool_calls{_SUFFIX}", f"</tool_calls{_SUFFIX}"),
        (f"<tool_call{_SUFFIX}", f"<tool_sep{_SUFFIX}"),
        f"</tool_call{_SUFFIX}",
        (f"<arg_key{_SUFFIX}", f"</arg_key{_SUFFIX}"),
        f"</arg_value{_SUFFIX}",
        value=f"<arg_value{_SUFFIX}",
    )

    def claims(self, template: str) -> bool:
        """Recognize two texts that only its template combines."""
        return ":opensource" in template and "<tool_sep" in template

    def sequence(self, *, parallel: bool, mark: Mark) -> str:
        """Return one section with all calls."""
        first, last = (mark(text) for text in self.tags.call)
        more = "+" if parallel else ""
        return f'calls: {first} "\\n" call{more} {last}\n'

    def head(self, tool: Tool, mark: Mark) -> str:
        """Return the name between its delimiters."""
        begin, end = (mark(text) for text in self.tags.function)
        return f'{begin} {lark.text(tool.name)} {end} "\\n"'

    def foot(self, mark: Mark) -> str:
        """Return the end of a call."""
        return f'{mark(self.tags.function_end)} "\\n"'
