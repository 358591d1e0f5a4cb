"""An answer in the middle of being read: where it is, what has come of it, what it may call."""

from __future__ import annotations

from collections.abc import Sequence

from trinity.conversation.cursor import Cursor, NoCallError, Steps
from trinity.conversation.json_text import read_value
from trinity.conversation.scribe import Scribe
from trinity.conversation.tools import Tool


class Reading:
    """What dialects read calls with.

    ``bare``: a call may begin an answer without a mark.
    ``committed`` is the place up to which all has been handed on: where a call turns out to be
    none, reading goes on there.
    """

    def __init__(
        self, tools: Sequence[Tool], scribe: Scribe, *, parallel: bool, bare: bool = False
    ) -> None:
        self.cursor = Cursor()
        self.scribe = scribe
        self.tools = {tool.name: tool for tool in tools}
        self.parallel = parallel
        self.bare = bare and bool(tools)
        self.committed = 0
        self.in_call = False

    @property
    def complete(self) -> bool:
        """Whether the one call that is allowed has been read."""
        return not self.parallel and self.scribe.calls > 0 and not self.in_call

    def tool(self, name: str) -> Tool:
        """The tool of that name. Raises NoCallError."""
        found = self.tools.get(name)
        if found is None:
            raise NoCallError(f"there is no tool {name[:80]!r}")
        return found

    def begin(self, name: str) -> None:
        """A call of the tool begins. Raises NoCallError for another tool, and a second call where
        one is all that is allowed."""
        self.tool(name)
        if self.complete:
            raise NoCallError("only one call is allowed")
        self.scribe.call(name)
        self.in_call = True
        self.commit()

    def give(self, arguments: str) -> None:
        """A piece of the arguments, read up to the cursor."""
        self.scribe.arguments(arguments)
        self.commit()

    def commit(self) -> None:
        """All up to the cursor has been handed on."""
        self.committed = self.cursor.at

    def done(self) -> None:
        """The call's arguments are complete."""
        self.in_call = False
        self.commit()

    def call_with(self, name: str, arguments: str) -> None:
        """A whole call at once."""
        self.begin(name)
        self.give(arguments)
        self.done()

    def call(self, name: str) -> Steps[None]:
        """A call whose arguments are the JSON object that comes next. Raises NoCallError."""
        self.tool(name)
        if (yield from self.cursor.white()) != "{":
            raise NoCallError(
                f"the arguments of {name} are no JSON object",
                at_end=self.cursor.at == len(self.cursor.text),
            )
        self.begin(name)
        yield from read_value(self.cursor, self.give)
        self.done()
