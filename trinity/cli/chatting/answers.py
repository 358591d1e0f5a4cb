"""Print a response of a conversation: its text, its reasoning, why it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trinity.cli.terminal import put_raw, say
from trinity.cli.writing import KEPT, write_piece
from trinity.conversation.parts import Part, Reasoning, Text

if TYPE_CHECKING:
    from trinity.tools.chat_session import Answer, ChatSession

MAKE_ROOM = (
    "/undo removes the last turn, /reset clears the conversation, /set context_shift on drops the "
    "oldest turns from now on, --ctx N enlarges the context"
)
NO_ROOM = (
    "a single turn is too long for the context: /reset clears the conversation, --ctx N enlarges "
    "the context"
)


class AnswerPrinter:
    """Writes the parts of one response: text to standard output, reasoning to standard error."""

    def __init__(self) -> None:
        self._thinking = False
        self.begun = False

    def write(self, part: Part) -> None:
        """Write a part."""
        self.begun = True
        if isinstance(part, Reasoning):
            if not self._thinking:
                say("(thinking)")
            self._thinking = True
            say(part.text, KEPT, end="")
        elif isinstance(part, Text):
            self._end_thinking()
            write_piece(part.text)

    def end(self) -> None:
        """End the line."""
        self._end_thinking()
        put_raw("\n", flush=True)

    def _end_thinking(self) -> None:
        if self._thinking:
            say()
            say("(the response)")
        self._thinking = False


def room(session: ChatSession) -> str:
    """Return advice for a full context."""
    return f"({NO_ROOM if session.shifts else MAKE_ROOM})"


def remarks(session: ChatSession, answer: Answer) -> Iterator[str]:
    """Yield remarks about a finished response."""
    holds = f"the context of {session.model.context_length} tokens is full"
    if answer.forgotten:
        yield (
            f"({holds}: the oldest {session.unsent} messages are no longer sent; /save still "
            "includes them)"
        )
    if answer.full:
        yield f"(the response ends here: {holds})"
        yield room(session)
    elif answer.finish_reason == "length":
        yield "(the response ends here: it reached max_tokens)"
    elif answer.finish_reason == "cancelled":
        yield "(stopped)"
