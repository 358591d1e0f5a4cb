"""How a checkpoint holds the values of one tensor of GGUF's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

View = Callable[[NDArray[Any]], NDArray[Any]]
Change = Callable[[NDArray[np.float32]], NDArray[np.float32]]

BLOCK = 32  # values of a block of MXFP4, in 16 bytes


def as_it_is(array: NDArray[Any]) -> NDArray[Any]:
    """The view of an array that is what is wanted."""
    return array


@dataclass(frozen=True, slots=True)
class Stored:
    """One way in which a checkpoint may hold the values.

    ``names``: of the tensors, each of ``shape``; several stand for the parts along a first axis.
    ``view``: takes an array of that shape, of any dtype, and gives its part in the order of GGUF's
    axes, without a copy. With ``blocks`` the names are two, of MXFP4's codes, (..., columns / 32,
    16) bytes, and of its scales, (..., columns / 32), and the view leaves the columns alone.
    ``parts``: views whose rows follow each other, in the place of ``view``.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    view: View = as_it_is
    blocks: bool = False
    parts: tuple[View, ...] = ()


def rows(start: int, stop: int | None = None, step: int = 1) -> View:
    """Rows of matrices that hold those of several tensors; (..., rows, columns)."""
    return lambda array: array[..., start:stop:step, :]


def heads_in_turns(groups: int, heads: int, *, first: int = 0) -> View:
    """Rows from ``first`` on of ``heads`` heads, those of a group together: now in turns.

    The head h of group g becomes head h * groups + g.
    """

    def view(array: NDArray[Any]) -> NDArray[Any]:
        rest = array[first:]
        each = len(rest) // heads
        return rest.reshape(groups, heads // groups, each, *rest.shape[1:]).swapaxes(0, 1)

    return view


def transposed(array: NDArray[Any]) -> NDArray[Any]:
    """Matrices stored as (inputs, outputs)."""
    return array.swapaxes(-1, -2)


Kind = Literal["linear", "matrix", "precise"]


@dataclass(frozen=True, slots=True)
class Module:
    """One tensor of GGUF's.

    ``name`` is the canonical one, without ``blk.N.`` in a layer; ``shape`` is NumPy's. ``forms``:
    the ways in which checkpoints hold it, whose names in a layer lack ``model.layers.N.``.
    ``kind``: "linear" is a layer's weight, ternary in ternary models; "matrix" an embedding or the
    output; "precise" what stays float32: norms, biases, routers. ``permuted_heads``: the number of
    heads whose rows GGUF has permuted, or 0. ``change``: what becomes of each value.
    ``factors``: what the values of each of a form's parts are multiplied by,
    one after the other. ``has_bias``: a bias
    goes with it. ``instead``: modules that stand in its place in checkpoints that have the
    first form of the first of them.
    """

    name: str
    shape: tuple[int, ...]
    forms: tuple[Stored, ...]
    kind: Kind
    permuted_heads: int = 0
    change: Change | None = None
    factors: tuple[tuple[float, ...], ...] = ()
    has_bias: bool = False
    instead: tuple[Module, ...] = ()
