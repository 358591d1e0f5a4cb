"""LoRA adapters in canonical names: pairs of small matrices that are added to weights.

A pair changes a product to y = W x + weight * scale * B (A x); several adapters add up. Formats
differ in names, orientation and the definition of the scale; the readers in this package convert
all of them to this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import FormatError
from trinity.formats.huggingface.family import Family

# NumPy's types of a pair's elements, and ggml's names of them; 16-bit integers hold BF16's bits.
TYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}
MAX_RANK = 4096
# No weight is this large, and products of larger values could overflow to infinity.
LARGEST = 1e18
_LARGEST_BF16 = int(np.array(LARGEST, np.float32).view(np.uint32)) >> 16

Elements = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Base:
    """The model that adapters must fit.

    ``shapes``: all tensors that may be adapted, by canonical name; includes the output even if the
    model ties it to the embedding. ``embeddings``: those that tokens look up by row. ``permuted``:
    rows of Q and K are in the order of GGUF's converters, in families that permute them.
    ``families``: the transformers classes of this model.
    """

    path: str
    config: ModelConfig
    shapes: Mapping[str, tuple[int, ...]]
    embeddings: frozenset[str]
    permuted: bool
    families: tuple[Family, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """The update of the tensor ``name``: scale * (b @ a).

    Shapes: for a weight (out, in), ``a`` is (r, in) and ``b`` is (out, r). For a stack (n, out, in)
    of experts or heads they are (n, r, in) and (n, out, r). For an embedding (tokens, width) they
    are (tokens, r) and (width, r). The elements are of ``TYPES``; both arrays are contiguous
    copies.
    """

    name: str
    a: Elements
    b: Elements
    scale: float

    @property
    def nbytes(self) -> int:
        """Bytes of both matrices."""
        return int(self.a.nbytes + self.b.nbytes)


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """One adapter's pairs, at most one per tensor."""

    path: str
    pairs: tuple[Pair, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all pairs."""
        return sum(pair.nbytes for pair in self.pairs)


def as_float32(array: Elements) -> NDArray[np.float32]:
    """Convert a pair's elements to float32."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def fitted(base: Base, source: str, name: str, a: Elements, b: Elements, scale: float) -> Pair:
    """Return a pair of copies of ``a`` and ``b`` for the base's tensor ``name``, which must exist.

    Raises FormatError if shapes or values do not fit.
    """
    shape = base.shapes[name]
    expected: tuple[tuple[int, ...], tuple[int, ...]]
    if name in base.embeddings:
        tokens, width = shape
        rank = a.shape[-1] if a.ndim == 2 else 0
        expected = (tokens, rank), (width, rank)
    else:
        *count, out, width = shape
        rank = a.shape[-2] if a.ndim > 1 else 0
        expected = (*count, rank, width), (*count, out, rank)
    if (a.shape, b.shape) != expected or not 0 < rank <= MAX_RANK:
        r = rank if 0 < rank <= MAX_RANK else f"1 to {MAX_RANK}"
        raise FormatError(
            f"{source}: the pair for tensor {name!r} has the shapes {a.shape} and {b.shape}; the "
            f"model's shape {shape} needs {_with(expected[0], rank, r)} and "
            f"{_with(expected[1], rank, r)}: the adapter belongs to another model"
        )
    pair = Pair(name, np.array(a, order="C"), np.array(b, order="C"), scale)
    for array in (pair.a, pair.b):
        _check_values(array, f"{source}: the pair for tensor {name!r}")
    if not abs(scale) <= LARGEST:
        raise FormatError(f"{source}: tensor {name!r} has the scale {scale}; the file is damaged")
    return pair


def _with(shape: tuple[int, ...], rank: int, r: object) -> str:
    """Describe a shape with the rank in place of ``r``."""
    return "(" + ", ".join(str(r if size == rank else size) for size in shape) + ")"


def _check_values(array: Elements, where: str) -> None:
    if array.dtype == np.uint16:
        fits = not ((array & np.uint16(0x7FFF)) > _LARGEST_BF16).any()
    else:
        low, high = (
            float(array.min(initial=0)),
            float(array.max(initial=0)),
        )  # NaN if any element is NaN
        fits = low >= -LARGEST and high <= LARGEST
    if not fits:
        raise FormatError(
            f"{where} has values that are not numbers or exceed {LARGEST:g}; the file is damaged"
        )
