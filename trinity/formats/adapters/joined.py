"""Merge the pairs of modules that one tensor of the model fuses, such as q, k and v."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trinity.errors import FormatError
from trinity.formats.adapters.adapter import Base, Elements, Pair, as_float32, fitted


@dataclass(frozen=True, slots=True)
class PairPart:
    """A pair for rows of the tensor ``name`` from ``first`` on, or for all rows if it is None.

    The arrays and the scale are as in Pair. ``source`` names the pair in errors.
    """

    name: str
    first: int | None
    a: Elements
    b: Elements
    scale: float
    source: str


def joined(base: Base, pieces: Iterable[PairPart]) -> tuple[Pair, ...]:
    """Return one pair per tensor for all of its pieces.

    The first matrices are stacked; the second ones form a block diagonal, so that rows without a
    piece get no update. Raises FormatError if two pieces are for the same rows, and as ``fitted``.
    """
    by_name: dict[str, list[PairPart]] = {}
    for piece in pieces:
        others = by_name.setdefault(piece.name, [])
        if others and (piece.first is None or any(o.first in (None, piece.first) for o in others)):
            raise FormatError(f"{piece.source}: there is a second pair for tensor {piece.name!r}")
        others.append(piece)
    return tuple(_pair(base, name, parts) for name, parts in by_name.items())


def _pair(base: Base, name: str, pieces: Sequence[PairPart]) -> Pair:
    sample = pieces[0]
    if sample.first is None:
        return fitted(base, sample.source, name, sample.a, sample.b, sample.scale)
    for piece in pieces:
        _check(base, piece)
    scale, seconds = sample.scale, [piece.b for piece in pieces]
    if len({piece.scale for piece in pieces}) > 1:
        scale, seconds = 1.0, [as_float32(p.b) * np.float32(p.scale) for p in pieces]
    # A module whose rows are in several places has one first matrix.
    firsts = {id(piece.a): piece.a for piece in pieces}
    ends = np.cumsum([0, *(a.shape[-2] for a in firsts.values())])
    columns = dict(zip(firsts, ends.tolist(), strict=False))
    seconds = _of_one_type(seconds)
    b = np.zeros((*base.shapes[name][:-1], ends[-1]), seconds[0].dtype)
    for piece, second in zip(pieces, seconds, strict=True):
        first, column = piece.first or 0, columns[id(piece.a)]
        b[..., first : first + second.shape[-2], column : column + second.shape[-1]] = second
    a = np.concatenate(_of_one_type(list(firsts.values())), axis=-2)
    return fitted(base, sample.source, name, a, b, scale)


def _check(base: Base, piece: PairPart) -> None:
    *count, total, width = base.shapes[piece.name]
    a, b = piece.a.shape, piece.b.shape
    fits = len(a) == len(b) == len(count) + 2 and a[-2] == b[-1] and a[-1] == width
    if not fits or [*a[:-2]] != count or [*b[:-2]] != count or (piece.first or 0) + b[-2] > total:
        raise FormatError(
            f"{piece.source}: a pair for rows of tensor {piece.name!r} has the shapes {a} and "
            f"{b}, but the model's tensor has {base.shapes[piece.name]}: the adapter belongs to "
            "another model"
        )


def _of_one_type(arrays: list[Elements]) -> list[Elements]:
    if len({array.dtype for array in arrays}) == 1:
        return arrays
    return [as_float32(array) for array in arrays]
