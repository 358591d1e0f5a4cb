"""Names that nobody else gives: of answers, of calls of tools."""

from __future__ import annotations

import random
import secrets
from contextvars import ContextVar

HEX = "0123456789abcdef"
_source: ContextVar[random.Random | None] = ContextVar("_source", default=None)


def name_again(seed: int) -> None:
    """Let this task, and those it starts, make the names that it made with the same seed before.

    So an answer that is made a second time has the names of the first one.
    """
    _source.set(random.Random(seed))


def random_name(letters: str = HEX, length: int = 32) -> str:
    """A new name of so many letters."""
    source = _source.get()
    choice = secrets.choice if source is None else source.choice
    return "".join(choice(letters) for _ in range(length))
