"""Values to the blocks of every type that can be written, row by row.

A type whose scales are worth a search has its compiled loops here (groups.py, tables.py); the
others go through the NumPy quantizers of trinity_kernels.quants.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.quantizers import block32, k_quants
from trinity_kernels.quants import TYPES

__all__ = ["SEARCHED", "WRITABLE", "quantize_rows"]

_FAMILIES = (k_quants, block32)
_QUANTIZERS = {name: function for f in _FAMILIES for name, function in f.QUANTIZERS.items()}
# The types for which importance matters.
SEARCHED = frozenset(_QUANTIZERS) - {"Q8_0", "MXFP4"}
# I2_S has one scale for a whole tensor, which no row tells.
WRITABLE = frozenset(_QUANTIZERS) | {
    quant.name for quant in TYPES.values() if quant.encode_blocks and not quant.tensor_scale
}


def quantize_rows(
    type_name: str, values: NDArray[np.float32], importance: NDArray[np.float32] | None = None
) -> NDArray[np.uint8]:
    """Rows (n, K) of C-contiguous float32 as bytes (n, bytes of a row).

    ``importance`` (K,): how much the error of each column counts, as imatrix files have it; types
    that search no scale take no notice of it. Runs in one thread and without the interpreter's
    lock for the most part, so that callers share rows out.
    Numerics: the searches of ggml-quants.c, sums in the order of elements, each operation rounded
    by itself: the same bytes on every CPU. NaN becomes the lowest code, infinities give blocks
    that are not finite.
    Raises: KeyError for a type that is not in WRITABLE, ValueError for rows of no whole blocks.
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
    # Zeros under a scale of 0, and overflowing scales, are the input's business.
    with np.errstate(all="ignore"):
        if function is None:
            return quant.quantize(values).reshape(rows, row_bytes)
        blocks = function(np.ascontiguousarray(values, np.float32), importance)
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(rows, row_bytes)
