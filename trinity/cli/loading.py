"""Load a model for a command, with progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trinity.cli.terminal import escaped, say, styled_stderr
from trinity.errors import InputError

if TYPE_CHECKING:
    from trinity.formats.defaults import ChatTemplate
    from trinity.model import Model


def model_or_demo(path: str | None) -> str:
    """Return ``path``, or that of the demo model, which is then named on standard error."""
    if path is not None:
        return path
    from trinity.loading import demo_model

    say("using the demo model; give --model FILE for another")
    return demo_model()


def model_or_chat_demo(path: str | None) -> str:
    """Return ``path``, or that of the demo chat model, which is then named on standard error."""
    if path is not None:
        return path
    from trinity.loading import chat_model

    say("using the demo chat model; give --model FILE for another")
    return chat_model()


@contextmanager
def progress(title: str, *stays: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a line of progress: in place on a terminal.

    Warnings, notes and lines that begin with one of ``stays`` are not overwritten.
    """
    if not sys.stderr.isatty():
        yield say
        return
    from rich.text import Text

    console = styled_stderr()
    with console.status(Text(escaped(title))) as status:

        def show(line: str) -> None:
            if line.startswith(("warning:", "note:", *stays)):
                console.print(Text(escaped(line)))
            else:
                status.update(Text(escaped(line)))

        yield show


def load_model(path: str, **loading: Any) -> Model:
    """Load the model at ``path`` with options of ``trinity.load``, and show progress."""
    import trinity.loading

    with progress(f"loading {path}", f"{path}: ") as show:
        return trinity.loading.load(path, **loading, progress=show)


def check_has_template(
    model: Model, path: str, template: ChatTemplate | None, instead: str
) -> None:
    """Raise InputError if neither the file nor the command line has a chat template."""
    if template is None and not model.chat_templates:
        raise InputError(
            f"{path}: the file has no chat template; give one with --chat-template FILE, or "
            f"{instead}"
        )


def note_of_purpose(model: Model) -> None:
    """Print a note if the file says that the model was not trained to generate text."""
    from trinity.model_defaults import made_for

    use = None if model.weights is None or model.encodes else made_for(model.weights)
    if use is not None:
        what = "rank texts" if use == "rank" else "make vectors of texts"
        say(
            f"note: the file's pooling_type says that the model was trained to {what}; generated "
            f"text may be meaningless: use `trinity {use}`"
        )
