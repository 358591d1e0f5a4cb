"""Writing an answer to standard output while it is generated."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from trinity.cli.terminal import escaped, put_raw

if TYPE_CHECKING:
    from trinity.runtime.generation import Chunk

KEPT = "\n\t"  # the control characters of a text that a terminal gets


def shown(chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
    """The same chunks, each written and flushed as it passes."""
    for chunk in chunks:
        write_piece(chunk.text)
        yield chunk


def write_piece(text: str) -> None:
    """Write and flush a piece of an answer, or of a prompt.

    A model may say anything; a pipe gets it as it is, a terminal only what can be seen.
    """
    put_raw(escaped(text, KEPT) if sys.stdout.isatty() else text, flush=True)
