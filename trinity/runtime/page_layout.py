"""What lies in a page of keys and values, and of which pages a sequence needs which part.

A page holds all layers' keys and values of 128 consecutive positions (ops/kv_layout.py draws a
layer's) in two parts: one of the layers that see all positions, one of those that see a window and
need no position before it any more. State of recurrent layers, float32, lies in the second one: in
each page that behind the newest of its positions. The next token reads it there, or in the page
before, and no other one: so it is a window of two positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from trinity.models.operations import Attention
from trinity_kernels.ops.kv_layout import PAGE, layer_bytes

_STATE_POSITIONS, _STATE_ALIGNMENT = 2, 64


class PartSizes(NamedTuple):
    """Bytes of the two parts of a page."""

    full: int
    windowed: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A token sees ``positions`` in windowed layers, its own included; a step takes ``rows``.

    ``state``: it is a recurrent state, which is there behind the newest position of a page alone.
    """

    positions: int
    rows: int
    state: bool = False

    def first_page(self, length: int) -> int:
        """The first page that a token behind ``length`` others sees."""
        return max(0, length + 1 - self.positions) // PAGE

    @property
    def most_pages(self) -> int:
        """How many pages the tokens of a step see at most."""
        return (self.positions - 1 + self.rows + 2 * (PAGE - 1)) // PAGE


class PageLayout:
    """Where each of a model's layers has its keys and values.

    ``windowed`` says of each layer whether they lie in the windowed part. There they lie where the
    window, and a step of ``rows`` tokens, take fewer pages than a context; ``window`` is the
    largest of theirs, None where no layer is windowed. ``states``: how many float32 each state
    has; where there are any, they alone lie in the windowed part.
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
        """Where each layer begins in its part."""
        return [self._placed(kv_type)[0][owner] for owner in self._owners]

    def state_offsets(self) -> list[int]:
        """Where each state begins in the windowed part."""
        ends = list(accumulate((_state_bytes(count) for count in self._states), initial=0))
        return ends[:-1]

    def sizes(self, kv_type: str) -> PartSizes:
        """Bytes of a page's parts."""
        return self._placed(kv_type)[1]

    def sequence_bytes(self, kv_type: str, length: int) -> int:
        """Bytes that one sequence of ``length`` positions needs at most while it is evaluated."""
        sizes, pages = self.sizes(kv_type), -(-length // PAGE)
        windows = min(pages, self.window.most_pages) if self.window else 0
        return pages * sizes.full + windows * sizes.windowed

    def _placed(self, kv_type: str) -> tuple[dict[int, int], PartSizes]:
        """Where each layer with a cache of its own begins, and the sizes of both parts."""
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
