"""The layout of KV pages, and which parts of them a sequence needs.

A page holds all layers' keys and values of 128 consecutive positions (ops/kv_layout.py draws a
layer's) in two parts: the full part for layers that attend to all positions, the windowed part for
layers with a sliding window, which do not need earlier positions any more. Recurrent states
(float32) are in the windowed part: each page holds the state after the newest of its positions. The
next token reads the state in that page or in the page before, so a state is like a window of two
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from trinity.models.operations import Attention
from trinity_kernels.ops.kv_layout import PAGE, layer_bytes

_STATE_POSITIONS, _STATE_ALIGNMENT = 2, 64


class PartSizes(NamedTuple):
    """Bytes of the two parts of a page."""

    full: int
    windowed: int = 0


class Window(NamedTuple):
    """Which positions windowed layers attend to: the last ``positions``, including the token's own.

    ``rows``: the maximum number of tokens of a step. ``state``: the window is that of a recurrent
    state, which exists only after the newest position of a page.
    """

    positions: int
    rows: int
    state: bool = False

    def first_page(self, length: int) -> int:
        """The first page that the token after ``length`` others attends to."""
        return max(0, length + 1 - self.positions) // PAGE

    @property
    def most_pages(self) -> int:
        """The maximum number of pages that the tokens of a step attend to."""
        return (self.positions - 1 + self.rows + 2 * (PAGE - 1)) // PAGE


class PageLayout:
    """The place of each layer's keys and values.

    ``windowed`` tells for each layer whether it is in the windowed part, which is the case if its
    window and a step of ``rows`` tokens take fewer pages than the context. ``window`` is the
    largest of these windows, None without windowed layers. ``states``: the number of float32 of
    each recurrent state; if there are any, only they are in the windowed part.
    """

    def __init__(
        self, layers: Sequence[Attention], context_length: int, rows: int,
        states: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._layers = layers
        self._states = states
        self._owners = [
            index if layer.cache_of is None else layer.cache_of
            for index, layer in enumerate(layers)
        ]
        pages = -(-context_length // PAGE)
        windows: list[int] = []
        for index in range(len(layers)):
            readers = [
                a.window for a, owner in zip(layers, self._owners, strict=True) if owner == index
            ]
            windows.append(0 if 0 in readers else max(readers, default=0))
        small = [w for w in windows if w and Window(w, rows).most_pages < pages]
        if states:
            small = []
        self.window = Window(max(small), rows) if small else None
        if states:
            self.window = Window(_STATE_POSITIONS, rows, state=True)
        self.windowed = [windows[owner] in small for owner in self._owners]

    def offsets(self, kv_type: str) -> list[int]:
        """The offset in bytes of each layer in its part."""
        return [self._placed(kv_type)[0][owner] for owner in self._owners]

    def state_offsets(self) -> list[int]:
        """The offset in bytes of each recurrent state in the windowed part."""
        ends = list(accumulate((_state_bytes(count) for count in self._states), initial=0))
        return ends[:-1]

    def sizes(self, kv_type: str) -> PartSizes:
        """Bytes of the two parts of a page."""
        return self._placed(kv_type)[1]

    def sequence_bytes(self, kv_type: str, length: int) -> int:
        """The most bytes that a sequence of ``length`` positions needs while it runs."""
        sizes, pages = self.sizes(kv_type), -(-length // PAGE)
        windows = min(pages, self.window.most_pages) if self.window else 0
        return pages * sizes.full + windows * sizes.windowed

    def _placed(self, kv_type: str) -> tuple[dict[int, int], PartSizes]:
        """The offset of each layer that has its own cache, and the sizes of both parts."""
        starts, ends = {}, [0, sum(_state_bytes(count) for count in self._states)]
        for index, layer in enumerate(self._layers):
            if self._owners[index] == index:
                windowed = self.windowed[index]
                starts[index] = ends[windowed]
                ends[windowed] += layer_bytes(
                    kv_type, layer.num_kv_heads, layer.head_dim, layer.width_of_values
                )
        return starts, PartSizes(*ends)


def _state_bytes(count: int) -> int:
    return -(-4 * count // _STATE_ALIGNMENT) * _STATE_ALIGNMENT
