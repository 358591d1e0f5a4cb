"""Writing an answer to standard output while it is generated."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.runtime.generation import Chunk


def shown(chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
    """The same chunks, each written and flushed as it passes."""
    for chunk in chunks:
        sys.stdout.write(chunk.text)
        sys.stdout.flush()
        yield chunk
