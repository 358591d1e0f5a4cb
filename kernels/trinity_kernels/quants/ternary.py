"""How ternary weights are read: codes 0, 1 and 2 for -1, 0 and +1, in blocks of 256."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Ternary:
    """How one type's rows are read.

    ``nbytes``: bytes of 256 codes; ``scale_at``: the byte of their float16 scale (0: the tensor has
    one scale, which is not in its rows, and the last block of a row may have 128 codes).
    ``codes(block, left)``: 256 codes as four vectors of 64 bytes in the order of the ternary form
    of activations (ops/matmul/activations.py); ``left``: how many the row has left.
    ``code(block, e)``: that of element e. ``packed(block, left)``: where a block's 64 bytes hold
    each vector's codes as two bits, those of the first vector highest, these bytes.
    """

    form: ClassVar[str] = "ternary"

    nbytes: int
    codes: Callable[..., Any]
    code: Callable[..., Any]
    scale_at: int = 0
    packed: Callable[..., Any] | None = None
