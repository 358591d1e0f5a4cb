"""The tables that trinity inspect prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from trinity.cli.terminal import escaped, json_line, put, put_raw

if TYPE_CHECKING:
    from rich.console import Console

    from trinity.tools.diff import Diff
    from trinity.tools.verify import Verification

WIDEST_SHOWN = 100  # characters of a value in the table
SHORT_SUM = 16  # characters of a checksum, of 64
LONGEST_WHOLE = 12  # characters; longer words of a table may be broken
LONGEST_TABLE = 2000  # rows of a table that is fitted to the terminal


def printable(value: object, widest: int | None = WIDEST_SHOWN) -> str:
    """Return a value as one line without control characters, because files are untrusted.

    ``widest`` limits the number of characters; None shows all.
    """
    if isinstance(value, dict) and "array" in value:
        return f"{value['array']}, {value['length']} elements"
    text = escaped(value) if isinstance(value, str) else json_line(value)
    return text if widest is None or len(text) <= widest else text[:widest] + "..."


def show(description: dict[str, Any], tensors: bool) -> None:
    """Print the description as tables; with ``tensors`` also a row for each tensor."""
    show_with(lambda console: show_on(console, description, tensors))


def show_known(description: dict[str, Any]) -> None:
    """Print the description of a file that is not a model."""
    show_with(lambda console: show_summary(console, description))


def show_with(write: Callable[[Console], None]) -> None:
    """Print what ``write`` writes; on a pipe without colours, wrapping and padding."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    text = StringIO()  # collected first, so that one place handles output errors
    width = None if is_terminal else 100_000
    write(Console(file=text, force_terminal=is_terminal, width=width, highlight=False))
    for line in text.getvalue().splitlines():
        put_raw(line.rstrip() + "\n")


def print_rows(
    console: Console,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[str]],
    right: tuple[str, ...] = (),
) -> None:
    """Print a table without lines; it has no heading if the first one is empty."""
    words = (
        [w for cell in cells for w in cell.split()] for cells in zip(columns, *rows, strict=True)
    )
    # A narrower terminal would break short words, which nobody can read.
    least = sum(min(max(map(len, each), default=0), LONGEST_WHOLE) + 2 for each in words) - 2
    if len(rows) > LONGEST_TABLE or (columns[0] and console.width < least):
        _print_plainly(console, columns, rows, right)
        return
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, show_header=bool(columns[0]))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    console.print(made)


def _print_plainly(
    console: Console,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[str]],
    right: tuple[str, ...],
) -> None:
    """Print rows without wrapping, much faster than a table."""
    if columns[0]:
        rows = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        )
        console.file.write("  ".join(cells).rstrip() + "\n")


