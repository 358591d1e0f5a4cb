"""Print the tables of docs/options.md from the declarations of the options.

python scripts/documents/options_table.py           print them
python scripts/documents/options_table.py --write   put them into docs/options.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

from trinity.cli.application import application
from trinity.options.load_options import LoadOptions
from trinity.options.option import Declared, declared
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.options import Request
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.server.settings import ServerOptions
from trinity.speech.options import SpeechOptions

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "options.md"
TABLES = (
    ("Loading", LoadOptions),
    ("Sampling", SamplingParams),
    ("The end of a response", GenerationLimits),
    ("Prompt, speed and the rest", Request),
    ("Serving", ServerOptions),
    ("Speech", SpeechOptions),
)
HEAD = "| Python | command line | values | default | meaning | commands |"


@cache
def commands() -> Mapping[str, Any]:
    """Return the subcommands by name."""
    found: Mapping[str, Any] = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    return found


def commands_of(one: Declared) -> list[str]:
    """Return the subcommands with an option of this name and these flags."""
    flags = {part for flag in one.option.flags for part in flag.split("/")}
    return [
        name
        for name, command in commands().items()
        for parameter in command.params
        if parameter.name == one.name and {*parameter.opts, *parameter.secondary_opts} == flags
    ]


def default_text(value: object) -> str:
    """Format a default as Python."""
    return f"`{value!r}`" if value != () else "none"


def row(one: Declared) -> str:
    """Return the row of one option."""
    flags = ", ".join(f"`{part}`" for flag in one.option.flags for part in flag.split("/"))
    cells = (
        f"`{one.name}`",
        flags or "-",
        one.values,
        default_text(one.default),
        one.option.help,
        ", ".join(commands_of(one)) or "-",
    )
    return f"| {' | '.join(cells)} |"


def section(title: str, options: Iterable[Declared]) -> str:
    """Return a heading and its table."""
    rows = "\n".join(row(one) for one in options)
    return f"## {title}\n\n{HEAD}\n|{' --- |' * HEAD.count(' | ')} --- |\n{rows}\n"


def tables() -> str:
    """Return all tables, as they are at the end of the document."""
    return "\n".join(section(title, declared(holder)) for title, holder in TABLES)


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put them into docs/options.md")
    if not parser.parse_args().write:
        print(tables(), end="")
        return
    text = DOCUMENT.read_text("utf-8")
    before = text[: text.index(f"## {TABLES[0][0]}\n")]
    DOCUMENT.write_text(before + tables(), "utf-8")


if __name__ == "__main__":
    main()
