"""trinity imatrix: which channels of a model's weights matter, measured on a text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import reduce
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from trinity.cli import options
from trinity.cli.interrupt import interruptible
from trinity.cli.loading import load_model, progress
from trinity.cli.parameters import BadParameter, Exit, Flag
from trinity.cli.prompts import given_text
from trinity.cli.terminal import say
from trinity.errors import InputError
from trinity.processes.command_line import INTERRUPTED

if TYPE_CHECKING:
    from trinity.formats.imatrix import Imatrix
    from trinity.tools.imatrix import ImatrixProgress

CHUNK = 512  # trinity.formats.imatrix.DEFAULT_CHUNK_SIZE, without its import
LINES = 10  # of progress where nothing can be shown in place
SHOWN = 8  # experts that no token took, by name


@options.takes(loading=options.without(options.LOADING, "context_length"))
def imatrix(
    out: Annotated[str, Flag("--out", "-o", metavar="OUT", help="The importance matrix to write.")],
    model: Annotated[
        str | None,
        Flag("--model", "-m", metavar="MODEL", help=f"{options.MODEL_HELP}."),
    ] = None,
    file: Annotated[
        str | None,
        Flag("--file", "-f", metavar="FILE", help="The text; - reads standard input."),
    ] = None,
    ctx_size: Annotated[
        int,
        Flag("--ctx", "-c", "--ctx-size", min=4, help="Tokens of a chunk."),
    ] = CHUNK,
    chunks: Annotated[
        int | None, Flag("--chunks", min=1, help="Chunks to evaluate; all if not given.")
    ] = None,
    from_chunk: Annotated[int, Flag("--from-chunk", min=0, help="Chunks to leave out.")] = 0,
    in_file: Annotated[
        list[str] | None,
        Flag(
            "--in-file",
            metavar="FILE",
            help="An importance matrix to add to, GGUF or .dat; may be repeated.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        Flag("--resume", help="Go on where the run that wrote OUT stopped; without OUT, begin."),
    ] = False,
    force: options.Force = False,
    save_frequency: Annotated[
        int, Flag("--save-frequency", min=1, help="Write OUT every so many chunks.")
    ] = 10,
    process_output: Annotated[
        bool, Flag("--process-output", help="Gather for the output head too.")
    ] = False,
    ppl: Annotated[
        bool, Flag("--ppl/--no-ppl", help="Show the perplexity; without is faster.")
    ] = True,
    *,
    loading: options.Given,
) -> None:
    """Gather an importance matrix, llama.cpp's imatrix.gguf, for quantizing a model well.

    For every linear weight: the mean squares of its inputs over a text. Without --file, the
    matrices of --in-file are added up. Ctrl-C writes the chunks so far.
    """
    from trinity.formats.imatrix import merge, read_imatrix, write_imatrix

    _check_out(out, [model, file], resume=resume, force=force)
    added = [read_imatrix(path, dat_chunk_size=ctx_size) for path in in_file or []]
    if file is None and added:
        whole = reduce(merge, added)
        write_imatrix(out, whole, overwrite=force)
        _tell(out, whole)
        return
    if model is None:
        raise BadParameter("give the model with --model")
    text = given_text(None, file, what="text", usage="give it with --file or on a pipe")
    former = read_imatrix(out) if resume and os.path.exists(out) else None
    if former is not None and added:
        say(f"note: {out} has what --in-file adds already")
    from trinity.tools.imatrix import gather_imatrix

    with (
        load_model(model, context_length=ctx_size, **loading) as loaded,
        interruptible() as cancel,
        progress("evaluating") as show,
    ):
        try:
            found = gather_imatrix(
                loaded,
                text,
                dataset="standard input" if file in (None, "-") else str(file),
                chunk_size=ctx_size,
                chunks=chunks,
                from_chunk=from_chunk,
                process_output=process_output,
                perplexity=ppl,
                start=reduce(merge, added) if added and former is None else None,
                resume=former,
                progress=_lines(show),
                save=lambda matrix: write_imatrix(out, matrix, overwrite=True),
                save_frequency=save_frequency,
                cancel=cancel,
            )
        except InputError as error:
            if not cancel.is_set():
                raise
            say(f"error: {error}")
            raise Exit(INTERRUPTED) from None
    _tell(out, found)
    if cancel.is_set():
        say("stopped early; --resume goes on at the next chunk")
        raise Exit(INTERRUPTED)


def _check_out(out: str, inputs: list[str | None], *, resume: bool, force: bool) -> None:
    """Raise InputError where ``out`` must not be written: now, not hours later."""
    from trinity.formats import GGUFWriter
    from trinity.formats.gguf_writer import refuse_existing

    GGUFWriter(out)
    for path in inputs:
        if path and os.path.exists(path) and os.path.exists(out) and os.path.samefile(path, out):
            raise InputError(f"{out}: this is what is read; give --out another name")
    if not resume:  # which reads it as the importance matrix that it goes on with
        refuse_existing(out, force)


def _lines(show: Callable[[str], None]) -> Callable[[ImatrixProgress], None]:
    """Progress as lines: each in place on a terminal, else about ``LINES`` in all."""
    started, before = perf_counter(), [-1]

    def tell(now: ImatrixProgress) -> None:
        if before[0] < 0:
            before[0] = now.done - 1
        if not sys.stderr.isatty() and now.done % max(1, now.total // LINES):
            return
        per_chunk = (perf_counter() - started) / (now.done - before[0])
        line = f"{now.done} of {now.total} chunks"
        if now.perplexity is not None:
            line += f": PPL {now.perplexity:.4f}"
        if now.done < now.total:
            line += f", {per_chunk * (now.total - now.done) / 60:.1f} minutes left"
        show(line)

    return tell


def _tell(out: str, matrix: Imatrix) -> None:
    say(
        f"{out}: {len(matrix.entries)} weights, {matrix.chunk_count} chunks of "
        f"{matrix.chunk_size} tokens"
    )
    unseen = matrix.unseen_experts
    if unseen:
        some = ", ".join(f"{expert} of {layer}" for layer, expert in unseen[:SHOWN])
        more = ", ..." if len(unseen) > SHOWN else ""
        say(
            f"warning: no token took {len(unseen)} experts: {some}{more}; nothing is known of "
            "their inputs: give a longer text, of all that the model is for"
        )
