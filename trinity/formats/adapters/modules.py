"""Convert pairs named by transformers' modules to pairs of the model's tensors and their rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.adapters.adapter import Base, Elements, Pair, as_float32, fitted
from trinity.formats.adapters.joined import PairPart, joined
from trinity.formats.adapters.places import EMBEDDING, HEAD, TargetModule, places_of
from trinity.formats.gguf_order import permuted
from trinity.formats.huggingface.stored import as_it_is
from trinity.formats.huggingface.tensors import WITHIN
from trinity.formats.huggingface.weights import is_seen

# Modules that transformers 5 and 4 name differently.
_OTHER_NAMES = ((".mlp.", ".block_sparse_moe."), (".block_sparse_moe.", ".mlp."))


@dataclass(frozen=True, slots=True)
class NamedPair:
    """The pair of one module: scale * (b @ a), with rows in Hugging Face's order.

    Shapes as in Pair. ``kind`` is "experts" if the first axis of both is the expert, "embedding" if
    rows of ``a`` belong to tokens. ``source`` names the pair in errors.
    """

    module: str
    kind: Literal["linear", "embedding", "experts"]
    a: Elements
    b: Elements
    scale: float
    source: str


def placed(base: Base, source: str, pairs: Iterable[NamedPair]) -> tuple[Pair, ...]:
    """Return the pairs of the base's tensors.

    Raises FormatError if the base lacks a module or shapes do not fit.
    """
    if base.config.architecture == "falcon-h1":
        raise UnsupportedError(
            f"{source}: adapters of falcon-h1 are not supported: its weights include multipliers "
            "of config.json, which the model's file no longer contains; merge the adapter with "
            "PEFT, and convert the result"
        )
    places = places_of(base)
    pieces: list[PairPart] = []
    experts: dict[tuple[str, int | None], dict[int, tuple[NamedPair, TargetModule]]] = {}
    for pair in pairs:
        for place in _find(places, base, pair):
            if place.expert is not None:
                experts.setdefault((place.name, place.first), {})[place.expert] = (pair, place)
                continue
            a, b = _in_order(base, pair, place)
            pieces.append(PairPart(place.name, place.first, a, b, pair.scale, pair.source))
    for (name, first), parts in experts.items():
        pieces.append(PairPart(name, first, *_stacked(base, name, parts), source))
    return joined(base, pieces)


def permuted_heads(base: Base) -> dict[str, int]:
    """Return the tensors whose rows GGUF's converters permute, with their numbers of heads."""
    places = (place for targets in places_of(base).values() for place in targets)
    return {place.name: place.heads for place in places if place.heads and place.first is None}


def _find(
    places: Mapping[str, list[TargetModule]], base: Base, pair: NamedPair
) -> list[TargetModule]:
    module = pair.module
    before, stands_for = next((p for p in WITHIN if module.startswith(p[0])), ("", ""))
    module = stands_for + module.removeprefix(before)
    names = [module, *(module.replace(*other, 1) for other in _OTHER_NAMES if other[0] in module)]
    for name in names:
        if name in places:
            return places[name]
    near = difflib.get_close_matches(module, places, 1, 0.8)
    hint = f"; the nearest is {near[0]!r}" if near else ""
    raise FormatError(
        f"{pair.source}: the model {base.path} of architecture {base.config.architecture!r} has "
        f"no module {pair.module[:100]!r} that an adapter can change{hint}; the adapter belongs "
        "to another model"
    )


def _in_order(base: Base, pair: NamedPair, place: TargetModule) -> tuple[Elements, Elements]:
    """Return ``a`` and ``b`` in the tensor's order of rows."""
    a, b = pair.a, pair.b
    if place.name in base.embeddings and pair.kind == "embedding":
        return a, b
    axes = 3 if pair.kind == "experts" else 2
    # A view may split one matrix into several.
    plain = place.stored.views == (as_it_is,)
    if pair.kind == "embedding" or (plain and axes != len(place.shape)):
        raise FormatError(
            f"{pair.source}: module {pair.module!r} has a pair with the shapes {a.shape} and "
            f"{b.shape} of another kind of module; the adapter belongs to another model"
        )
    weight = _weight_shape(place, a, b) if (a.ndim, b.ndim) == (axes, axes) else ()
    if not weight or not is_seen(place.stored, weight, place.shape):
        raise FormatError(
            f"{pair.source}: the pair of module {pair.module!r} has the shapes {a.shape} and "
            f"{b.shape}, but the model's module has {place.shape[-1]} inputs and "
            f"{place.shape[-2]} outputs: the adapter belongs to another model"
        )
    rows: NDArray[np.intp] | None
    moved, turned = _moved(place, weight), False
    if moved is not None:
        rows, columns = moved
        a = a[:, columns]
    else:
        rows, turned = _rows(place, weight)
    if rows is None:
        return a, _permuted(b, place.heads if base.permuted else 0)
    if len(weight) == 3:
        return a, b[:, rows]
    b = b[rows]
    if rows.ndim == 1:
        return a, _permuted(b, place.heads if base.permuted else 0)
    heads = len(rows)
    if turned:  # the tensor stores each head's matrix transposed
        return b.swapaxes(-1, -2), np.broadcast_to(a.T, (heads, *a.T.shape))
    return np.broadcast_to(a, (heads, *a.shape)), b


