"""The command line: one small module per subcommand, registered here and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from trinity.cli import (
    batch,
    bench,
    chat,
    convert,
    doctor,
    embed,
    generate,
    imatrix,
    inspect,
    listing,
    perplexity,
    pull,
    quantize,
    rank,
    recommend,
    remove,
    schema,
    selftest,
    serve,
    tokenize,
    transcribe,
    warmup,
)
from trinity.cli.exit_codes import explained
from trinity.cli.llama_cpp import Group, LlamaCommand
from trinity.cli.terminal import finish, put, say, take_streams, unwritable
from trinity.errors import TrinityError

COMMANDS: dict[str, Callable[..., None]] = {
    "generate": generate.generate,
    "chat": chat.chat,
    "serve": serve.serve,
    "batch": batch.batch,
    "pull": pull.pull,
    "list": listing.list_models,
    "rm": remove.remove,
    "embed": embed.embed,
    "rank": rank.rank,
    "inspect": inspect.inspect,
    "tokenize": tokenize.tokenize,
    "transcribe": transcribe.transcribe,
    "schema": schema.schema,
    "convert": convert.convert,
    "quantize": quantize.quantize,
    "perplexity": perplexity.perplexity,
    "imatrix": imatrix.imatrix,
    "recommend": recommend.recommend,
    "bench": bench.bench,
    "warmup": warmup.warmup,
    "selftest": selftest.selftest,
    "doctor": doctor.doctor,
}

app = typer.Typer(
    name="trinity",
    cls=Group,
    help="Run language models, ternary and quantized ones above all, on a CPU.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    app.command(name, cls=LlamaCommand)(explained(command))


def show_version(wanted: bool) -> None:
    """Print the version and end, where it is wanted."""
    if wanted:
        from trinity import __version__

        put(f"trinity {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Run language models, ternary and quantized ones above all, on a CPU."""


def main() -> NoReturn:
    """Run the command line of this process; never returns."""
    take_streams()
    streams = sys.stdout, sys.stderr
    status = 0
    try:
        app(prog_name="trinity")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except TrinityError as error:  # of --version
        say(f"error: {error}")
        status = 1
    except OSError as error:  # of --help
        say(f"error: {unwritable(error)}")
        status = 1
    if sys.stdout is not streams[0]:  # typer's own end where a reader has had enough
        sys.stdout, sys.stderr = streams
        status = 0
    sys.exit(finish(status))
