"""trinity convert: a Hugging Face directory to one GGUF file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal, cast

import typer

from trinity.cli.inspect_tables import printable
from trinity.cli.interrupt import cleaning_up

# As trinity.tools.convert has it; written out, so that --help need not load the conversion.
OUTTYPES = "i2_s, tq1_0, tq2_0 (ternary layers), f16, bf16, f32, q8_0"


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE_DIR", help="A directory with config.json, safetensors and tokenizer."
        ),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The GGUF file to write.")],
    outtype: Annotated[str, typer.Option("--outtype", help=f"Type of the layers: {OUTTYPES}.")],
    weight_scale: Annotated[
        str | None,
        typer.Option(
            "--weight-scale",
            help="multiply or divide: what packed ternary weights do with their weight_scale, "
            "where config.json is wrong about it.",
        ),
    ] = None,
) -> None:
    """Convert a llama or BitNet model of Hugging Face's format to GGUF."""
    from trinity.tools.convert import convert as run

    with cleaning_up(), bar(f"converting {source}") as show:
        made = run(
            source,
            out,
            outtype.lower(),
            weight_scale=cast(Literal["multiply", "divide"] | None, weight_scale),
            progress=show,
        )
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    print(
        f"{made.path}: {made.architecture}, {made.num_tensors} tensors, "
        f"{made.num_bytes / 1e6:,.1f} MB",
        file=sys.stderr,
    )


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on a terminal; elsewhere a line for each tenth of the way."""
    if not sys.stderr.isatty():
        said = [-1]

        def say(done: int, total: int, name: str) -> None:
            tenth = 10 * done // max(total, 1)
            if tenth > said[0]:
                said[0] = tenth
                print(f"{title}: {10 * tenth}%", file=sys.stderr, flush=True)

        yield say
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(escape(title), total=None)

        def move(done: int, total: int, name: str) -> None:
            shown = escape(printable(name or title))
            progress.update(task, completed=done, total=total, description=shown)

        yield move
