"""Calls with a number or an id next to the name: Kimi K2, Solar Open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark, Thinking
from trinity.conversation.dialects.section import Section
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_FIRST, _LAST = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_BEGIN, _MIDDLE = "<|tool_call_begin|>", "<|tool_call_argument_begin|>"
_END = "<|tool_call_end|>"
_NAME = "<|tool_call:name|>"  # of Solar Open


class Kimi(Section):
    """<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}.

    Calls are numbered over the whole conversation.
    """

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


class Solar(Section):
    """<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{...}<|tool_call:end|>."""

    name = "solar"
    thinking = Thinking("<|think|>", "<|end|>", "<|begin|>assistant")
    first, last = "<|tool_calls|>", "<|calls|>"
    begin, middle, end = "<|tool_call:begin|>", "<|tool_call:args|>", "<|tool_call:end|>"
    answer_head = "<|content|>"

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The delimiters of calls and of messages."""
        return (*super().all_marks, _NAME, "<|begin|>", "<|content|>", "<|end|>")

    def dropped(self, reading: Reading) -> tuple[str, ...]:
        """The heads and ends of messages."""
        return ("<|begin|>assistant", "<|content|>", "<|end|>")

    def claims(self, template: str) -> bool:
        """Recognize the delimiter before a name."""
        return _NAME in template and self.begin in template

    def read_call(self, reading: Reading) -> Steps[None]:
        """Parse a call; an id is before its name."""
        cursor = reading.cursor
        name, end = yield from cursor.name((_NAME, self.middle))
        if end == _NAME:
            name, _ = yield from cursor.name((self.middle,))
        yield from reading.call(name, self.closers)

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return calls between the first and the last delimiter."""

        def body(tool: Tool) -> str:
            head = f"{mark(self.begin)} /[a-z0-9]{{10}}/ {mark(_NAME)} {lark.text(tool.name)}"
            return f"{head} {mark(self.middle)} {{arguments}} {mark(self.end)}"

        calls = f"calls: {mark(self.first)} call{'+' if parallel else ''} {mark(self.last)}\n"
        return calls + lark.for_each(tools, "call", body)
