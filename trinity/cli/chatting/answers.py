"""Print a response of a conversation: its text, its reasoning, why it ended."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trinity.cli.chatting.markdown import DIM, MarkdownWriter
from trinity.cli.terminal import escaped, put_raw, say
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


def columns() -> int:
    """Return the terminal's width."""
    return shutil.get_terminal_size().columns


def has_styles() -> bool:
    """Whether standard output is a terminal that shows styles."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class AnswerPrinter:
    """Writes the parts of one response: text to standard output, reasoning to standard error.

    A terminal gets wrapped lines and rendered Markdown; a file or a pipe gets the text unchanged.
    """

    def __init__(self) -> None:
        self._thinking = False
        self.begun = False
        self._text = self._reasoning = None
        if has_styles():
            self._text = MarkdownWriter(lambda text: put_raw(text, flush=True), columns)
        if sys.stderr.isatty() and has_styles():
            self._reasoning = MarkdownWriter(
                lambda text: say(text, KEPT + "\x1b", end=""), columns, DIM
            )

    def write(self, part: Part) -> None:
        """Write a part."""
        self.begun = True
        if isinstance(part, Reasoning):
            if not self._thinking:
                say("(thinking)")
            self._thinking = True
            if self._reasoning is None:
                say(part.text, KEPT, end="")
            else:
                self._reasoning.push(escaped(part.text, KEPT))
        elif isinstance(part, Text):
            self._end_thinking()
            if self._text is None:
                write_piece(part.text)
            else:
                self._text.push(escaped(part.text, KEPT))

    def end(self) -> None:
        """End the line."""
        self._end_thinking()
        if self._text is not None:
            self._text.end()
        put_raw("\n", flush=True)

    def _end_thinking(self) -> None:
        if self._thinking:
            if self._reasoning is not None:
                self._reasoning.end()
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
