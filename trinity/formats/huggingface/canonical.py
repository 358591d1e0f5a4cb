"""A checkpoint's tensors under canonical names, as views of the files where possible.

16-bit and 32-bit floats are views, also those of separate or stacked experts. The other tensors are
computed when they are read: values that GGUF changes, matrices that are stored transposed,
interleaved with others or in another row order, F64, MXFP4 blocks, ternary codes and packed
weights. The global scale of a packed weight becomes a tensor, NAME.scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.packed.weight import CHUNK_ELEMENTS, Packed
from trinity.formats.huggingface.quantization import TernaryPacking
from trinity.formats.huggingface.stored import Change, HFTensor, View
from trinity.formats.huggingface.weights import (
    check_stored,
    read_blocks,
    read_floats,
    read_ternary,
    weight_scale,
)
from trinity.formats.made_tensor import MadeTensor, rows_of
from trinity.formats.provider import Tensor
from trinity.formats.safetensors import SafeTensor
from trinity.formats.ternary_tensor import CODES_PER_BLOCK, TernaryMatrix, TernaryTensor

_EXPERTS = "_exps.weight"
_Make = Callable[[], Iterator[NDArray[Any]]]
_TYPES = ("BF16", "F16", "F32")  # the same names as in GGUF


class CanonicalTensors:
    """A checkpoint's tensors under GGUF's names, as its configuration requires.

    Raises FormatError or UnsupportedError if one is stored in another form or shape.
    """

    def __init__(
        self,
        tensors: Sequence[HFTensor],
        ternary: TernaryPacking | None,
        checkpoint: LogicalCheckpoint,
    ) -> None:
        self._checkpoint = checkpoint
        self._ternary = ternary
        self._parts: dict[str, tuple[HFTensor, int | None]] = {}
        self._scales: dict[str, Tensor] = {}
        # A tensor that is used twice, such as a tied embedding, is computed once.
        self._made: WeakValueDictionary[str, NDArray[np.uint8]] = WeakValueDictionary()
        for needed in tensors:
            check_stored(needed, ternary, checkpoint)
            if self._is_apart(needed):
                for expert in range(needed.shape[0]):
                    name = f"{needed.name.removesuffix('weight')}{expert}.weight"
                    self._parts[name] = needed, expert
            else:
                self._parts[needed.name] = needed, None
            if checkpoint.packed:
                self._add_scale(needed)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each tensor by canonical name, in order."""
        shapes = {
            name: needed.shape if expert is None else needed.shape[1:]
            for name, (needed, expert) in self._parts.items()
        }
        return shapes | {name: tensor.shape for name, tensor in self._scales.items()}

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of a name of ``shapes``. Raises FormatError if a file was truncated."""
        if name in self._scales:
            return self._scales[name]
        needed, expert = self._parts[name]
        shape = needed.shape if expert is None else needed.shape[1:]
        checkpoint = self._checkpoint
        make: Callable[[], Iterator[NDArray[np.generic]]]
        packed = checkpoint.packed.get(_name_of(needed, expert))
        if needed.stored.parts:
            return self._joined(name, needed, packed)
        if packed is not None:
            view, names = needed.stored.view, (packed.source, packed.name)
            if self._keeps_type(packed, needed, shape):
                make, fill = partial(packed.pieces, view), partial(packed.fill, view)
                return MadeTensor(name, shape, packed.dtype, make, *names, self._made, fill)
            make = partial(packed.floats, view, shape)
            return MadeTensor(name, shape, "F32", make, *names, self._made)
        if needed.stored.blocks:
            stored = checkpoint.tensor(needed.source)
            make, type_name = partial(read_blocks, needed, checkpoint), "MXFP4"
            return MadeTensor(name, shape, type_name, make, stored.source, stored.name)
        if self._ternary is not None and needed.linear:
            return self._ternary_tensor(name, needed, self._ternary)
        if expert is None and needed.stored.is_divided:
            return self._stacked(name, needed)
        stored, elements = self._elements(needed, expert)
        if stored.dtype not in _TYPES or needed.change is not None:
            make, type_name = partial(read_floats, stored, elements, needed.change), "F32"
        elif elements.flags.c_contiguous and elements.flags.aligned:
            data = elements.reshape(-1).view(np.uint8)
            return Tensor(name, shape, stored.dtype, data, stored.source, origin=stored.name)
        else:
            make, type_name = partial(rows_of, elements, CHUNK_ELEMENTS), stored.dtype
        return MadeTensor(name, shape, type_name, make, stored.source, stored.name)

    def _joined(self, name: str, needed: HFTensor, packed: Packed | None) -> Tensor:
        """Join the rows of several views of a tensor, each times its factor."""
        parts, factors = needed.stored.parts, needed.factors
        if packed is None:
            stored = self._checkpoint.tensor(needed.source)
            elements = [view(stored.elements()) for view in parts]
            if factors or needed.change is not None or stored.dtype not in _TYPES:
                changes: list[Change | None] = [partial(_times, factor) for factor in factors]
                changes = changes or [needed.change] * len(parts)
                makes: list[_Make] = [
                    partial(read_floats, stored, part, change)
                    for part, change in zip(elements, changes, strict=True)
                ]
                type_name = "F32"
            else:
                makes = [partial(rows_of, part, CHUNK_ELEMENTS) for part in elements]
                type_name = stored.dtype
            return MadeTensor(
                name, needed.shape, type_name, partial(_chained, makes), stored.source, stored.name
            )
        if self._keeps_type(packed, needed, needed.shape):
            makes = [partial(packed.pieces, view) for view in parts]
            type_name = packed.dtype
        else:
            makes = [partial(packed.floats, view, _seen(view, packed.shape)) for view in parts]
            if factors:
                makes = [
                    partial(_multiplied, factor, make)
                    for factor, make in zip(factors, makes, strict=True)
                ]
            type_name = "F32"
        return MadeTensor(
            name, needed.shape, type_name, partial(_chained, makes), packed.source, packed.name
        )

    def _stacked(self, name: str, needed: HFTensor) -> Tensor:
        """Join tensors that are the rows of one."""
        rows = [self._checkpoint.tensor(row) for row in needed.stored.names]
        makes = [partial(read_floats, row, row.elements(), needed.change) for row in rows]
        make = partial(_chained, makes)
        return MadeTensor(name, needed.shape, "F32", make, rows[0].source, rows[0].name)

    def copied_bytes(self) -> int:
        """Return the bytes of all tensors that must be computed rather than mapped."""
        tensors = map(self.tensor, self._parts)
        return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, MadeTensor))

    def _elements(
        self, needed: HFTensor, expert: int | None
    ) -> tuple[SafeTensor, NDArray[np.generic]]:
        """Return the stored tensor with the values, and its elements."""
        stored = self._checkpoint.tensor(_name_of(needed, expert))
        elements = needed.stored.view(stored.elements())
        if expert is not None and elements.ndim == len(needed.shape):
            elements = elements[expert]
        return stored, elements

    def _is_apart(self, needed: HFTensor) -> bool:
        """Whether experts become separate tensors: no view of the file is the whole stack."""
        if not needed.name.endswith(_EXPERTS) or needed.stored.blocks:
            return False
        if needed.stored.is_divided:
            return True
        if needed.source in self._checkpoint.packed:
            return False
        return not self._elements(needed, None)[1].flags.c_contiguous

    def _keeps_type(self, packed: Packed, needed: HFTensor, shape: tuple[int, ...]) -> bool:
        """Whether the weight stays packed; otherwise it becomes float32.

        Only matrices and experts may have a separate scale. If a feed-forward has a bias, GGUF adds
        it before scaling, which these models do not.
        """
        parts = needed.stored.parts
        if needed.factors or (not parts and not packed.keeps_rows(needed.stored.view, shape)):
            return False
        if not all(packed.keeps_rows(view, _seen(view, packed.shape)) for view in parts):
            return False
        if packed.scale is None:
            return True
        known = len(needed.shape) == 2 or needed.name.endswith(_EXPERTS)
        is_output = needed.name == "output.weight"
        return known and not needed.has_bias and (needed.linear or is_output)

    def _add_scale(self, needed: HFTensor) -> None:
        names, is_stack = needed.stored.names, len(needed.shape) == 3
        all_packed = [self._checkpoint.packed.get(name) for name in names]
        scales = []
        for packed in all_packed:
            if packed is None or packed.scale is None:
                scales.append(np.ones(1, np.float32))
                continue
            shape = needed.shape[1:] if is_stack and needed.stored.is_divided else needed.shape
            if not self._keeps_type(packed, needed, shape):
                return
            scales.append(packed.scale.reshape(-1))
        if all(packed is None or packed.scale is None for packed in all_packed):
            return
        name = f"{needed.name.removesuffix('weight')}scale"
        values = np.concatenate(scales)
        data = values.view(np.uint8)
        self._scales[name] = Tensor(name, values.shape, "F32", data, origin=needed.source)

    def _ternary_tensor(self, name: str, needed: HFTensor, ternary: TernaryPacking) -> Tensor:
        source = self._checkpoint.tensor(needed.source)
        read = partial(read_ternary, needed, ternary, self._checkpoint)
        if prod(needed.shape) % CODES_PER_BLOCK:  # I2_S has whole blocks
            return MadeTensor(
                name, needed.shape, "F32", partial(_all_floats, read), source.source, source.name
            )
        scale = weight_scale(needed, ternary, self._checkpoint) if ternary.packed else None
        return TernaryTensor(name, needed.shape, read, scale, source.source, source.name)


def _seen(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that a view gives an array."""
    return view(np.broadcast_to(np.uint8(0), shape)).shape


def _chained(makes: Sequence[_Make]) -> Iterator[NDArray[Any]]:
    for make in makes:
        yield from make()


def _times(factors: tuple[float, ...], values: NDArray[np.float32]) -> NDArray[np.float32]:
    for factor in factors:
        values = values * np.float32(factor)
    return values


def _multiplied(
    factors: tuple[float, ...], make: Callable[[], Iterator[NDArray[np.float32]]]
) -> Iterator[NDArray[np.float32]]:
    for values in make():
        yield _times(factors, values)


def _name_of(needed: HFTensor, expert: int | None) -> str:
    """Return the name of the checkpoint's tensor with the values of ``needed``.

    If each expert has its own tensor, this is the tensor of ``expert``.
    """
    names = needed.stored.names
    return names[(expert or 0) % len(names)]


def _all_floats(read: partial[TernaryMatrix]) -> Iterator[NDArray[np.generic]]:
    matrix = read()
    yield matrix.floats(0, len(matrix.codes))
