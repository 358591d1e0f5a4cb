"""How blocks of 64, 128 or 256 elements are read, which have one scale or several.

A block is read in parts of 64 elements; a scale belongs to 16 or 32 elements or to all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperBlock:
    """How one type's blocks are read: as vectors and, one by one, for the portable level.

    ``emit_codes(level, builder, block, part)``: LLVM code that gives the 64 codes of a part as
    <64 x i8>, ``block`` being the address. They stand ``offset`` (0 or a power of 2) above the
    values and stay below 128, or are ``signed``. ``code(block, e)``: that of element e.
    ``emit_scales(builder, block)``: <16 x float>, one per ``group`` of 16 elements; those of 32
    fill the lower eight lanes, under their minima where there are such (``minima`` 32); that of a
    whole block (``group`` = ``elements``) fills all. ``scale(block, g)``: one of them.
    ``emit_minima(builder, block)``: what is subtracted from 16 elements each (``minima`` 16).
    ``minimum(block, g)``: one of either kind of minima. ``top``: no code is larger.
    ``form``: of the activations (ops/matmul/activations.py), "q8" or, of codes that stand above the
    values, "q19".
    """

    nbytes: int
    emit_codes: Callable[[str, Any, Any, int], Any]
    code: Callable[..., Any]
    emit_scales: Callable[[Any, Any], Any]
    scale: Callable[..., Any]
    emit_minima: Callable[[Any, Any], Any] | None = None
    minimum: Callable[..., Any] | None = None
    elements: int = 256
    group: int = 32
    offset: int = 0
    signed: bool = False
    minima: int = 0
    top: int = 127
    form: str = "q8"
