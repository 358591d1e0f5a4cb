"""trinity convert: a Hugging Face directory to one GGUF file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from trinity.cli import options
from trinity.cli.inspect_tables import printable
from trinity.cli.terminal import escaped, say, styled_stderr

# As trinity.tools.convert has it; written out, so that --help need not load the conversion.
OUTTYPES = "i2_s, tq1_0, tq2_0 (ternary layers), f16, bf16, f32, q8_0"


@options.takes(loading=options.only(options.LOADING, "weight_scale"))
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A directory with config.json, safetensors and tokenizer, or another model.",
        ),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The GGUF file to write.")],
    outtype: Annotated[str, typer.Option("--outtype", help=f"Type of the layers: {OUTTYPES}.")],
    loading: options.Given,
    force: options.Force = False,
) -> None:
    """Convert a model of Hugging Face's format to GGUF."""
    from trinity.tools.convert import convert as run

    with bar(f"converting {source}") as show:
        made = run(
            source,
            out,
            outtype.lower(),
            weight_scale=loading.get("weight_scale"),
            overwrite=force,
            progress=show,
        )
    for note in made.notes:
        say(f"note: {note}")
    say(
        f"{made.path}: {made.architecture}, {made.num_tensors} tensors, "
        f"{made.num_bytes / 1e6:,.1f} MB"
    )


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on a terminal; elsewhere a line for each tenth of the way."""
    if not sys.stderr.isatty():
        said = [-1]

        def tell(done: int, total: int, name: str) -> None:
            tenth = 10 * done // max(total, 1)
            if tenth > said[0]:
                said[0] = tenth
                say(f"{title}: {10 * tenth}%")

        yield tell
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=styled_stderr()) as progress:
        task = progress.add_task(escaped(title), total=None)

        def move(done: int, total: int, name: str) -> None:
            shown = printable(name or title)
            progress.update(task, completed=done, total=total, description=shown)

        yield move
