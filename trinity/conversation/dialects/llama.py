"""{"name": ..., "parameters": {...}}, possibly after <|python_tag|>: Llama 3.1 and later."""

from __future__ import annotations

from collections.abc import Sequence

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects.dialect import Mark
from trinity.conversation.dialects.json_calls import JsonCalls
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool


class Llama(JsonCalls):
    """A response that begins with such an object is a call; several are separated by ";".

    The models also know <function=name>{...}</function> from their documentation.
    """

    name = "llama"
    marks = ("<|python_tag|>", "<function=")
    closes = ("</function>",)
    bare = True
    marks_forced_calls = False
    arguments_key = "parameters"

    def claims(self, template: str) -> bool:
        """Recognize how it writes arguments and results."""
        return '"parameters": ' in template and "ipython" in template

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return one call: the models write only one per turn."""
        return super().grammar(tools, parallel=False, mark=mark)

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse a call: its name after ``<function=``, otherwise a JSON object."""
        cursor = reading.cursor
        if mark == "<function=":
            name, end = yield from cursor.name((">", "{"))
            cursor.at -= end == "{"
            yield from reading.call(name.strip("\"'"), self.closes)
            yield from reading.past(self.closes, self.marks)
            return
        yield from super().read_calls(reading, mark)
