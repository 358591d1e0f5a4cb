""">>>NAME and the arguments in the next line, or >>>all and a text: Functionary 3.2."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark, Thinking
from trinity.conversation.dialects.json_calls import NAME_CHARACTERS
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool

_TO, _ALL = ">>>", "all\n"


class Recipients(Dialect):
    """The prompt ends with the first delimiter, so that a response begins with a recipient."""

    name = "functionary-3.2"
    marks = (_TO,)
    bare = True
    marks_forced_calls = False
    answer_head = _ALL

    def dropped(self, reading: Reading) -> tuple[str, ...]:
        """The line before a text."""
        return (_TO + _ALL,)

    def claims(self, template: str) -> bool:
        """Recognize the line before a text."""
        return f"{_TO}all" in template

    def read(self, reading: Reading, thinking: Thinking, inside: bool) -> Steps[list[str]]:
        """Parse a response; the recipient "all" at its beginning, of plain text, is skipped."""
        if not inside:
            yield from reading.cursor.skip(_ALL)
        return (yield from super().read(reading, thinking, inside))

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse a name in a line, and its arguments."""
        cursor = reading.cursor
        name = yield from cursor.matching(NAME_CHARACTERS)
        character = yield from cursor.peek()
        if name not in reading.tools:
            raise reading.unknown(name, at_end=not character) if mark or name else NoCallError("")
        if not character or character not in "\n {":
            raise NoCallError("a line feed is missing", at_end=not character)
        yield from reading.call(name, self.marks)
        yield from reading.past((), self.marks)

    def written(self, functions: Sequence[Mapping[str, Any]]) -> str:
        """Write calls as the models do."""
        return "".join(
            f"{_TO}{function['name']}\n{json.dumps(function['arguments'], ensure_ascii=False)}"
            for function in functions
        )

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return calls, the first without its delimiter."""
        calls = lark.repeated("call", lark.text(_TO), parallel)
        return calls + lark.for_each(
            tools, "call", lambda tool: f"{lark.text(tool.name + chr(10))} {{arguments}}"
        )
