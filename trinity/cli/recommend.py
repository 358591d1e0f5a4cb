"""trinity recommend: which type of a model to take for this much memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from trinity.cli import options
from trinity.cli.terminal import json_line, put, say

if TYPE_CHECKING:
    from rich.console import Console

    from trinity.tools.recommend import Recommendation

LEAST_RAM = 1e6  # a number without a unit is a slip


def recommend(
    model: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A model file, of any type.")
    ] = None,
    params: Annotated[
        str | None, typer.Option("--params", help="Instead of a file: its size, such as 7B.")
    ] = None,
    ram: Annotated[
        str | None,
        typer.Option("--ram", help="Memory to use, such as 16GB; default what is available now."),
    ] = None,
    purpose: Annotated[str, typer.Option("--for", help="quality, balanced or speed.")] = "balanced",
    context: Annotated[
        int | None, typer.Option("--ctx", "-c", help="Tokens of context; default 4096.")
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option("--bandwidth", help="GB/s that memory gives; default: measured."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show a model's size in every type, what fits, what to take, and the speed to expect."""
    from trinity.checks import parse_bytes
    from trinity.errors import InputError
    from trinity.loading import open_weights
    from trinity.tools import recommend as tool

    if (model is None) == (params is None):
        raise InputError("give a model file or --params, one of the two")
    if purpose not in ("quality", "balanced", "speed"):
        raise InputError(f"--for is {purpose!r:.40}; it must be quality, balanced or speed")
    if bandwidth is not None and not 0 < bandwidth < 1e6:
        raise InputError(f"--bandwidth is {bandwidth}; expected GB/s, such as 30")
    if params is not None:
        subject = tool.of_size(tool.parse_count(params))
    else:
        assert model is not None
        subject = tool.of_file(open_weights(model, notice=say))
    found = tool.recommend(
        subject,
        ram=parse_bytes("--ram", ram, LEAST_RAM) if ram is not None else available_memory(),
        bandwidth=1e9 * bandwidth if bandwidth is not None else measured_bandwidth(),
        purpose=cast(Literal["quality", "balanced", "speed"], purpose),
        context=context,
    )
    if as_json:
        put(json_line(asdict(found)))
    else:
        show(found)


def available_memory() -> int:
    """Bytes that are free to use. Raises InputError where the system does not say."""
    from trinity.errors import InputError
    from trinity.tools.machine import available_memory as available

    found = available()
    if found is None:
        raise InputError("this system does not tell its memory; give it as --ram, such as 16GB")
    return found


def measured_bandwidth() -> float:
    """Bytes per second that this machine's cores read."""
    from trinity_kernels.bandwidth import read_bandwidth
    from trinity_kernels.team import default_threads

    say("measuring memory bandwidth")
    return read_bandwidth(default_threads(), nbytes=256 << 20, rounds=3)


def show(found: Recommendation) -> None:
    """Print the table and the choice."""
    from rich.text import Text

    from trinity.cli.inspect_tables import print_rows, printable, show_with
    from trinity.tools.recommend import count_text, size_text

    def write(console: Console) -> None:
        numbers = ("bits per weight", "file", "memory", "tokens/s")
        rows = []
        for row in found.rows:
            size, memory = size_text(row.file_bytes), size_text(row.memory_bytes)
            mark = "take this" if row.type == found.take else ("" if row.fits else "too large")
            speed = f"{row.tokens_per_second:.1f}"
            rows.append((row.type, f"{row.bits_per_weight:.2f}", size, memory, speed, mark))
        print_rows(console, ("type", *numbers, ""), rows, numbers)
        console.print(Text(f"{printable(found.reason, None)}.", "bold"))

    put(f"{printable(found.model, None)}; memory to use: {size_text(found.ram_bytes)}")
    if found.active_parameters != found.parameters:
        put(
            f"Of {count_text(found.parameters)} parameters a token takes "
            f"{count_text(found.active_parameters)}: memory is needed for all, time for those."
        )
    put(
        f"Memory counts the file, {size_text(found.kv_cache_bytes)} of cache for "
        f"{found.context:,} tokens and 0.3 GB to work in; tokens/s from "
        f"{found.bandwidth / 1e9:.1f} GB/s."
    )
    show_with(write)
