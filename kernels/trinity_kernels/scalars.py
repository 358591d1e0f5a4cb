"""Arithmetic that Numba would do by a call of a library, or with a path for errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels.deferred import ir
from trinity_kernels.instructions import instructions

_TO_WHOLE = 1.5 * 2**23  # added to a whole number, its bits end with that number's


@instructions("int64", "int64", python=lambda n: n)
def positive(builder: Any, n: Any) -> Any:
    """``n``, at least 1: for the compiler, a range with this step cannot fail."""
    return builder.select(builder.icmp_signed(">", n, n.type(0)), n, n.type(1))


@instructions("float32", "float32", python=lambda n: np.float32(2.0 ** np.float64(n)))
def power_of_two(builder: Any, n: Any) -> Any:
    """2**n of a whole number from -126 to 127, by its exponent's bits."""
    word = ir.IntType(32)
    bits = builder.bitcast(builder.fadd(n, n.type(_TO_WHOLE)), word)
    return builder.bitcast(builder.add(builder.shl(bits, word(23)), word(127 << 23)), n.type)
