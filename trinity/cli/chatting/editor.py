"""Read entries from a terminal with line editing, by prompt_toolkit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from trinity.cli.chatting.chat_input import is_open
from trinity.cli.chatting.lines import CONTINUATION, PROMPT
from trinity.cli.chatting.terminal_mode import restored
from trinity.cli.interrupt import raising


class Editor:
    """A line editor with history and completion.

    Pasted text is inserted unchanged, including its line feeds. Enter ends an entry, except within
    an open block or after a backslash at the end of the line.
    """

    def __init__(self, completer: Completer, history: History | None = None) -> None:
        self._session: PromptSession[str] = PromptSession(
            [("bold ansigreen", PROMPT)],
            multiline=Condition(lambda: is_open(self._session.default_buffer.text)),
            prompt_continuation=_continuation,
            history=history or InMemoryHistory(),
            completer=completer,
            complete_while_typing=False,
            enable_open_in_editor=True,
            enable_suspend=True,
            key_bindings=_bindings(),
        )

    def read(self) -> str:
        """Return the next entry. Raises EOFError on Ctrl-D, KeyboardInterrupt on Ctrl-C."""
        with raising(), restored():
            text = self._session.prompt()
        return text.encode("utf-8", "replace").decode()


class InputCompleter(Completer):
    """Completes commands and their arguments.

    ``arguments`` maps each command, with its slash, to its possible arguments; None for a path.
    """

    def __init__(self, arguments: Mapping[str, Sequence[str] | None]) -> None:
        self._arguments = arguments
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield completions for the text before the cursor."""
        command, space, word = document.text_before_cursor.partition(" ")
        words: Iterable[str] | None = self._arguments.get(command, ())
        if not space:
            word, words = command, self._arguments if command.startswith("/") else ()
        if words is None:
            yield from self._paths.get_completions(Document(word), complete_event)
            return
        for candidate in words:
            if candidate.startswith(word):
                yield Completion(candidate, -len(word))


def _continuation(width: int, line: int, wraps: int) -> str:
    """Return what begins a further row: a prompt, or spaces if the line is only wrapped."""
    return " " * len(PROMPT) if wraps else CONTINUATION


def _bindings() -> KeyBindings:
    """Bind Enter and Alt-Enter to line feeds within a message."""
    bindings = KeyBindings()

    @Condition
    def goes_on() -> bool:
        document = get_app().current_buffer.document
        at_end = document.is_cursor_at_the_end and document.text.endswith("\\")
        return at_end and not is_open(document.text)

    @bindings.add("enter", filter=goes_on & has_focus(DEFAULT_BUFFER))
    def _go_on(event: KeyPressEvent) -> None:
        event.current_buffer.delete_before_cursor()
        event.current_buffer.insert_text("\n")

    @bindings.add("escape", "enter")
    def _line_feed(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
