"""gpt-oss: messages in channels; a message may be addressed to a function.

<|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>commentary
to=functions.name <|constrain|>json<|message|>{...}<|call|>, or <|channel|>final<|message|>text
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trinity.conversation.cursor import Give, NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark, Thinking
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_CONSTRAIN, _CALL, _END, _RETURN = "<|constrain|>", "<|call|>", "<|end|>", "<|return|>"
_ENDS = (_END, _CALL, _RETURN)
_TO = re.compile(r"\bto=([^\s<]+)")
_SAID = re.compile("[\"':,}]")  # characters that no header contains
# The words of a header; the last one may be incomplete.
_WORDS = re.compile(
    r"<\|?\w*\|?>?|\b(?:assistant|analysis|commentary|final|json|code)\b|\bto=\S*|\b[a-z]+$"
)
_NAMED = re.compile(r"<\|channel\|>\s*(\w+)")


class Harmony(Dialect):
    """The header of a message tells whether it is reasoning, text or a call."""

    name = "harmony"
    marks = (_CHANNEL,)
    answer_head = f"{_CHANNEL}final{_MESSAGE}"

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All delimiters of headers."""
        return (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)

    def claims(self, template: str) -> bool:
        """Recognize its delimiters."""
        return _CHANNEL in template and _MESSAGE in template

    def fitted(self, message: dict[str, Any]) -> dict[str, Any]:
        """Move text before a call to the analysis, unless there is one."""
        if message.get("tool_calls") and message.get("thinking"):
            message["content"] = ""
        return message

    def read(self, reading: Reading, thinking: Thinking, inside: bool) -> Steps[list[str]]:
        """Parse messages in sequence; text outside of them is text."""
        cursor, scribe, problems = reading.cursor, reading.scribe, list[str]()
        if inside:
            yield from self._body(reading, scribe.reasoning)
        while not reading.complete:
            header = yield from self._header(reading)
            if header is None:
                if not (yield from cursor.peek()):
                    break
                if scribe.fresh and (scribe.calls or reading.forced):
                    yield from cursor.white()
                    if (yield from cursor.ends_within((_START, _CHANNEL, *_ENDS))):
                        break
                mark = yield from cursor.until((_START, _CHANNEL, *_ENDS), scribe.text, final=True)
                if mark in (_START, _CHANNEL):
                    cursor.at -= len(mark)
                    scribe.turn()
            elif _TO.search(header):
                yield from self._try(reading, header, problems)
            else:
                channel = _NAMED.search(header)
                thinks = channel is not None and channel[1] == "analysis"
                yield from self._body(reading, scribe.reasoning if thinks else scribe.text)
        scribe.end()
        return problems

    def _body(self, reading: Reading, give: Give) -> Steps[None]:
        """Parse a message after its header, up to its end or to the next message."""
        cursor = reading.cursor
        reading.scribe.turn()
        mark = yield from cursor.until((*_ENDS, _START, _CHANNEL), give, final=True)
        if mark in (_START, _CHANNEL):
            cursor.at -= len(mark)
        if mark:
            reading.scribe.turn()

    def _header(self, reading: Reading) -> Steps[str | None]:
        """Return a message's header and skip it; None if there is none.

        Models may omit the end of the header of a call, or all arguments. If the text ends within a
        header, the header is dropped.
        """
        cursor = reading.cursor
        begin = cursor.at
        begun = yield from cursor.skip(_START)
        for word in (_CHANNEL, " to="):
            begun = begun or (yield from cursor.starts(word))
        if begun:
            pieces: list[str] = []
            end = yield from cursor.until((_MESSAGE, "{", _START, *_ENDS), pieces.append)
            header = "".join(pieces)
            if end == _MESSAGE:
                return header + _MESSAGE
            if end and _TO.search(header) and not _SAID.search(header):
                cursor.at -= len(end)
                return header
            if end == _START:
                cursor.at -= len(end)
            if end or _WORDS.sub("", header).strip():
                reading.scribe.text(cursor.text[begin : cursor.at])
            return None
        cursor.at = begin
        return None

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse the arguments; ``mark`` is the header."""
        to = _TO.search(mark)
        assert to is not None
        name = to[1].removeprefix("functions.")
        if to[1] == name and name not in reading.tools:
            raise NoCallError(f"there is no recipient {name[:80]!r}")
        yield from reading.call(name, _ENDS)
        yield from reading.past(_ENDS, (_START, _CHANNEL))

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return one message to a function: the templates allow only one per turn."""

        def body(tool: Tool) -> str:
            to = lark.text(f"commentary to=functions.{tool.name} ")
            head = f'{mark(_CHANNEL)} {to} {mark(_CONSTRAIN)} "json" {mark(_MESSAGE)}'
            return f"{head} {{arguments}} {mark(_CALL)}"

        return "calls: call\n" + lark.for_each(tools, "call", body)