def print_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print lines unchanged."""
    from rich.text import Text

    text = "\n".join(lines)
    if text:
        console.print(Text(text, style))


def show_pairs(console: Console, title: str, pairs: Mapping[str, object]) -> None:
    """Print names and values below a title."""
    from rich.text import Text

    console.print(Text(title, "bold"))
    rows = [(f"  {printable(key)}", printable(value)) for key, value in pairs.items()]
    print_rows(console, ("", "value"), rows)


def show_summary(console: Console, description: dict[str, Any]) -> None:
    """Print a summary of the file."""
    from trinity.tools.amounts import count_text, size_text

    facts = {key.replace("_", " "): fact for key, fact in description["summary"].items()}
    facts = {key: fact for key, fact in facts.items() if fact is not None}
    if "parameters" in facts:
        facts["parameters"] = count_text(facts["parameters"])
        if description["active_parameters"] != description["parameters"]:
            active = count_text(description["active_parameters"])
            facts["parameters"] += f", {active} used per token"
    if isinstance(facts.get("chat template"), bool):
        facts["chat template"] = "yes" if facts["chat template"] else "no"
    facts["size"] = size_text(description["bytes"])
    if description.get("bits_per_weight"):
        facts["size"] += f", {decimals(description['bits_per_weight'])} bits per weight"
    if description["kind"] == "model":
        facts["runs"] = "yes" if description["refused"] is None else "no, see below"
    title = printable(description["path"], None)
    show_pairs(console, title, {"kind": description["kind"], **facts})


def show_on(console: Console, description: dict[str, Any], listed: bool) -> None:
    """Print the tables to ``console``."""
    from rich.text import Text

    show_summary(console, description)
    if description["refused"] is not None:
        console.print(Text("not run by trinity", "bold"))
        console.print(Text(f"  {printable(description['refused'], None)}"))
    show_pairs(console, "file", description["header"])
    if description["config"] is not None:
        show_pairs(console, "configuration", description["config"])
    elif description["kind"] == "model" and description["config_error"] != description["refused"]:
        console.print(Text("configuration", "bold"))
        console.print(Text(f"  none: {printable(description['config_error'], None)}"))
    show_pairs(console, "metadata", description["metadata"])
    if listed:
        show_tensors(console, description["tensors"])
    show_types(console, description)


def show_tensors(console: Console, tensors: Sequence[dict[str, Any]]) -> None:
    """Print a row for each tensor."""
    from rich.text import Text

    console.print(Text("tensors", "bold"))
    rows = [
        (
            f"  {printable(tensor['name'])}",
            " x ".join(map(str, tensor["shape"])),
            tensor["type"],
            f"{tensor['bytes']:,}",
        )
        for tensor in tensors
    ]
    print_rows(console, ("  name", "shape", "type", "bytes"), rows, ("bytes",))


def show_types(console: Console, description: dict[str, Any]) -> None:
    """Print the number of tensors and the size of each type, and the totals."""
    from rich.text import Text

    types, count = description["types"], len(description["tensors"])
    console.print(Text(f"{count} tensors; --tensors lists them" if count else "no tensors", "bold"))
    numbers = ("tensors", "parameters", "bytes", "bits per weight")
    rows = []
    for name, row in types.items():
        counts = (f"{row[key]:,}" for key in ("tensors", "parameters", "bytes"))
        rows.append((f"  {printable(name)}", *counts, decimals(row["bits_per_weight"])))
    print_rows(console, ("  type", *numbers), rows, numbers)
    total = f"{description['parameters']:,} parameters"
    if description["active_parameters"] != description["parameters"]:
        total += f", {description['active_parameters']:,} used per token,"
    total += f" in {description['tensor_bytes']:,} bytes"
    average = description["bits_per_weight"]
    if isinstance(average, float):
        total += f", {decimals(average)} bits per weight"
    console.print(Text(total))


def decimals(value: float | None) -> str:
    """Format with two decimals; None is empty."""
    return "" if value is None else f"{value:.2f}"


def show_diff(difference: Diff, first: str, second: str) -> None:
    """Print what differs between two models, in the order of their files."""
    if difference.is_empty:
        put(f"no difference: all {difference.same_tensors} tensors and all keys are equal")
        return

    def write(console: Console) -> None:
        from rich.text import Text

        lists = (
            (f"keys only in {first}", difference.keys_only_first),
            (f"keys only in {second}", difference.keys_only_second),
            ("keys with other values", difference.keys_changed),
            (f"tensors only in {first}", difference.tensors_only_first),
            (f"tensors only in {second}", difference.tensors_only_second),
        )
        for title, names in lists:
            if names:
                console.print(Text(printable(title, None), "bold"))
                print_lines(console, (f"  {printable(name)}" for name in names))
        if difference.tensors_changed:
            console.print(Text("tensors that differ", "bold"))
            rows = []
            for tensor in difference.tensors_changed:
                shapes = [" x ".join(map(str, shape)) for shape in tensor.shapes]
                rows.append(
                    (
                        f"  {printable(tensor.name)}",
                        " -> ".join(dict.fromkeys(shapes)),
                        " -> ".join(dict.fromkeys(tensor.types)),
                        "" if tensor.rmse is None else f"{tensor.rmse:.3g}",
                    )
                )
            columns = ("  name", "shape", "type", "relative error")
            print_rows(console, columns, rows, columns[3:])
        console.print(Text(f"{difference.same_tensors} tensors are equal"))

    show_with(write)


def show_kernels(kernels: dict[str, Any]) -> None:
    """Print which kernels multiply which types."""

    def write(console: Console) -> None:
        rows = []
        for span in kernels["kernels"]:
            first, last = span["tokens"]
            tokens = f"{first} to {last}" if last else f"{first} or more"
            tokens = str(first) if first == last else tokens
            variant = span["variant"] + ("" if span["exact"] else " *")
            types = " ".join(span["types"])
            rows.append((span["level"], tokens, variant, span["kernel"], types))
        columns = ("level", "tokens", "variant", "kernel", "types")
        print_rows(console, columns, rows, ("tokens",))
        console.print(f"\nLevels of this machine: {', '.join(kernels['available'])}", end="")
        console.print(f"; in use: {kernels['level']}")
        console.print("* sums of a token may be rounded in another order than for a single token")

    show_with(write)


def show_verification(verification: Verification) -> None:
    """Print checksums and findings."""

    def write(console: Console) -> None:
        from rich.text import Text

        rows = [
            (printable(tensor.name), tensor.type, f"{tensor.nbytes:,}", tensor.sha256[:SHORT_SUM])
            for tensor in verification.tensors
        ]
        print_rows(console, ("name", "type", "bytes", "sha256"), rows, ("bytes",))
        console.print(Text(f"sha256 of all: {verification.sha256}"))
        print_lines(console, (f"note: {printable(note, None)}" for note in verification.notes))
        findings = (
            f"finding: {printable(str(finding), None)}" for finding in verification.findings
        )
        print_lines(console, findings, "bold")
        count = len(verification.findings)
        what = "nothing is wrong" if not count else f"{count} finding{'s' if count > 1 else ''}"
        console.print(Text(f"{len(verification.tensors)} tensors: {what}"))

    show_with(write)
