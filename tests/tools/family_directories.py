"""Modified directories of small models of every family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tests.formats.raw_safetensors import write_safetensors
from trinity.formats.safetensors import SafeTensorsFile

Arrays = dict[str, NDArray[Any]]


def arrays_of(family: Path) -> Arrays:
    """The tensors of a folder's checkpoint, all of them F32 or U8."""
    with SafeTensorsFile(family / "hf" / "model.safetensors") as file:
        return {name: file.tensor(name).elements().copy() for name in file.names()}


def directory(
    family: Path,
    parent: Path,
    arrays: Arrays | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """A directory with a folder's files, but other tensors or another configuration."""
    made = parent / "hf"
    made.mkdir(parents=True)
    for path in (family / "hf").iterdir():
        (made / path.name).write_bytes(path.read_bytes())
    if arrays is not None:
        write_safetensors(made / "model.safetensors", arrays)
    if config is not None:
        (made / "config.json").write_text(json.dumps(config), "utf-8")
    return made
