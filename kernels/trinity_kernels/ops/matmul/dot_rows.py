"""Several rows of weights times one row of activations, on some levels for some types.

The rows share the loads of activations and hide the cost of the end of a row. The results have the
bits of ``dot_row``.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.isa import is_compiled_copy
from trinity_kernels.ops.matmul import dot_affine4, dot_block_rows, dot_nibble_rows
from trinity_kernels.quants import READERS
from trinity_kernels.tags import chosen, constant

LEVELS = frozenset({"avx2", "avx512vnni", "amx"})
MOST = dot_affine4.ROWS


@constant
def rows_at_once(isa: Any, qt: Any) -> int:
    """Rows of weights that ``dot_rows`` takes, at most ``MOST``; 0 if it takes none."""
    reader = READERS[qt.value]
    if isa.value not in LEVELS or not is_compiled_copy():
        return 0
    if isa.value == dot_nibble_rows.LEVEL:
        return dot_block_rows.ROWS if reader.nibbles_at else 0
    if reader.in_order:
        return dot_affine4.ROWS
    return dot_block_rows.block_rows(reader)


@chosen
def dot_rows(isa: Any, qt: Any, w: Any, stride: Any, x: Any, k: Any, to: Any) -> Any:
    """Multiply rows, ``stride`` bytes apart, by the activations at ``x``: float32 at ``to``."""
    if rows_at_once(isa, qt) == 0:
        return lambda isa, qt, w, stride, x, k, to: None
    rows: Any = dot_block_rows.dot_block_rows
    if isa.value == dot_nibble_rows.LEVEL:
        rows = dot_nibble_rows.dot_nibble_rows
    elif READERS[qt.value].in_order:
        rows = dot_affine4.dot_affine4_rows
    return lambda isa, qt, w, stride, x, k, to: rows(isa, qt, w, stride, x, k, to)
