"""Writing an answer to standard output while it is generated."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from trinity.cli.terminal import escaped, put_raw

if TYPE_CHECKING:
    from trinity.runtime.generation import Chunk


def shown(chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
    """The same chunks, each written and flushed as it passes."""
    is_terminal = sys.stdout.isatty()
    for chunk in chunks:
        # A model may say anything; a pipe gets it as it is, a terminal only what can be seen.
        put_raw(escaped(chunk.text, keep="\n\t") if is_terminal else chunk.text, flush=True)
        yield chunk
