"""x = x * FACTOR, element by element.

Shapes: X is M rows of K float32, STRIDE bytes apart; FACTOR is the bits of a float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import kernel
from trinity_kernels.memory import get_f64, get_i64, slots_of
from trinity_kernels.ops.in_place import multiply
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive

X, STRIDE, K, FACTOR = range(3, 7)


@kernel
def scale(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, stride, k = slots_of(record, (X, STRIDE, K))
    factor = np.float32(get_f64(record + 8 * FACTOR))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        multiply(isa, x + t * stride, factor, first, last)
