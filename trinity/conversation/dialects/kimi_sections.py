"""<|open|>call tool="NAME"<|sep|><|open|>argument key="KEY"<|sep|>VALUE...: Kimi K3."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Mark, Thinking
from trinity.conversation.dialects.tagged import Tagged, Tags
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_OPEN, _CLOSE, _SEPARATOR = "<|open|>", "<|close|>", "<|sep|>"
_JSON = f'{_OPEN}json type="object"{_SEPARATOR}'


def _opening(name: str) -> str:
    return f"{_OPEN}{name}{_SEPARATOR}"


def _closing(name: str) -> str:
    return f"{_CLOSE}{name}{_SEPARATOR}"


class KimiSections(Tagged):
    """Sections of a message: reasoning, text and calls. Arguments may also be one JSON object."""

    name = "kimi-k3"
    thinking = Thinking(_opening("think"), _closing("think"), _opening("response"))
    tags = Tags(
        (_opening("tools"), _closing("tools")),
        (f'{_OPEN}call tool="', _SEPARATOR),
        _closing("call"),
        (f'{_OPEN}argument key="', _SEPARATOR),
        _closing("argument"),
    )

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The tags and their tokens."""
        return (*super().all_marks, _OPEN, _CLOSE, _SEPARATOR, "<|end_of_msg|>")

    def dropped(self, reading: Reading) -> tuple[str, ...]:
        """The delimiters of text and of the message."""
        ends = (_closing("response"), _closing("message"), "<|end_of_msg|>")
        return (_opening("response"), *ends)

    def claims(self, template: str) -> bool:
        """Recognize its tokens, and words that its template combines."""
        return all(mark in template for mark in (_OPEN, _CLOSE, _SEPARATOR)) and "call" in template

    def _tool(self, reading: Reading) -> Steps[Tool]:
        """Return the tool whose name comes next, without the attributes after it."""
        name, end = yield from reading.cursor.name((_SEPARATOR, *self.closers))
        if end != _SEPARATOR:
            reading.cursor.at -= len(end)
        return reading.tool(name.partition('"')[0])

    def _call(self, reading: Reading, tool: Tool) -> Steps[None]:
        """Parse the arguments, which may be one JSON object."""
        yield from reading.cursor.white()
        if (yield from reading.cursor.skip(_JSON)):
            yield from reading.call(tool.name, (_closing("json"), *self.closers))
            yield from reading.cursor.white()
            yield from reading.cursor.skip(_closing("json"))
            reading.commit()
            return
        yield from super()._call(reading, tool)

    def key_of(self, said: str, types: frozenset[str]) -> tuple[str, frozenset[str]]:
        """Split ``key" type="string``."""
        key, _, kind = said.partition('" type="')
        return key, frozenset(("string",)) if kind == "string" else types

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write calls as the models do."""
        calls = (
            f'{_OPEN}call tool="{function["name"]}" index="{i}"{_SEPARATOR}{_JSON}'
            f"{json.dumps(function['arguments'], ensure_ascii=False)}"
            f"{_closing('json')}{_closing('call')}"
            for i, function in enumerate(functions, 1)
        )
        return f"{_opening('tools')}{''.join(calls)}{_closing('tools')}"

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return the end of the text, and one section with calls."""

        def body(tool: Tool) -> str:
            head = lark.spelled(f'{_OPEN}call tool="{tool.name}"{_SEPARATOR}{_JSON}', mark)
            end = lark.spelled(_closing("json") + _closing("call"), mark)
            return f"{head} {{arguments}} {end}"

        first = lark.spelled(_closing("response") + _opening("tools"), mark)
        last = lark.spelled(_closing("tools"), mark)
        calls = f"calls: {first} call{'+' if parallel else ''} {last}\n"
        return calls + lark.for_each(tools, "call", body)
