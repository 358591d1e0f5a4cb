"""trinity pull: download a model of the Hugging Face hub without loading it."""

from __future__ import annotations

import shlex
from typing import Annotated

from trinity.cli.parameters import Argument
from trinity.cli.progress_bar import bar
from trinity.cli.terminal import put, say
from trinity.errors import InputError


def pull(
    name: Annotated[
        str,
        Argument(
            "USER/REPO[@REVISION][:FILE-OR-QUANT], optionally with the prefix hf:.", metavar="NAME"
        ),
    ],
) -> None:
    """Download a model of the Hugging Face hub into huggingface_hub's cache."""
    from trinity.formats.ollama.manifest import PREFIX as OLLAMA
    from trinity.hub.model import fetch
    from trinity.hub.name import parse_name
    from trinity.providers.hub import HUB

    if name.startswith(OLLAMA):
        raise InputError(
            f"{name}: `ollama pull {name.removeprefix(OLLAMA)}` downloads models for Ollama"
        )
    try:
        wanted = parse_name(name)
    except InputError as error:
        near = [f"did you mean {each}?" for each in HUB.close_names(name)]
        if "/" not in name:
            near = [f"`ollama pull {name}` downloads models for Ollama"]
        raise InputError("; ".join([str(error), *near])) from None
    with bar(f"downloading {name}") as show:
        model = fetch(wanted, say, show)
    say(f"{model.path}: downloaded; run it with:")
    put(f"trinity chat --model {shlex.quote(model.name)}")
