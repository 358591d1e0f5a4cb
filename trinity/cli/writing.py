"""Writing an answer to standard output while it is generated."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from trinity.cli.terminal import escaped, put_raw

if TYPE_CHECKING:
    from trinity.runtime.generation import Chunk


def write(text: str) -> None:
    """Write and flush what a model says or reads.

    That may be anything: a pipe gets it as it is, a terminal only what can be seen.
    """
    put_raw(escaped(text, keep="\n\t") if sys.stdout.isatty() else text, flush=True)


def shown(chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
    """The same chunks, each written as it passes."""
    for chunk in chunks:
        write(chunk.text)
        yield chunk
