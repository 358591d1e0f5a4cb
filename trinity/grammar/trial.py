"""A grammar is compiled in a process of its own first: some take llguidance minutes, or all memory.

`answer` runs there (see `trinity.confined`), `checked` here.
"""

from __future__ import annotations

from functools import lru_cache

from trinity.confined import Confined
from trinity.errors import ConfinedError, InputError
from trinity.grammar.library import llguidance
from trinity.grammar.limits import MEMORY_BYTES, SECONDS

KNOWN = 256  # grammars of which is remembered that they passed

_child = Confined("trinity.grammar.compiling", memory_bytes=MEMORY_BYTES, seconds=SECONDS)


@lru_cache(KNOWN)
def checked(kind: str, text: str) -> None:
    """Raise InputError for a grammar that is wrong, costs too much or lets nothing through."""
    llguidance()
    try:
        error, path = _child.call([kind, text])
    except ConfinedError as stopped:
        raise InputError(f"the grammar costs too much to compile: {stopped.reason}") from None
    if error:
        raise InputError(f"the JSON schema cannot be enforced: {path}: {error}" if path else error)
