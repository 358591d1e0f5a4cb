"""Read a response piece by piece: the reader, and the state that dialects share with it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trinity.conversation.cursor import WHITE, Cursor, NoCallError, Steps
from trinity.conversation.json_text import JsonReader, collect_value, object_of
from trinity.conversation.parts import Part
from trinity.conversation.scribe import Scribe
from trinity.conversation.tools import Tool

_LETTERS = "abcdefghijklmnopqrstuvwxyz_"


class Reading:
    """The text of a response so far, from which dialects parse calls.

    ``bare``: a call may begin a response without a delimiter. ``forced``: a response consists of
    calls only. ``cut``: the text ended within a call's arguments, which were completed.
    ``enclosed`` counts the open marks around the text after reasoning (``Thinking.around``).
    ``committed`` is the position up to which everything was returned; if a call turns out not to be
    one, parsing continues there.
    """

    def __init__(
        self, tools: Sequence[Tool], scribe: Scribe, *, parallel: bool, bare: bool = False,
        forced: bool = False, enclosed: int = 0,
    ) -> None:  # fmt: skip
        self.cursor = Cursor()
        self.scribe = scribe
        self.tools = {tool.name: tool for tool in tools}
        self.parallel = parallel
        self.bare = bare and bool(tools)
        self.forced = forced
        self.cut = False
        self.enclosed = enclosed
        self.committed = 0
        self.in_call = False

    @property
    def complete(self) -> bool:
        """Whether the one call that is allowed has been parsed."""
        return not self.parallel and self.scribe.calls > 0 and not self.in_call

    def tool(self, name: str) -> Tool:
        """Return the tool of that name, optionally prefixed by "functions.". Raises NoCallError."""
        tool = self.tools.get(name) or self.tools.get(name.removeprefix("functions."))
        if tool is None:
            raise NoCallError(f"there is no tool {name[:80]!r}")
        return tool

    def unknown(self, name: str, *, at_end: bool) -> NoCallError:
        """Return the error for an unknown tool, or for a text that ends within a name."""
        part = at_end and any(known.startswith(name) for known in self.tools)
        return NoCallError(f"there is no tool {name[:80]!r}", at_end=part)

    def begin(self, name: str) -> None:
        """Begin a call of the tool.

        Raises NoCallError for another tool, and for a second call if only one is allowed.
        """
        tool = self.tool(name)
        if self.complete:
            raise NoCallError("only one call is allowed")
        self.scribe.call(tool.name)
        self.in_call = True
        self.commit()

    def give(self, arguments: str) -> None:
        """Add a piece of the arguments, read up to the cursor."""
        self.scribe.arguments(arguments)
        self.commit()

    def commit(self) -> None:
        """Mark everything up to the cursor as returned."""
        self.committed = self.cursor.at

    def done(self) -> None:
        """End the call: its arguments are complete."""
        self.in_call = False
        self.commit()

    def call_with(self, name: str, arguments: str) -> None:
        """Add a whole call."""
        self.begin(name)
        self.give(arguments)
        self.done()

    def call(self, name: str, ends: tuple[str, ...] = ()) -> Steps[None]:
        """Parse a call whose arguments are the JSON that follows, also in a code fence or a string.

        ``ends`` are delimiters after the arguments; if one follows immediately, there are none.
        Raises NoCallError.
        """
        cursor = self.cursor
        self.tool(name)
        character = yield from cursor.white()
        fenced = character == "`" and (yield from self.fence())
        ends = (*ends, "```") if fenced else ends
        character = yield from cursor.white()
        if character == "{":
            yield from self.arguments(name, ends)
        elif (yield from self.at(ends)):
            self.call_with(name, "{}")
        elif character in ('"', "n"):
            self.call_with(name, (yield from self.collected(name, ends)))
        else:
            raise NoCallError(
                f"the arguments of {name} are not a JSON object", at_end=not character
            )
        if fenced and (yield from cursor.white()) == "`":
            yield from cursor.skip("```")

    def arguments(self, name: str, ends: tuple[str, ...] = ()) -> Steps[None]:
        """Parse a call whose arguments are the JSON object that follows."""
        self.begin(name)
        yield from self.values(JsonReader(self.cursor, self.give, ends))

    def values(self, reader: JsonReader) -> Steps[None]:
        """Parse all arguments of the call that has begun."""
        self.cut = not (yield from reader.read())
        self.done()
        if self.cut:
            raise NoCallError("the text ends within the arguments", at_end=True)

    def collected(self, name: str, ends: tuple[str, ...] = ()) -> Steps[str]:
        """Return the JSON text of arguments that are an object, an object in a string, or null."""
        value = json.loads((yield from collect_value(self.cursor, ends)))
        if isinstance(value, str):
            text = object_of(value) if value.strip() else "{}"
            if text is None:
                raise NoCallError(f"the arguments of {name} are text that is not a JSON object")
            return text
        if value is not None and not isinstance(value, dict):
            raise NoCallError(f"the arguments of {name} are not a JSON object")
        return json.dumps(value or {}, ensure_ascii=False)

    def fence(self) -> Steps[bool]:
        """Skip the first line of a Markdown code fence; whether there was one."""
        if not (yield from self.cursor.skip("```")):
            return False
        yield from self.cursor.matching(_LETTERS)
        return True

    def at(self, marks: tuple[str, ...]) -> Steps[bool]:
        """Whether one of ``marks`` comes next."""
        for mark in marks:
            if (yield from self.cursor.starts(mark)):
                return True
        return False

    def past(self, closing: tuple[str, ...], opening: tuple[str, ...]) -> Steps[None]:
        """Skip delimiters that close calls, and superfluous brackets.

        The text may end within them.
        """
        cursor, marks = self.cursor, (*closing, *opening)
        while not self.complete:
            begin = cursor.at
            while not (yield from self.at(marks)):
                at_end = yield from cursor.ends_within(marks)
                character = yield from cursor.peek()
                if at_end or not character:
                    cursor.at = len(cursor.text)
                elif character in WHITE + "}])`":
                    cursor.at += 1
                    continue
                else:
                    cursor.at = begin
                self.commit()
                return
            if not (yield from self._skip_one(closing)):
                break
        self.commit()

    def _skip_one(self, marks: tuple[str, ...]) -> Steps[bool]:
        for mark in marks:
            if (yield from self.cursor.skip(mark)):
                return True
        return False


class Reader:
    """Reads one response in pieces, for one thread at a time.

    The parts do not depend on how the response is split into pieces. The arguments of a call are
    always one valid JSON object: errors of the model are repaired, and incomplete arguments are
    completed. A call of an unknown tool is text. ``problems`` says what was wrong.
    """

    def __init__(self, reading: Reading, steps: Steps[list[str]]) -> None:
        self._reading = reading
        self._steps = steps
        self._ended = False
        self.problems: list[str] = []

    @property
    def called(self) -> bool:
        """Whether a call of a tool has begun."""
        return self._reading.scribe.calls > 0

    @property
    def complete(self) -> bool:
        """Whether the response needs no more text: the one call that is allowed has ended."""
        return self._ended

    def push(self, text: str) -> tuple[Part, ...]:
        """The parts that are certain after ``text``, if any."""
        self._reading.cursor.text += text
        return self._go()

    def finish(self) -> tuple[Part, ...]:
        """The remaining parts, once no more text comes."""
        self._reading.cursor.ended = True
        return self._go()

    def _go(self) -> tuple[Part, ...]:
        if not self._ended:
            try:
                next(self._steps)
            except StopIteration as end:
                self._ended = True
                self.problems = end.value
        return self._reading.scribe.take()
