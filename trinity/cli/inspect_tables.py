"""The tables that trinity inspect prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Any

from trinity.cli.terminal import escaped, json_line, put, put_raw

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from trinity.tools.diff import Diff
    from trinity.tools.verify import Verification

WIDEST_SHOWN = 100  # characters of a value in the table
SHORT_SUM = 16  # of a checksum's 64 digits


def printable(value: object, widest: int | None = WIDEST_SHOWN) -> str:
    """One line without control characters: a file must not write to the terminal as it likes.

    ``widest``: characters that are shown of it; None for all.
    """
    if isinstance(value, dict) and "array" in value:
        return f"{value['array']}, {value['length']} elements"
    text = escaped(value) if isinstance(value, str) else json_line(value)
    return text if widest is None or len(text) <= widest else text[:widest] + "..."


def show(description: dict[str, object]) -> None:
    """Print the description as tables."""
    show_with(lambda console: show_on(console, description))


def show_with(write: Callable[[Console], None]) -> None:
    """Print what is written; on a pipe without colours, wrapping and padding."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    text = StringIO()  # what cannot be written is then noticed in one place
    width = None if is_terminal else 100_000
    write(Console(file=text, force_terminal=is_terminal, width=width, highlight=False))
    for line in text.getvalue().splitlines():
        put_raw(line.rstrip() + "\n")


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table without lines."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, show_header=bool(columns[0]))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def show_on(console: Console, description: dict[str, object]) -> None:
    """Write the tables to ``console``."""
    from rich.text import Text

    def pairs(title: str, values: object) -> None:
        console.print(Text(title, "bold"))
        made = table("", "value")
        for key, value in values.items() if isinstance(values, dict) else ():
            made.add_row(Text(f"  {printable(key)}"), Text(printable(value)))
        console.print(made)

    pairs(printable(description["path"], None), description["header"])
    if description["config"] is not None:
        pairs("configuration", description["config"])
    else:
        console.print(Text("configuration", "bold"))
        console.print(Text(f"  none: {printable(description['config_error'], None)}"))
    pairs("metadata", description["metadata"])
    tensors = description["tensors"]
    assert isinstance(tensors, list)
    console.print(Text(f"{len(tensors)} tensors", "bold"))
    made = table("  name", "shape", "type", "bytes", right=("bytes",))
    for tensor in tensors:
        shape = " x ".join(map(str, tensor["shape"]))
        name = f"  {printable(tensor['name'])}"
        made.add_row(Text(name), Text(shape), Text(tensor["type"]), Text(f"{tensor['bytes']:,}"))
    console.print(made)
    types = description["types"]
    assert isinstance(types, dict)
    console.print(Text("types", "bold"))
    numbers = ("tensors", "parameters", "bytes", "bits per weight")
    made = table("  type", *numbers, right=numbers)
    for name, row in types.items():
        counts = (f"{row[key]:,}" for key in ("tensors", "parameters", "bytes"))
        made.add_row(Text(f"  {printable(name)}"), *counts, decimals(row["bits_per_weight"]))
    console.print(made)
    total = f"{description['parameters']:,} parameters in {description['tensor_bytes']:,} bytes"
    average = description["bits_per_weight"]
    if isinstance(average, float):
        total += f", {decimals(average)} bits per weight"
    console.print(Text(total))


def decimals(value: float | None) -> str:
    """Two decimals, or nothing."""
    return "" if value is None else f"{value:.2f}"


def show_diff(found: Diff, first: str, second: str) -> None:
    """Print what differs between two models, in the order of their files."""
    if found.is_empty:
        put(f"no difference: {found.same_tensors} tensors and all keys are the same")
        return

    def write(console: Console) -> None:
        from rich.text import Text

        lists = (
            (f"keys only in {first}", found.keys_only_first),
            (f"keys only in {second}", found.keys_only_second),
            ("keys with other values", found.keys_changed),
            (f"tensors only in {first}", found.tensors_only_first),
            (f"tensors only in {second}", found.tensors_only_second),
        )
        for title, names in lists:
            if names:
                console.print(Text(printable(title, None), "bold"))
                for name in names:
                    console.print(Text(f"  {printable(name)}"))
        if found.tensors_changed:
            console.print(Text("tensors that differ", "bold"))
            made = table("  name", "shape", "type", "relative error", right=("relative error",))
            for tensor in found.tensors_changed:
                shapes = [" x ".join(map(str, shape)) for shape in tensor.shapes]
                made.add_row(
                    Text(f"  {printable(tensor.name)}"),
                    Text(" -> ".join(dict.fromkeys(shapes))),
                    Text(" -> ".join(dict.fromkeys(tensor.types))),
                    "" if tensor.rmse is None else f"{tensor.rmse:.3g}",
                )
            console.print(made)
        console.print(Text(f"{found.same_tensors} tensors are the same"))

    show_with(write)


def show_kernels(found: dict[str, Any]) -> None:
    """Print which kernels multiply what."""

    def write(console: Console) -> None:
        made = table("level", "tokens", "variant", "kernel", "types", right=("tokens",))
        for span in found["kernels"]:
            first, last = span["tokens"]
            tokens = f"{first} to {last}" if last else f"{first} or more"
            tokens = str(first) if first == last else tokens
            variant = span["variant"] + ("" if span["exact"] else " *")
            made.add_row(span["level"], tokens, variant, span["kernel"], " ".join(span["types"]))
        console.print(made)
        console.print(f"\nLevels of this machine: {', '.join(found['available'])}", end="")
        console.print(f"; in use: {found['level']}")
        console.print("* a token's sums may be rounded in another order than when it is alone")

    show_with(write)


def show_verification(found: Verification) -> None:
    """Print checksums and findings."""

    def write(console: Console) -> None:
        from rich.text import Text

        made = table("name", "type", "bytes", "sha256", right=("bytes",))
        for tensor in found.tensors:
            short = tensor.sha256[:SHORT_SUM]
            name = Text(printable(tensor.name))
            made.add_row(name, Text(tensor.type), f"{tensor.nbytes:,}", short)
        console.print(made)
        console.print(Text(f"sha256 of all: {found.sha256}"))
        for note in found.notes:
            console.print(Text(f"note: {printable(note, None)}"))
        for finding in found.findings:
            console.print(Text(f"finding: {printable(str(finding), None)}", "bold"))
        count = len(found.findings)
        what = "nothing is wrong" if not count else f"{count} finding{'s' if count > 1 else ''}"
        console.print(Text(f"{len(found.tensors)} tensors: {what}"))

    show_with(write)
