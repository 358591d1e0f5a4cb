"""trinity imatrix: measure on a text which channels of a model's weights matter."""

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
from trinity.cli.prompts import given_text, named_source
from trinity.cli.terminal import say
from trinity.errors import InputError
from trinity.processes.command_line import INTERRUPTED

if TYPE_CHECKING:
    from trinity.formats.imatrix import Imatrix
    from trinity.tools.imatrix import ImatrixProgress

CHUNK = 512  # trinity.formats.imatrix.DEFAULT_CHUNK_SIZE, without its import
LINES = 10  # lines of progress on an output that is not a terminal
SHOWN = 8  # the most experts without tokens that a message names


@options.takes(loading=options.without(options.LOADING, "context_length"))
def imatrix(
    out: Annotated[str, Flag("The importance matrix to write.", "--out", "-o", metavar="OUT")],
    model: Annotated[
        str | None, Flag(f"{options.MODEL_HELP}.", "--model", "-m", metavar="MODEL")
    ] = None,
    file: options.TextFile = None,
    ctx_size: Annotated[
        int, Flag("Tokens of a chunk.", "--ctx", "-c", "--ctx-size", min=4)
    ] = CHUNK,
    chunks: Annotated[
        int | None, Flag("Number of chunks to process; all if not given.", min=1)
    ] = None,
    from_chunk: Annotated[int, Flag("Number of chunks to skip at the start.", min=0)] = 0,
    in_file: Annotated[
        list[str] | None,
        Flag("An importance matrix to add to, GGUF or .dat; may be repeated.", metavar="FILE"),
    ] = None,
    resume: Annotated[
        bool, Flag("Continue where the run that wrote OUT stopped; start if there is no OUT.")
    ] = False,
    force: options.Force = False,
    save_frequency: Annotated[int, Flag("Write OUT after every this many chunks.", min=1)] = 10,
    process_output: Annotated[bool, Flag("Include the output head.")] = False,
    ppl: Annotated[bool, Flag("Show the perplexity; faster without.", "--ppl/--no-ppl")] = True,
    *,
    loading: options.Given,
) -> None:
    """Compute an importance matrix, llama.cpp's imatrix.gguf, which improves quantization.

    For every linear weight it contains the mean squares of the weight's inputs over a text. Without
    --file, the matrices of --in-file are added up. Ctrl-C writes the matrix of the chunks so far.
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
        say(f"note: {out} already contains the matrices of --in-file")
    from trinity.tools.imatrix import gather_imatrix

    with (
        load_model(model, context_length=ctx_size, **loading) as loaded,
        interruptible() as cancel,
        progress("evaluating") as show,
    ):
        try:
            gathered = gather_imatrix(
                loaded,
                text,
                dataset=named_source(file),
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
    _tell(out, gathered)
    if cancel.is_set():
        say("stopped early; --resume continues at the next chunk")
        raise Exit(INTERRUPTED)


def _check_out(out: str, inputs: list[str | None], *, resume: bool, force: bool) -> None:
    """Raise InputError if ``out`` must not be written, before hours of work."""
    from trinity.formats.gguf_writer import GGUFWriter, refuse_existing

    GGUFWriter(out)
    for path in inputs:
        if path and os.path.exists(path) and os.path.exists(out) and os.path.samefile(path, out):
            raise InputError(f"{out}: this is an input file; give --out another name")
    if not resume:  # which reads it as the matrix to continue
        refuse_existing(out, force)


def _lines(show: Callable[[str], None]) -> Callable[[ImatrixProgress], None]:
    """Print progress as lines: in place on a terminal, otherwise about ``LINES`` in all."""
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
            f"warning: no token used {len(unseen)} experts: {some}{more}; their inputs are "
            "unknown: give a longer text that covers all uses of the model"
        )
