"""trinity batch: a file of requests to a file of answers."""

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
        Argument(metavar="IN", help="Requests in the form of OpenAI's batches, one a line."),
    ],
    out: Annotated[
        Path,
        Argument(
            metavar="OUT", help="Answers, one a line; what is there already is not asked again."
        ),
    ],
    model: options.ModelOrDemo = None,
    at_once: Annotated[
        int, Flag("--at-once", help="Requests under way together.", min=1, max=256)
    ] = 16,
    *,
    generation: options.Given,
    loading: options.Given,
) -> None:
    """Answer a file of requests, and go on where an earlier run was ended.

    Options of generation are for requests that do not give them. Every request is for this model,
    whatever name it gives. Ends with 1 where answers are errors.
    """
    with libraries():
        from trinity.server.batch import run_batch
    failed = run_batch(
        source, out, model_or_chat_demo(model), at_once=at_once, loading=loading,
        defaults=generation, say=say,
    )  # fmt: skip
    if failed:
        say(f"{out}: {failed} answers are errors")
        raise Exit(1)
