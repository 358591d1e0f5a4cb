"""[TOOL_CALLS], then a JSON list of calls or, in newer models, name[ARGS]{...} for each call."""

from __future__ import annotations

from collections.abc import Sequence

from trinity.conversation.cursor import NoCallError, Steps
from trinity.conversation.dialects import lark
from trinity.conversation.dialects.dialect import Dialect, Mark
from trinity.conversation.dialects.json_calls import NAME_CHARACTERS, JsonCalls, read_json
from trinity.conversation.reading import Reading
from trinity.conversation.tools import Tool


class Mistral(Dialect):
    """Both formats are parsed; the template decides which one is forced."""

    marks = ("[TOOL_CALLS]",)
    bare = True
    id_prefix, id_length = "", 9  # the templates refuse other ids

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All delimiters, including those within a call."""
        return (*self.marks, "[CALL_ID]", "[ARGS]")

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse calls; the text after the delimiter shows the format."""
        cursor = reading.cursor
        character = yield from cursor.white()
        if character in ("[", "{") and not (yield from cursor.starts("[ARGS]")):
            yield from read_json(reading)
        else:
            name = yield from cursor.matching(NAME_CHARACTERS)
            character = yield from cursor.white()
            if name not in reading.tools:
                raise reading.unknown(name, at_end=not character)
            if (yield from cursor.skip("[CALL_ID]")):
                yield from cursor.matching(NAME_CHARACTERS)
                yield from cursor.white()
            if not (yield from cursor.skip("[ARGS]")) and (not mark or character not in "{`"):
                raise NoCallError(f"no arguments follow the call of {name}", at_end=not character)
            yield from reading.call(name)
        yield from reading.past((), self.marks)


class MistralList(Mistral, JsonCalls):
    """The format up to Mistral Nemo and Small 2409."""

    name = "mistral-list"
    opening, in_list = "[TOOL_CALLS]", True

    def claims(self, template: str) -> bool:
        """Recognize the delimiter of calls; dialects with newer delimiters come first."""
        return "[TOOL_CALLS]" in template


class MistralArguments(Mistral):
    """The format from Mistral Small 3.2 and Devstral on."""

    name = "mistral"

    def claims(self, template: str) -> bool:
        """Recognize its delimiters."""
        return "[TOOL_CALLS]" in template and "[ARGS]" in template

    def grammar(self, tools: Sequence[Tool], *, parallel: bool, mark: Mark) -> str:
        """Return name and arguments."""
        begin, between = mark("[TOOL_CALLS]"), mark("[ARGS]")
        return lark.repeated("call", "", parallel) + lark.for_each(
            tools, "call", lambda tool: f"{begin} {lark.text(tool.name)} {between} {{arguments}}"
        )
