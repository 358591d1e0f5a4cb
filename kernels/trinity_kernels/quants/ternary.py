"""Readers of ternary weights: codes 0, 1 and 2 for -1, 0 and +1, in blocks of 256."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trinity_kernels.quants.reader import BlockReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Ternary(BlockReader):
    """How a type's rows are read.

    Without ``scale_at`` the whole tensor has one scale, which is not in its rows, and the last
    block of a row may have 128 codes.
    """

    elements: int = 256
    form: str = "ternary"
    # codes(block, left): 256 codes as four vectors of 64 bytes, in the order of the ternary form
    # of activations (ops/matmul/activations.py); ``left`` elements of the row are left.
    codes: Callable[..., Any]
    # code(block, e): the code of element e.
    code: Callable[..., Any]
    # packed(block, left): the block's 64 bytes, if each holds one code of every vector in two
    # bits, the first vector's in the highest.
    packed: Callable[..., Any] | None = None
