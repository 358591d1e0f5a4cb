"""gpt-oss: messages in channels, of which one may be for a function.

<|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>commentary
to=functions.name <|constrain|>json<|message|>{...}<|call|>, or <|channel|>final<|message|>text
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.reading import Reading
from trinity.conversation.thinking import Thinking
from trinity.conversation.tools import Tool

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_CONSTRAIN, _CALL, _END, _RETURN = "<|constrain|>", "<|call|>", "<|end|>", "<|return|>"
_ENDS = (_END, _CALL, _RETURN)
_TO = re.compile(r"\bto=([^\s<]+)")
_NAMED = re.compile(r"<\|channel\|>\s*(\w+)")


class Harmony(Dialect):
    """The header of a message says what it is: reasoning, text, or a call."""

    name = "harmony"
    marks = (_CHANNEL,)
    answer_head = f"{_CHANNEL}final{_MESSAGE}"

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All that headers are made of."""
        return (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)

    def claims(self, template: str) -> bool:
        """By its marks."""
        return _CHANNEL in template and _MESSAGE in template

    def fitted(self, message: dict[str, Any]) -> dict[str, Any]:
        """What was said before a call is the analysis, unless that is there."""
        if message.get("tool_calls") and message.get("thinking"):
            message["content"] = ""
        return message

    def read(self, reading: Reading, thinking: Thinking, inside: bool) -> Steps[list[str]]:
        """Messages one after the other; text outside of them is text."""
        cursor, scribe, problems = reading.cursor, reading.scribe, list[str]()
        while not reading.complete:
            header = yield from self._header(reading)
            if header is None:
                if not (yield from cursor.peek()):
                    break
                mark = yield from cursor.until((_START, _CHANNEL, *_ENDS), scribe.text, final=True)
                if mark in (_START, _CHANNEL):
                    cursor.at -= len(mark)
                    scribe.turn()
            elif _TO.search(header):
                if (yield from self._try(reading, header, problems)):
                    yield from cursor.white()
                    for mark in _ENDS:
                        yield from cursor.skip(mark)
            else:
                scribe.turn()
                channel = _NAMED.search(header)
                thinks = channel is not None and channel[1] == "analysis"
                give = scribe.reasoning if thinks else scribe.text
                mark = yield from cursor.until((*_ENDS, _START), give, final=True)
                if mark == _START:
                    cursor.at -= len(mark)
                if mark:
                    scribe.turn()
        scribe.end()
        return problems

    def _header(self, reading: Reading) -> Steps[str | None]:
        """A message's header, behind which the cursor then is; None where none comes."""
        cursor = reading.cursor
        begin = cursor.at
        begun = yield from cursor.skip(_START)
        for word in (_CHANNEL, " to="):
            begun = begun or (yield from cursor.starts(word))
        if begun:
            pieces: list[str] = []
            if (yield from cursor.until((_MESSAGE,), pieces.append)):
                return "".join(pieces) + _MESSAGE
            reading.scribe.text(cursor.text[begin:])
            return None
        cursor.at = begin
        return None

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """The arguments; ``mark`` is the header."""
        to = _TO.search(mark)
        assert to is not None
        name = to[1].removeprefix("functions.")
        if to[1] == name and name not in reading.tools:
            raise NoCallError(f"there is no recipient {name[:80]!r}")
        yield from reading.call(name)

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """One message to a function: the model's templates have no more in a turn."""

        def body(tool: Tool) -> str:
            to = lark.text(f"commentary to=functions.{tool.name} ")
            head = f'{mark(_CHANNEL)} {to} {mark(_CONSTRAIN)} "json" {mark(_MESSAGE)}'
            return f"{head} {{arguments}} {mark(_CALL)}"

        return "calls: call\n" + lark.for_each(tools, "call", body)
