"""trinity list: the models on this machine, in all caches and stores."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from trinity.cli import options
from trinity.cli.terminal import escaped, json_line, put, say

if TYPE_CHECKING:
    from trinity.tools.installed import Installed


def list_models(as_json: options.Json = False) -> None:
    """Show the models in trinity's cache, in huggingface_hub's and in Ollama's stores."""
    from trinity.tools.amounts import size_text
    from trinity.tools.installed import installed

    models = list(installed(say))
    if as_json:
        put(json_line({"models": [as_object(model) for model in models]}))
        return
    for (kept_by, place), group in groupby(models, lambda model: (model.kept_by, model.place)):
        kept = list(group)
        size = sum(model.num_bytes or 0 for model in kept)
        put(f"{place}, kept by {kept_by}, {size_text(size)}:")
        show(kept)
        put()
    if not models:
        say("no models found; `trinity pull hf:USER/REPO` downloads one")


def as_object(model: Installed) -> dict[str, object]:
    """Return what --json prints for a model."""
    return {
        "model": model.name,
        "kept_by": model.kept_by,
        "place": model.place,
        "bytes": model.num_bytes,
        "type": model.type,
        "family": model.family,
        "problem": model.problem,
    }


def show(models: list[Installed]) -> None:
    """Print a line per model: its name, size, type and family, or its fault."""
    from trinity.tools.amounts import size_text

    names = [escaped(model.name) for model in models]
    sizes = ["" if model.num_bytes is None else size_text(model.num_bytes) for model in models]
    types = [escaped(model.type or "") for model in models]
    widths = [max(map(len, column)) for column in (names, sizes, types)]
    for model, name, size, type in zip(models, names, sizes, types, strict=True):
        last = model.family or "" if model.problem is None else f"unusable: {model.problem}"
        cells = f"{name:{widths[0]}}  {size:>{widths[1]}}  {type:{widths[2]}}  {escaped(last)}"
        put(f"  {cells.rstrip()}")
