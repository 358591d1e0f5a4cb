"""The loop of a chat: read an entry, then respond to it or run it as a command."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

from trinity.cli.chatting.answers import AnswerPrinter, remarks, room
from trinity.cli.chatting.chat_input import read_input
from trinity.cli.chatting.commands import run_command
from trinity.cli.chatting.lines import LineSource, entries
from trinity.cli.chatting.terminal_mode import unechoed
from trinity.cli.interrupt import interruptible
from trinity.cli.terminal import say
from trinity.errors import ContextLengthError, TrinityError

if TYPE_CHECKING:
    from trinity.runtime.options import Cancel
    from trinity.tools.chat_session import Answer, ChatSession, Show


class Dialogue:
    """A session and the source of its entries.

    With ``patient``, errors are printed and the loop continues, for a user at a terminal; otherwise
    they are raised. ``files`` are the paths that the conversation was saved to or loaded from.
    ``over`` ends the loop.
    """

    def __init__(self, session: ChatSession, source: LineSource, *, patient: bool) -> None:
        self.session = session
        self.files: set[str] = set()
        self.over = False
        self._source = source
        self._patient = patient
        self._cancel: Cancel = Event()

    def run(self) -> None:
        """Handle entries until there are no more.

        Ctrl-C stops a response early. If the response has just ended, it has no effect; a second
        one ends the program.
        """
        for text in entries(self._source):
            try:
                with interruptible() as self._cancel:
                    self._take(text)
            except TrinityError as error:
                if not self._patient:
                    raise
                say(f"error: {error}")
                if isinstance(error, ContextLengthError):
                    say(room(self.session))
            if self.over:
                return

    def show(self, ask: Callable[[Show, Cancel], Answer]) -> None:
        """Have the session generate a response, and print it as it arrives."""
        writer = AnswerPrinter()
        try:
            with unechoed():
                answer = ask(writer.write, self._cancel)
        except TrinityError:
            if writer.begun:
                writer.end()
            raise
        writer.end()
        for remark in remarks(self.session, answer):
            say(remark)

    def _take(self, text: str) -> None:
        given = read_input(text)
        if given.command is not None:
            run_command(self, given.command, given.text)
        elif given.text.strip():
            self.show(lambda show, cancel: self.session.ask(given.text, show, cancel))
