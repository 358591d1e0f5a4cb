"""Readers of blocks of 64, 128 or 256 elements, which have one scale or several.

A block is read in parts of 64 elements; a scale belongs to 16 or 32 elements or to all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trinity_kernels.quants.reader import BlockReader

Columns = Callable[[int], Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperBlock(BlockReader):
    """How a type's blocks are read: as vectors and, for the portable level, one by one.

    ``block`` is an address, and ``emit_`` functions add LLVM code to ``builder``.
    """

    elements: int = 256
    # Unsigned codes are below 128.
    top: int = 127
    # emit_codes(level, builder, block, part): the 64 codes of a part as <64 x i8>.
    emit_codes: Callable[[str, Any, Any, int], Any]
    # code(block, e): the code of element e.
    code: Callable[..., Any]
    # emit_scales(builder, block): <16 x float>. Scales of 16 elements fill all lanes; those of 32
    # the lower eight, and minima of 32 (``minima``) the upper eight; one scale fills all lanes.
    emit_scales: Callable[[Any, Any], Any]
    # scale(block, g): the scale of group g.
    scale: Callable[..., Any]
    # emit_minima(builder, block): <16 x float>, the minima of 16 elements each.
    emit_minima: Callable[[Any, Any], Any] | None = None
    # minimum(block, g): the minimum of group g, of 16 or of 32 elements.
    minimum: Callable[..., Any] | None = None
    # The same for 16 rows side by side, if it is faster than transposing codes (columns.py).
    # columns(offset): four <16 x i32>, words from byte ``offset`` of the block of each row.
    # emit_code_columns(builder, columns): four codes of each row at a time, in order.
    emit_code_columns: Callable[[Any, Columns], Iterator[Any]] | None = None
    # emit_scale_columns(builder, columns): <16 x float> of each scale, then of minus each minimum.
    emit_scale_columns: Callable[[Any, Columns], Iterator[Any]] | None = None

    @property
    def unit(self) -> int:
        """A superblock."""
        return self.elements

    @property
    def has_exact_groups(self) -> bool:
        """Whether groups fill parts of four, without minima of 16 elements."""
        return self.elements % (4 * min(self.group, 32)) == 0 and self.minima != 16
