"""How a checkpoint holds the values of one tensor of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

View = Callable[[NDArray[Any]], NDArray[Any]]
Change = Callable[[NDArray[np.float32]], NDArray[np.float32]]

BLOCK = 32  # values of a block of MXFP4, in 16 bytes


def as_it_is(array: NDArray[Any]) -> NDArray[Any]:
    """Take the whole array."""
    return array


def rows(start: int, stop: int | None = None, step: int = 1) -> View:
    """Return a view of some rows of matrices (..., rows, columns)."""
    return lambda array: array[..., start:stop:step, :]


def part(number: int, count: int) -> View:
    """Return a view of part ``number`` of the rows of matrices with ``count`` equal parts."""

    def view(array: NDArray[Any]) -> NDArray[Any]:
        total = array.shape[-2]
        return array[..., number * total // count : (number + 1) * total // count, :]

    return view


def heads_in_turns(groups: int, heads: int, *, first: int = 0) -> View:
    """Return a view that reorders rows from ``first`` on: head h of group g to h * groups + g."""

    def view(array: NDArray[Any]) -> NDArray[Any]:
        rest = array[first:]
        each = len(rest) // heads
        return rest.reshape(groups, heads // groups, each, *rest.shape[1:]).swapaxes(0, 1)

    return view


def transposed(array: NDArray[Any]) -> NDArray[Any]:
    """Transpose matrices that are stored as (inputs, outputs)."""
    return array.swapaxes(-1, -2)


def taps(array: NDArray[Any]) -> NDArray[Any]:
    """Return the taps of each channel of a convolution (channels, 1, kernel)."""
    return array[:, 0]


@dataclass(frozen=True, slots=True)
class Stored:
    """One form in which a checkpoint may store a tensor's values."""

    # The checkpoint's tensors; several are the parts along the first axis. In a table, which has
    # names without the prefix of a layer, "{}" stands for the number of each expert.
    names: tuple[str, ...]
    # "{}" was in the names: there is a tensor for each number, even if there is only one.
    numbered: bool = field(default=False, kw_only=True)
    # Takes a stored array of any dtype and returns the tensor's values in its order of axes,
    # without a copy.
    view: View = as_it_is
    # Views whose rows follow each other; used instead of ``view``.
    parts: tuple[View, ...] = ()
    # There are two names: of MXFP4's codes, (..., columns / 32, 16) bytes, and of its scales,
    # (..., columns / 32). The view does not change the columns.
    blocks: bool = False
    # The matrices of a stack are stored as (inputs, outputs).
    turned: bool = False

    @property
    def is_divided(self) -> bool:
        """Whether each of the checkpoint's tensors is a part along the first axis."""
        return self.numbered or len(self.names) > 1

    @property
    def views(self) -> tuple[View, ...]:
        """The views whose values follow each other."""
        return self.parts or (self.view,)


@dataclass(frozen=True, slots=True)
class HFTensor:
    """A tensor of a model in a checkpoint."""

    name: str  # the canonical one
    shape: tuple[int, ...]  # of the decoded values
    stored: Stored
    linear: bool  # the weight of a linear layer, which is ternary in ternary models
    permuted_heads: int = 0  # heads whose rows GGUF has permuted
    change: Change | None = None  # applied to each value
    factors: tuple[tuple[float, ...], ...] = ()  # multiply the values of each of the parts
    has_bias: bool = False

    @property
    def source(self) -> str:
        """The checkpoint's name, the first of several."""
        return self.stored.names[0]
