"""Quantization types by ggml's names: layouts, NumPy decoders and readers.

A file of this package contains a family of types: ``TYPES`` (quant_type.py), and ``READERS``, by
which compiled code reads the types that are weights of products. ``_FAMILIES`` registers the file.

    quant_type.py    a type: block layout, decoder, encoder
    reader.py        what products ask of a type; its kinds:
                     floats.py (Plain), affine4.py, block32.py, superblock.py, ternary.py
    emit.py          LLVM code that the readers of several files share
    codebooks.py     the tables of the IQ types
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trinity_kernels.ggml import TYPES_BY_NAME
from trinity_kernels.quants import (
    affine,
    affine4,
    floats,
    fp4,
    fp8,
    i2_s,
    integers,
    iq1,
    iq2,
    iq3,
    iq4,
    one_bit,
    q2_k,
    q4,
    q4_k,
    q5,
    q6_k,
    q8,
    tq,
)
from trinity_kernels.quants.quant_type import QuantType
from trinity_kernels.quants.reader import BlockReader

__all__ = ["READERS", "TYPES", "BlockReader", "QuantType", "dequantize", "nbytes", "quantize"]

_FAMILIES = (
    floats, integers, q4, q5, q8, q2_k, q4_k, q6_k, iq1, iq2, iq3, iq4, fp4, fp8, affine,
    affine4, one_bit, i2_s, tq,
)  # fmt: skip

TYPES: dict[str, QuantType] = {t.name: t for family in _FAMILIES for t in family.TYPES}
READERS: dict[str, BlockReader] = {
    name: reader for family in _FAMILIES for name, reader in getattr(family, "READERS", {}).items()
}

for _type in TYPES.values():
    _row = TYPES_BY_NAME.get(_type.name)
    assert _row is None or _row[2:] == (_type.block_size, _type.type_size), _type.name


def dequantize(
    type_name: str, data: NDArray[np.uint8], shape: Sequence[int]
) -> NDArray[np.float32]:
    """All values of a tensor as a new float32 array of ``shape``.

    Raises: KeyError for an unknown type, ValueError if the bytes do not fit the shape.
    """
    return TYPES[type_name].dequantize(data, shape)


def quantize(type_name: str, values: ArrayLike) -> NDArray[np.uint8]:
    """The bytes of float32 ``values`` (rows, K) in that type, as a 1-D array.

    Numerics: the bytes of ggml's reference quantizers. Ternary types expect ternary input.
    Raises: KeyError for an unknown type, ValueError if rows are not whole blocks.
    """
    return TYPES[type_name].quantize(values)


def nbytes(type_name: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor of ``shape``. Raises: KeyError, ValueError as for ``dequantize``."""
    return TYPES[type_name].nbytes(shape)
