"""trinity perplexity: measure how well a model predicts a text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.interrupt import interruptible
from trinity.cli.loading import load_model, model_or_demo
from trinity.cli.parameters import Exit, Flag
from trinity.cli.prompts import given_text, named_source
from trinity.cli.terminal import json_line, put, say, styled_stderr
from trinity.errors import InputError, about
from trinity.processes.command_line import INTERRUPTED

if TYPE_CHECKING:
    from trinity.runtime.likelihoods.perplexity import Perplexity

WINDOW = 512  # trinity.runtime.likelihoods.perplexity.DEFAULT_WINDOW, without its import
LINES = 10  # lines of progress on an output that is not a terminal


@options.takes(loading=options.without(options.LOADING, "context_length"))
def perplexity(
    model: options.ModelOrDemo = None,
    file: options.TextFile = None,
    ctx: Annotated[int, Flag("Tokens of a window.", "--ctx", "-c", "--ctx-size", min=4)] = WINDOW,
    *,
    loading: options.Given,
    as_json: options.Json = False,
) -> None:
    """Measure perplexity and bits per byte of a text, with llama.cpp's conventions.

    The text is divided into windows; the second half of each is scored.
    """
    text = given_text(None, file, what="text", usage="give it with --file or on a pipe")
    path = model_or_demo(model)
    with (
        load_model(path, context_length=ctx, **loading) as loaded,
        interruptible() as cancel,
        running_estimate() as show,
    ):
        weights = loaded.weights
        try:
            with about(named_source(file), path):
                result = loaded.perplexity(text, window=ctx, progress=show, cancel=cancel)
        except InputError:
            if cancel.is_set():  # before the first window
                raise KeyboardInterrupt from None
            raise
    if as_json:
        where = path if weights is None else weights.path
        put(json_line({"model": path, "path": where, **asdict(result)}))
    else:
        put(f"PPL = {result.perplexity:.4f} +/- {result.error:.4f}")
        put(f"{result.bits_per_byte:.4f} bits per byte")
        put(
            f"{result.scored_tokens} tokens scored, in the second halves of {result.windows} "
            f"windows of {result.window}"
        )
    if cancel.is_set():
        done, total = result.windows, result.total_windows
        say(f"stopped after {done} of {total} windows")
        raise Exit(INTERRUPTED)


@contextmanager
def running_estimate() -> Iterator[Callable[[Perplexity], None]]:
    """Yield a function that shows the estimate so far: with a bar on a terminal, else as lines."""
    if not sys.stderr.isatty():
        yield show_line
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=styled_stderr(), transient=True) as bar:
        task = bar.add_task("PPL", total=None)
        yield lambda now: bar.update(
            task,
            description=f"PPL {now.perplexity:.4f}",
            completed=now.windows,
            total=now.total_windows,
        )


def show_line(now: Perplexity) -> None:
    """Print a line to standard error, about ``LINES`` times in all."""
    if now.windows % max(1, now.total_windows // LINES) == 0:
        done = f"{now.windows} of {now.total_windows} windows"
        say(f"{done}: PPL {now.perplexity:.4f}")
