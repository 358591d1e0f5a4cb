"""trinity recommend: choose the type of a model for the available memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from trinity.cli import options
from trinity.cli.parameters import Argument, BadParameter, Flag
from trinity.cli.terminal import json_line, put, say
from trinity.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from trinity.tools.recommend import Purpose, Recommendation

PURPOSES = ("quality", "balanced", "speed")
LEAST_RAM = 1e6  # a number below this lacks its unit
MOST_BANDWIDTH = 1e6  # in GB/s


def recommend(
    model: Annotated[
        str | None, Argument(f"{options.MODEL_HELP}; of any type.", metavar="MODEL")
    ] = None,
    params: Annotated[
        str | None, Flag("Instead of a model: its number of parameters, such as 7B.")
    ] = None,
    ram: Annotated[
        str | None,
        Flag(
            "The machine's memory, such as 16GB; a part is reserved for the system and other "
            "programs. By default, the free memory.",
            metavar="SIZE",
        ),
    ] = None,
    purpose: Annotated[
        str, Flag("What matters most: quality, balanced or speed.", "--for")
    ] = "balanced",
    context: Annotated[
        int | None, Flag("Tokens of context; default 4096.", "--ctx", "-c", "--ctx-size", min=1)
    ] = None,
    bandwidth: Annotated[
        float | None, Flag("Memory bandwidth in GB/s; measured if not given.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show a model's size in every type, what fits, which to choose, and the expected speed."""
    from trinity.loading import open_weights
    from trinity.options.checks import check_choice, check_number, parse_bytes
    from trinity.tools import recommend as tool

    if (model is None) == (params is None):
        raise BadParameter("give a model, or its number of parameters as --params 7B, but not both")
    path, total = None, None
    with options.wrong_usage():
        wanted = cast("Purpose", check_choice("--for", purpose, PURPOSES))
        if bandwidth is not None:
            check_number("--bandwidth", bandwidth, high=MOST_BANDWIDTH, above=0)
        if ram is not None:
            total = parse_bytes("--ram", ram, LEAST_RAM)
        parameters = None if params is None else tool.parse_count(params)
    if parameters is not None:
        subject = tool.of_size(parameters)
    else:
        provider = open_weights(str(model), notice=say)
        subject, path = tool.of_file(provider), provider.path
    advice = tool.recommend(
        subject,
        ram=available_memory() if total is None else tool.usable_memory(total),
        bandwidth=1e9 * bandwidth if bandwidth is not None else measured_bandwidth(),
        purpose=wanted,
        context=context,
    )
    if as_json:
        put(json_line(as_object(advice, model, path)))
    else:
        show(advice, total)


def available_memory() -> int:
    """Return the free memory in bytes. Raises InputError if the system does not report it."""
    from trinity.tools.machine import available_memory as available

    memory = available()
    if memory is None:
        raise InputError("this system does not report its memory; give it as --ram, such as 16GB")
    return memory


def measured_bandwidth() -> float:
    """Return the bytes per second that this machine's cores can read."""
    from trinity_kernels.bandwidth import read_bandwidth
    from trinity_kernels.cores import default_threads

    say("measuring memory bandwidth")
    return read_bandwidth(default_threads(), nbytes=256 << 20, rounds=3)


def as_object(advice: Recommendation, model: str | None, path: str | None) -> dict[str, object]:
    """Return what --json prints."""
    return {
        "model": model,
        "path": path,
        "subject": advice.model,
        "parameters": advice.parameters,
        "active_parameters": advice.active_parameters,
        "context": advice.context,
        "kv_cache_bytes": advice.kv_cache_bytes,
        "usable_bytes": advice.usable_bytes,
        "read_bandwidth_bytes_per_second": advice.bandwidth,
        "types": [
            {
                "type": row.type,
                "bits_per_weight": row.bits_per_weight,
                "bytes": row.file_bytes,
                "memory_bytes": row.memory_bytes,
                "fits": row.fits,
                "tokens_per_second": row.tokens_per_second,
            }
            for row in advice.rows
        ],
        "take": advice.take,
        "reason": advice.reason,
    }


def show(advice: Recommendation, total: int | None) -> None:
    """Print the table and the choice; ``total`` is the memory that the user gave."""
    from rich.text import Text

    from trinity.cli.inspect_tables import print_rows, printable, show_with
    from trinity.tools.amounts import count_text, size_text

    def write(console: Console) -> None:
        numbers = ("bits per weight", "file", "memory", "tokens/s")
        rows = []
        for row in advice.rows:
            size, memory = size_text(row.file_bytes), size_text(row.memory_bytes)
            mark = "take this" if row.type == advice.take else ("" if row.fits else "too large")
            speed = f"{row.tokens_per_second:.1f}"
            rows.append((row.type, f"{row.bits_per_weight:.2f}", size, memory, speed, mark))
        print_rows(console, ("type", *numbers, ""), rows, numbers)
        console.print(Text(f"\n{sentence(printable(advice.reason, None))}", "bold"))

    put(printable(advice.model, None))
    usable = size_text(advice.usable_bytes)
    if total is None:
        put(f"Free memory: {usable}.")
    else:
        put(f"Memory: {size_text(total)}, {usable} of it for the model.")
    if advice.active_parameters != advice.parameters:
        put(
            f"A token uses {count_text(advice.active_parameters)} of "
            f"{count_text(advice.parameters)} parameters: memory depends on all, time only on "
            "those."
        )
    put(
        f"memory = the file + {size_text(advice.kv_cache_bytes)} for a context of "
        f"{advice.context:,} tokens + 0.3 GB of working memory"
    )
    put(f"tokens/s = the limit at {advice.bandwidth / 1e9:.1f} GB/s of memory bandwidth, about")
    put()
    show_with(write)


def sentence(text: str) -> str:
    """Return ``text`` with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."
