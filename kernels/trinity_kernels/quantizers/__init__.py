"""Quantizers for every type that can be written, row by row.

Types whose scales need a search have compiled loops here; the others use the NumPy quantizers of
trinity_kernels.quants.

    block32.py, k_quants.py     types of blocks of 32, and of superblocks
    groups.py, tables.py        the loops over groups of values, and over tables of 16 values
    search.py                   searches for the scales of 16 groups side by side
    outermost.py                types whose scale follows from the outermost element
    lanes.py                    16 groups side by side
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.quantizers import block32, k_quants
from trinity_kernels.quants import TYPES

__all__ = ["SEARCHED", "WRITABLE", "quantize_rows"]

_FAMILIES = (k_quants, block32)
_QUANTIZERS = {name: function for f in _FAMILIES for name, function in f.QUANTIZERS.items()}
# The types that use importance.
SEARCHED = frozenset(_QUANTIZERS) - {"Q8_0", "MXFP4"}
# I2_S has one scale for the whole tensor, which a row does not determine.
WRITABLE = frozenset(_QUANTIZERS) | {
    quant.name for quant in TYPES.values() if quant.encode_blocks and not quant.tensor_scale
}


def quantize_rows(
    type_name: str, values: NDArray[np.float32], importance: NDArray[np.float32] | None = None
) -> NDArray[np.uint8]:
    """Quantize rows (n, K) of C-contiguous float32 to bytes (n, bytes of a row).

    ``importance`` (K,): the weight of each column's error, from imatrix files; types without a
    search for scales ignore it. The function uses one thread and mostly runs without the GIL, so
    callers can share rows among threads.
    Numerics: the searches of ggml-quants.c, sums in the order of elements, each operation rounded
    separately: the bytes are the same on every CPU. NaN becomes the lowest code; infinities give
    blocks that are not finite.
    Raises: KeyError for a type that is not in WRITABLE, ValueError if rows are not whole blocks.
    """
    if type_name not in WRITABLE:
        raise KeyError(type_name)
    quant = TYPES[type_name]
    rows, k = values.shape
    row_bytes = quant.nbytes((1, k))
    if importance is not None and importance.shape != (k,):
        raise ValueError(f"importance of shape {importance.shape} for rows of {k}")
    if importance is not None:
        importance = np.ascontiguousarray(importance, np.float32)
    if rows == 0 or k == 0:
        return np.zeros((rows, row_bytes), np.uint8)
    function = _QUANTIZERS.get(type_name)
    # Zero blocks and overflowing scales follow from the input: no warnings.
    with np.errstate(all="ignore"):
        if function is None:
            return quant.quantize(values).reshape(rows, row_bytes)
        blocks = function(np.ascontiguousarray(values, np.float32), importance)
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(rows, row_bytes)
