"""Write a response to standard output while it is generated."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from trinity.cli.terminal import escaped, put_raw

if TYPE_CHECKING:
    from trinity.runtime.generation import Chunk

KEPT = "\n\t"  # control characters of a text that a terminal gets


def shown(chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
    """Yield the same chunks, and write and flush each one."""
    for chunk in chunks:
        write_piece(chunk.text)
        yield chunk


def write_piece(text: str) -> None:
    """Write and flush a part of a response, or of a prompt.

    A model may generate anything; a pipe gets it unchanged, a terminal only printable characters.
    """
    put_raw(escaped(text, KEPT) if sys.stdout.isatty() else text, flush=True)