def _weight_shape(place: TargetModule, a: Elements, b: Elements) -> tuple[int, ...]:
    """Return the shape of the weight that a pair changes, as checkpoints store it."""
    *stack, outputs, _ = b.shape
    if a.shape[:-2] != b.shape[:-2]:
        return ()
    matrix = (a.shape[-1], outputs) if place.stored.turned else (outputs, a.shape[-1])
    return (*stack, *matrix)


def _moved(
    place: TargetModule, weight: tuple[int, ...]
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Return the module's rows and columns that the tensor has, in its order.

    None if all are in order, or if the tensor arranges the matrices differently.
    """
    views = place.stored.views
    if views == (as_it_is,) or len(weight) != 2 or len(place.shape) != 2:
        return None
    width, row_lists = place.shape[1], []
    for view in views:
        seen = view(np.broadcast_to(np.arange(weight[0])[:, None], weight))
        starts = np.arange(0, seen.size, width)
        row_lists.append(seen.flat[starts])
        if not np.array_equal(row_lists[-1], seen.flat[starts + width - 1]):
            return None
    seen = views[0](np.broadcast_to(np.arange(weight[1]), weight))
    return np.concatenate(row_lists), seen.flat[np.arange(width)]


def _rows(place: TargetModule, weight: tuple[int, ...]) -> tuple[NDArray[np.intp] | None, bool]:
    """Return the module's rows in the tensor, None for all in order, and whether it is transposed.

    The view that takes the tensor from the module's weight is applied to an array of row or column
    numbers that is broadcast, so it takes no memory.
    """
    view = place.stored.view
    if view is as_it_is:
        return None, False
    for axis in (-2, -1):
        numbers = np.arange(weight[axis])
        seen = view(np.broadcast_to(numbers[:, None] if axis == -2 else numbers, weight))
        if seen.strides[-1] == 0:
            return (seen[0, :, 0] if len(weight) == 3 else seen[..., 0]), axis == -1
        if len(weight) == 2:
            return seen[..., 0, :], True
    raise TypeError(f"the view of {place.name} mixes rows with columns")


def _permuted(b: Elements, heads: int) -> Elements:
    return permuted(b, heads).reshape(b.shape) if heads else b


def _stacked(
    base: Base, name: str, parts: Mapping[int, tuple[NamedPair, TargetModule]]
) -> tuple[Elements, Elements, float]:
    """Stack the pairs of all experts."""
    missing = set(range(base.shapes[name][0])) - parts.keys()
    first, _ = next(iter(parts.values()))
    if missing:
        raise UnsupportedError(
            f"{first.source}: tensor {name!r} has pairs for {len(parts)} of its "
            f"{base.shapes[name][0]} experts, but none for expert {min(missing)}; trinity applies "
            "adapters only if they have all experts"
        )
    ordered = [parts[expert] for expert in range(len(parts))]
    arrays = [_in_order(base, pair, place) for pair, place in ordered]
    if len({(a.shape, b.shape, a.dtype, b.dtype) for a, b in arrays}) > 1:
        raise UnsupportedError(
            f"{first.source}: the pairs of the experts of tensor {name!r} differ in rank or type, "
            "which is not supported"
        )
    a, b = np.stack([a for a, _ in arrays]), np.stack([b for _, b in arrays])
    scales = [pair.scale for pair, _ in ordered]
    if len(set(scales)) == 1:
        return a, b, scales[0]
    return a, as_float32(b) * np.array(scales, np.float32)[:, None, None], 1.0


def tied_output(base: Base, pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """Return the pairs, with the embedding's also for the output if the model ties both.

    The output multiplies by the embedding's rows, to which scale * a @ b.T is added.
    """
    by_name = {pair.name: pair for pair in pairs}
    own = by_name.get(EMBEDDING)
    if own is None or HEAD in by_name or not base.config.tie_word_embeddings:
        return pairs
    return (*pairs, fitted(base, base.path, HEAD, own.b.T, own.a, own.scale))
