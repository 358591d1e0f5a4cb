"""trinity batch: complete a file of requests and write a file of responses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from trinity.cli import options
from trinity.cli.loading import model_or_chat_demo
from trinity.cli.parameters import Argument, Exit, Flag
from trinity.cli.serve import DEFAULTS, libraries
from trinity.cli.terminal import say


@options.takes(generation=DEFAULTS, loading=options.LOADING)
def batch(
    source: Annotated[
        Path,
        Argument(metavar="IN", help="Requests in the format of OpenAI's batches, one per line."),
    ],
    out: Annotated[
        Path,
        Argument(
            metavar="OUT",
            help=("Responses, one per line; requests that have one already are skipped."),
        ),
    ],
    model: options.ModelOrDemo = None,
    at_once: Annotated[
        int, Flag("--at-once", help="Number of requests that run at once.", min=1, max=256)
    ] = 16,
    *,
    generation: options.Given,
    loading: options.Given,
) -> None:
    """Complete a file of requests, and continue where an earlier run stopped.

    Options of generation apply to requests that do not give them. Every request uses this model,
    whatever name it gives. The exit code is 1 if responses are errors.
    """
    with libraries():
        from trinity.server.batch import run_batch
    failed = run_batch(
        source, out, model_or_chat_demo(model), at_once=at_once, loading=loading,
        defaults=generation, say=say,
    )  # fmt: skip
    if failed:
        say(f"{out}: {failed} responses are errors")
        raise Exit(1)
