"""trinity inspect: what is in a model file."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from trinity.formats import WeightProvider

LONGEST_SHOWN = 16  # elements of an array that are shown rather than counted
WIDEST_SHOWN = 100  # characters of a value in the table


def inspect(
    model: Annotated[str, typer.Argument(metavar="FILE", help="The model, a GGUF file.")],
    as_json: options.Json = False,
) -> None:
    """Show the header, the configuration, the metadata and the tensors of a model file."""
    from trinity.model import open_weights

    description = describe(open_weights(model))
    if as_json:
        print(json.dumps(description, ensure_ascii=False, allow_nan=False))
    else:
        show(description)


def describe(provider: WeightProvider) -> dict[str, object]:
    """Everything that is shown, as JSON has it."""
    from trinity.errors import ConfigError, UnsupportedError

    config: dict[str, object] | None = None
    config_error = None
    try:
        config = asdict(provider.config)
    except (ConfigError, UnsupportedError) as error:
        config_error = str(error)
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    return {
        "path": provider.path,
        "header": header(provider),
        "config": config,
        "config_error": config_error,
        "metadata": {key: value_of(provider, key) for key in provider.metadata},
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "type": t.type, "bytes": t.nbytes}
            for t in tensors
        ],
        "tensor_bytes": sum(t.nbytes for t in tensors),
        "parameters": sum(math.prod(t.shape) for t in tensors),
    }


def header(provider: WeightProvider) -> dict[str, object]:
    """What the format says of itself."""
    from trinity.formats import GGUFProvider

    if not isinstance(provider, GGUFProvider):
        return {}
    return {
        "format": "GGUF",
        "version": provider.version,
        "alignment": provider.alignment,
        "files": provider.paths,
        "bytes": provider.size_bytes,
    }


def value_of(provider: WeightProvider, key: str) -> object:
    """A metadata value; of a long array only its length, so that it need not be decoded."""
    from trinity.formats import GGUFProvider

    if isinstance(provider, GGUFProvider):
        length = provider.metadata.array_length(key)
        if length is not None and length > LONGEST_SHOWN:
            return {"array": provider.metadata.value_type(key), "length": length}
    return plain(provider.metadata[key])


def plain(value: object) -> object:
    """``value`` as JSON can have it: arrays as lists, NaN and infinities as text."""
    import numpy as np

    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def printable(value: object) -> str:
    """One line without control characters: a file must not write to the terminal as it likes."""
    if isinstance(value, dict) and "array" in value:
        return f"{value['array']}, {value['length']} elements"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(text)
    return text if len(text) <= WIDEST_SHOWN else text[:WIDEST_SHOWN] + "..."


def show(description: dict[str, object]) -> None:
    """Print the description as tables; on a pipe without colours, wrapping and padding."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 100_000, highlight=False)
    with console.capture() as captured:
        show_on(console, description)
    for line in captured.get().splitlines():
        print(line.rstrip())


def show_on(console: Console, description: dict[str, object]) -> None:
    """Write the tables to ``console``."""
    from rich.table import Table
    from rich.text import Text

    def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
        made = Table(box=None, pad_edge=False, show_header=bool(columns[0]))
        for column in columns:
            made.add_column(column, justify="right" if column in right else "left", overflow="fold")
        return made

    def pairs(title: str, values: object) -> None:
        console.print(Text(title, "bold"))
        made = table("", "value")
        for key, value in values.items() if isinstance(values, dict) else ():
            made.add_row(Text(f"  {printable(key)}"), Text(printable(value)))
        console.print(made)

    pairs(printable(description["path"]), description["header"])
    if description["config"] is not None:
        pairs("configuration", description["config"])
    else:
        console.print(Text("configuration", "bold"))
        console.print(Text(f"  none: {printable(description['config_error'])}"))
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
    total = f"{description['parameters']:,} parameters in {description['tensor_bytes']:,} bytes"
    console.print(Text(total))
