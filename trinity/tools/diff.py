"""Compare two models: keys, tensors, shapes, types, and the difference of their values.

Works in pieces, whatever the tensors' sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from trinity.formats.provider import Tensor, WeightProvider
from trinity_kernels.quants import TYPES

Progress = Callable[[int, int, str], None]

_STEP = 1 << 20  # values compared at a time, in whole blocks of every type


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that differs between two models."""

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    types: tuple[str, str]
    # root mean square of the differences relative to the first model's values; None if shapes
    # differ or a type cannot be read, 0.0 if different bytes have equal values
    rmse: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Keys and tensors that only one model has, and those that differ."""

    keys_only_first: list[str]
    keys_only_second: list[str]
    keys_changed: list[str]
    tensors_only_first: list[str]
    tensors_only_second: list[str]
    tensors_changed: list[TensorDifference]
    same_tensors: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (
            self.keys_only_first
            or self.keys_only_second
            or self.keys_changed
            or self.tensors_only_first
            or self.tensors_only_second
            or self.tensors_changed
        )


def diff(
    first: WeightProvider,
    second: WeightProvider,
    progress: Progress = lambda done, total, name: None,
) -> Diff:
    """Compare two open models.

    ``progress`` is called with the bytes of ``first`` that have been compared, the total, and the
    name of the current tensor.
    """
    keys, other_keys = first.metadata, second.metadata
    names, other_names = first.tensor_names(), second.tensor_names()
    known, other_known = frozenset(names), frozenset(other_names)
    changed, same, done = [], 0, 0
    total = sum(first.tensor(name).nbytes for name in names)
    for name in names:
        progress(done, total, name)
        a = first.tensor(name)
        done += a.nbytes
        if name not in other_known:
            continue
        b = second.tensor(name)
        if (a.shape, a.type) == (b.shape, b.type) and _same_bytes(a, b):
            same += 1
        else:
            shapes, types = (a.shape, b.shape), (a.type, b.type)
            changed.append(TensorDifference(name, shapes, types, _rmse(a, b)))
    progress(total, total, "")
    return Diff(
        keys_only_first=[key for key in keys if key not in other_keys],
        keys_only_second=[key for key in other_keys if key not in keys],
        keys_changed=[k for k in keys if k in other_keys and not _equal(keys[k], other_keys[k])],
        tensors_only_first=[name for name in names if name not in other_known],
        tensors_only_second=[name for name in other_names if name not in known],
        tensors_changed=changed,
        same_tensors=same,
    )


def _same_bytes(a: Tensor, b: Tensor) -> bool:
    x, y = (t.data.reshape(-1).view(np.uint8) for t in (a, b))
    steps = range(0, x.size, _STEP)
    return x.size == y.size and all(
        np.array_equal(x[i : i + _STEP], y[i : i + _STEP]) for i in steps
    )


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        x, y = np.asarray(a), np.asarray(b)
        return x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
    # NaN equals itself here: equal bytes are no difference.
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _rmse(a: Tensor, b: Tensor) -> float | None:
    if a.shape != b.shape or a.type not in TYPES or b.type not in TYPES:
        return None
    count = prod(a.shape)
    error = size = 0.0
    with np.errstate(all="ignore"):
        for start in range(0, count, _STEP):
            x, y = (_values(t, start, min(start + _STEP, count)) for t in (a, b))
            error += float(np.square(x - y, dtype=np.float64).sum())
            size += float(np.square(x, dtype=np.float64).sum())
    return sqrt(error / size) if size > 0 else (0.0 if error == 0 else float("inf"))


def _values(tensor: Tensor, first: int, last: int) -> NDArray[np.float32]:
    """Return elements of the flat tensor, whose blocks are contiguous; ``first`` begins a block."""
    quant = TYPES[tensor.type]
    data = tensor.data.reshape(-1)
    begin, end = (at // quant.block_size * quant.type_size for at in (first, last))
    piece = data[begin:end]
    if quant.tensor_scale:  # the scale follows all codes
        codes = prod(tensor.shape) // quant.block_size * quant.type_size
        piece = np.concatenate([piece, data[codes:]])
    return quant.dequantize(piece, (last - first,))
