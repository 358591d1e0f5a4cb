"""trinity chat: a conversation of several turns."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.chatting.settings import CONTEXT_SHIFT, SETTINGS
from trinity.cli.chatting.terminal_mode import unechoed
from trinity.cli.loading import check_has_template, load_model, model_or_chat_demo, note_of_purpose
from trinity.cli.parameters import Flag
from trinity.cli.prompts import given_template
from trinity.cli.terminal import say
from trinity.errors import InputError

if TYPE_CHECKING:
    from trinity.cli.chatting.history import KeptHistory
    from trinity.cli.chatting.lines import LineSource


@options.takes(generation=SETTINGS, loading=options.LOADING)
def chat(
    model: options.ModelOrChatDemo = None,
    system: Annotated[str | None, Flag("System message.")] = None,
    template: options.ChatTemplate = None,
    history: Annotated[
        bool, Flag("Store a history of the input.", "--history/--no-history")
    ] = True,
    *,
    generation: options.Given,
    loading: options.Given,
) -> None:
    """Chat with a model. /help lists the commands; input may be piped, one turn per line."""
    own = None if template is None else given_template(template)
    path = model_or_chat_demo(model)
    with ExitStack() as opened:
        with unechoed():
            loaded = opened.enter_context(load_model(path, **loading))
        if loaded.encodes:
            use = "rank" if loaded.ranks else "embed"
            raise InputError(
                f"{path}: the model is an encoder, which cannot generate text: use `trinity {use}`"
            )
        check_has_template(loaded, path, own, "use `trinity generate`")
        note_of_purpose(loaded)
        from trinity.cli.chatting.dialogue import Dialogue
        from trinity.tools.chat_session import ChatSession

        shifts = bool(generation.pop(CONTEXT_SHIFT.name, CONTEXT_SHIFT.default))
        session = ChatSession(loaded, generation, template=own, system=system, shifts=shifts)
        Dialogue(session, source(history=history), patient=sys.stdin.isatty()).run()


def source(*, history: bool) -> LineSource:
    """Return the source of entries: an editor on a capable terminal, otherwise plain lines."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        from trinity.cli.chatting.lines import LineReader

        return LineReader(prompts=sys.stdin.isatty())
    from trinity.cli.chatting.commands import BY_NAME
    from trinity.cli.chatting.editor import Editor, InputCompleter

    kept = _kept_history() if history else None
    say("(/help lists the commands; Ctrl-D quits)")
    words = {f"/{name}": command.words for name, command in BY_NAME.items()}
    return Editor(InputCompleter(words), kept)


def _kept_history() -> KeptHistory | None:
    """Return the stored history; None, with a note, if it cannot be stored."""
    from trinity.cli.chatting.history import KeptHistory, state_folder

    try:
        path = state_folder() / "chat_history"
    except RuntimeError:
        say("note: the history is not stored: no home directory is known; set HOME")
        return None
    try:
        return KeptHistory(path)
    except OSError as error:
        say(f"note: the history is not stored in {path}: {error.strerror or error}")
        return None
