"""A checkpoint's tensors under canonical names: views of the files wherever these allow it.

Floats of 16 and 32 bits stay as they are, experts apart where they lie apart or where a stack
holds them with others. What is made anew, when it is asked for: norms with an addend, matrices that
are stored transposed or with others' rows between theirs, F64, blocks of MXFP4, ternary codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.quantization import Ternary
from trinity.formats.huggingface.tensors import HFTensor
from trinity.formats.huggingface.weights import (
    CHUNK_ELEMENTS,
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
_TYPES = ("BF16", "F16", "F32")  # as GGUF's types are called, too


class CanonicalTensors:
    """The tensors that a checkpoint has of what its configuration asks for.

    Raises FormatError or UnsupportedError where one is stored in another form or shape.
    """

    def __init__(
        self, tensors: Sequence[HFTensor], ternary: Ternary | None, checkpoint: Checkpoint
    ) -> None:
        self._checkpoint = checkpoint
        self._ternary = ternary
        self._parts: dict[str, tuple[HFTensor, int | None]] = {}
        for needed in tensors:
            check_stored(needed, ternary, checkpoint)
            if self._is_apart(needed):
                for expert in range(needed.shape[0]):
                    name = f"{needed.name.removesuffix('weight')}{expert}.weight"
                    self._parts[name] = needed, expert
            else:
                self._parts[needed.name] = needed, None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Canonical name to shape, in order."""
        return {
            name: needed.shape if expert is None else needed.shape[1:]
            for name, (needed, expert) in self._parts.items()
        }

    def tensor(self, name: str) -> Tensor:
        """The tensor of a name of ``shapes``. Raises FormatError where a file was cut meanwhile."""
        needed, expert = self._parts[name]
        shape = needed.shape if expert is None else needed.shape[1:]
        checkpoint = self._checkpoint
        make: Callable[[], Iterator[NDArray[np.generic]]]
        if needed.stored.blocks:
            stored = checkpoint.tensor(needed.source)
            make, type_name = partial(read_blocks, needed, checkpoint), "MXFP4"
            return MadeTensor(name, shape, type_name, make, stored.source, stored.name)
        if self._ternary is not None and needed.kind == "linear":
            return self._ternary_tensor(name, needed, self._ternary)
        stored, elements = self._elements(needed, expert)
        if stored.dtype not in _TYPES or needed.addend:
            make, type_name = partial(read_floats, stored, elements, needed.addend), "F32"
        elif elements.flags.c_contiguous and elements.flags.aligned:
            data = elements.reshape(-1).view(np.uint8)
            return Tensor(name, shape, stored.dtype, data, stored.source, origin=stored.name)
        else:
            make, type_name = partial(rows_of, elements, CHUNK_ELEMENTS), stored.dtype
        return MadeTensor(name, shape, type_name, make, stored.source, stored.name)

    def copied_bytes(self) -> int:
        """Bytes of all tensors that are made anew; what the files hold as needed costs nothing."""
        found = map(self.tensor, self._parts)
        return sum(tensor.nbytes for tensor in found if isinstance(tensor, MadeTensor))

    def _elements(
        self, needed: HFTensor, expert: int | None
    ) -> tuple[SafeTensor, NDArray[np.generic]]:
        """The stored tensor that has the values, and these in it."""
        names = needed.stored.names
        stored = self._checkpoint.tensor(names[(expert or 0) % len(names)])
        elements = needed.stored.view(stored.elements())
        if expert is not None and elements.ndim == len(needed.shape):
            elements = elements[expert]
        return stored, elements

    def _is_apart(self, needed: HFTensor) -> bool:
        """Whether experts become a tensor each: no view of the file is the whole stack."""
        if not needed.name.endswith(_EXPERTS) or needed.stored.blocks:
            return False
        apart = len(needed.stored.names) > 1
        return apart or not self._elements(needed, None)[1].flags.c_contiguous

    def _ternary_tensor(self, name: str, needed: HFTensor, ternary: Ternary) -> Tensor:
        source = self._checkpoint.tensor(needed.source)
        read = partial(read_ternary, needed, ternary, self._checkpoint)
        if prod(needed.shape) % CODES_PER_BLOCK:  # I2_S has whole blocks
            return MadeTensor(
                name, needed.shape, "F32", partial(_all_floats, read), source.source, source.name
            )
        scale = weight_scale(needed, ternary, self._checkpoint) if ternary.packed else None
        return TernaryTensor(name, needed.shape, read, scale, source.source, source.name)


def _all_floats(read: partial[TernaryMatrix]) -> Iterator[NDArray[np.generic]]:
    matrix = read()
    yield matrix.floats(0, len(matrix.codes))
