"""A page: 128 positions of a text, their place in the tree of texts, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # options that the command line lists name domains
    import numpy as np
    from numpy.typing import NDArray

Kind = tuple[str, bool]  # element type, whether of windowed layers
AdapterWeights = tuple[float, ...]  # of all adapters; () where none is used


class Domain(NamedTuple):
    """Which texts share pages: those with the same salt that are in the same slot, or in none."""

    slot: int | None = None
    salt: str = ""


COMMON = Domain()


class Part:
    """Memory of one part of a page."""

    __slots__ = ("address", "data", "kind")

    def __init__(self, kind: Kind, data: NDArray[np.uint8]) -> None:
        self.kind = kind
        self.data = data
        self.address = int(data.ctypes.data)


class Page:
    """Keys and values of 128 positions, after those of ``parent``; ``tokens`` are evaluated.

    A hidden token t is -1 - t in ``tokens``: a prompt would give it other bits, so no other
    sequence may find it.
    ``full`` and ``windowed`` are its memory (page_layout.py), None where no layer has any, and
    ``windowed`` where it was given back. ``users`` have the page, ``window_users`` of them see its
    windowed part; ``kept`` says that this part stays when they have passed it.
    """

    __slots__ = (
        "__weakref__", "children", "full", "kept", "kv_type", "parent", "tokens", "users",
        "window_users", "windowed",
    )  # fmt: skip

    def __init__(self, kv_type: str) -> None:
        self.kv_type = kv_type
        self.full: Part | None = None
        self.windowed: Part | None = None
        self.tokens: list[int] = []
        self.parent: Page | None = None
        self.children: list[Page] = []
        self.users = 0
        self.window_users = 0
        self.kept = False

    @property
    def hides(self) -> bool:
        """Whether any of its tokens is hidden."""
        return min(self.tokens, default=0) < 0

    def common(self, tokens: Sequence[int], start: int, stop: int) -> int:
        """How many of this page's first tokens are ``tokens[start:stop]``'s first, too."""
        mine = self.tokens
        limit = min(len(mine), stop - start)
        return next((i for i in range(limit) if mine[i] != tokens[start + i]), limit)
