"""<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}: Kimi K2."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.section import Section
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_FIRST, _LAST = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_BEGIN, _MIDDLE = "<|tool_call_begin|>", "<|tool_call_argument_begin|>"
_END = "<|tool_call_end|>"


class Kimi(Section):
    """Calls are numbered over the whole conversation."""

    name = "kimi"
    first, begin, middle, end, last = _FIRST, _BEGIN, _MIDDLE, _END, _LAST

    def claims(self, template: str) -> bool:
        """Recognize its delimiters."""
        return _BEGIN in template and _FIRST in template

    def read_call(self, reading: Reading) -> Steps[None]:
        """Parse a call; its name is followed by a number."""
        cursor = reading.cursor
        said, end = yield from cursor.name((_MIDDLE, "{"))
        cursor.at -= end == "{"
        name = said.removeprefix("functions.")
        yield from reading.call(name.rpartition(":")[0] or name, self.closers)

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write calls as the models do."""
        texts = (
            f"{_BEGIN}functions.{function['name']}:{i}{_MIDDLE}"
            f"{json.dumps(function['arguments'], ensure_ascii=False)}{_END}"
            for i, function in enumerate(functions)
        )
        return f"{_FIRST}{''.join(texts)}{_LAST}"

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return calls between the first and the last delimiter."""

        def body(tool: Tool) -> str:
            head = f"{mark(_BEGIN)} {lark.text('functions.' + tool.name + ':')} /[0-9]+/"
            return f"{head} {mark(_MIDDLE)} {{arguments}} {mark(_END)}"

        more = " call*" if parallel else ""
        calls = f"calls: {mark(_FIRST)} call{more} {mark(_LAST)}\n"
        return calls + lark.for_each(tools, "call", body)
