"""How an answer of a conversation is shown: its text, its reasoning, why it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trinity.cli.terminal import put_raw, say
from trinity.cli.writing import KEPT, write_piece
from trinity.conversation.parts import Part, Reasoning, Text

if TYPE_CHECKING:
    from trinity.tools.chat_session import Answer, ChatSession

MAKE_ROOM = (
    "/undo takes the last turn back, /reset starts anew, /set ctx_shift on forgets the oldest "
    "turns from now on, --ctx N gives more room"
)
NO_ROOM = "one turn alone is too long here: /reset starts anew, --ctx N gives room"


class AnswerPrinter:
    """Writes the parts of one answer: text to standard output, reasoning to standard error."""

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
            say("(the answer)")
        self._thinking = False


def room(session: ChatSession) -> str:
    """What can be done where the context is full."""
    return f"({NO_ROOM if session.shifts else MAKE_ROOM})"


def remarks(session: ChatSession, answer: Answer) -> Iterator[str]:
    """What is to be said of an answer that has ended."""
    holds = f"the context of {session.model.context_length} tokens is full"
    if answer.forgotten:
        yield f"({holds}: {session.unsent} messages are sent no longer; /save keeps them)"
    if answer.full:
        yield f"(the answer breaks off here: {holds})"
        yield room(session)
    elif answer.finish_reason == "length":
        yield "(the answer breaks off here: it has as many tokens as max_tokens says)"
    elif answer.finish_reason == "cancelled":
        yield "(stopped)"
