"""A KV page: 128 positions of a text, its place in the tree of texts, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # some modules import only Domain and the types, without NumPy
    import numpy as np
    from numpy.typing import NDArray

Kind = tuple[str, bool]  # element type; whether it is the windowed part
AdapterWeights = tuple[float, ...]  # the scale of each adapter; () if none is used


class Domain(NamedTuple):
    """Texts that share KV pages: those with the same salt and slot (or all without a slot)."""

    slot: int | None = None
    salt: str = ""


COMMON = Domain()


class Part:
    """The memory of one part of a page."""

    __slots__ = ("address", "data", "kind")

    def __init__(self, kind: Kind, data: NDArray[np.uint8]) -> None:
        self.kind = kind
        self.data = data
        self.address = int(data.ctypes.data)


class Page:
    """Keys and values of 128 positions that follow those of ``parent``; ``tokens`` are filled.

    A hidden token t is stored as -1 - t in ``tokens``: a prompt would give it other bits, so other
    sequences must not reuse it. ``full`` and ``windowed`` are the memory of both parts
    (page_layout.py). They are None if no layer uses them, and ``windowed`` also after it was given
    back. ``users`` is the number of caches with the page, ``window_users`` the number of those that
    use its windowed part. ``kept``: the windowed part stays after all of them have passed it.
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
        """The number of leading tokens that this page shares with ``tokens[start:stop]``."""
        mine = self.tokens
        limit = min(len(mine), stop - start)
        return next((i for i in range(limit) if mine[i] != tokens[start + i]), limit)
