"""trinity rm: remove files that trinity keeps of models."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from trinity.cli.parameters import Argument, BadParameter, Flag
from trinity.cli.terminal import say
from trinity.errors import InputError


def remove(
    names: Annotated[
        list[str] | None,
        Argument("Paths or names of quantized models, as `list` shows them.", metavar="NAME"),
    ] = None,
    every: Annotated[bool, Flag("Remove all of them.", "--all")] = False,
    yes: Annotated[bool, Flag("Do not ask.", "--yes", "-y")] = False,
) -> None:
    """Remove the weights that --quantize has cached; it recreates them when needed."""
    from trinity.tools.amounts import size_text
    from trinity.tools.installed import own_file, own_files

    if every == bool(names):
        raise BadParameter("give either names of files, or --all")
    paths = own_files() if every else list(dict.fromkeys(map(own_file, names or ())))
    if not paths:
        say("there are no cached weights")
        return
    for path in paths:
        say(f"{path}: {size_text(os.path.getsize(path))}")
    if not yes and not agreed(f"remove {len(paths)} of trinity's files? [y/N]"):
        raise InputError("nothing was removed; answer y, or give --yes")
    for path in paths:
        try:
            os.unlink(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be removed: {error.strerror or error}") from error
    say(f"removed {len(paths)}")


def agreed(question: str) -> bool:
    """Whether the user answers yes."""
    say(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
