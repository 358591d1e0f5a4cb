"""The command line: one small module per subcommand, registered here and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from trinity.cli import (
    bench,
    chat,
    convert,
    generate,
    imatrix,
    inspect,
    perplexity,
    quantize,
    recommend,
    selftest,
    tokenize,
    warmup,
)
from trinity.cli.exit_codes import explained

COMMANDS: dict[str, Callable[..., None]] = {
    "generate": generate.generate,
    "chat": chat.chat,
    "inspect": inspect.inspect,
    "tokenize": tokenize.tokenize,
    "convert": convert.convert,
    "quantize": quantize.quantize,
    "perplexity": perplexity.perplexity,
    "imatrix": imatrix.imatrix,
    "recommend": recommend.recommend,
    "bench": bench.bench,
    "warmup": warmup.warmup,
    "selftest": selftest.selftest,
}

app = typer.Typer(
    name="trinity",
    help="Run ternary BitNet and GGUF llama models on a CPU.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    app.command(name)(explained(command))


def show_version(wanted: bool) -> None:
    """Print the version and end, where it is wanted."""
    if wanted:
        from trinity import __version__

        print(f"trinity {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Run ternary BitNet and GGUF llama models on a CPU."""


def main() -> None:
    """Run the command line of this process; never returns."""
    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):  # a terminal that lacks a character shows "?"
            output.reconfigure(errors="replace")
    app(prog_name="trinity")
