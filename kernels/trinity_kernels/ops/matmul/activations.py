"""The forms of activations that products take, and the layout of each.

Products of quantized weights take quantized activations. The form depends on the weight's type
(``FORMS``):

    f32      float32
    q8       x = scale * code: int8 codes, a scale for 32 of them
    q19      x = scale * (65536 * high + 256 * middle + ones): 19 bits in three int8 codes, a scale
             for 32 numbers
    ternary  x = code / s: int8 codes in the order of ``ternary_place``, one s for the row

``LAYOUTS`` describes a row of each form: arrays one after the other, with sums that products need.
Compiled code finds an array by an offset (``q8_scales``), NumPy by a field of ``row_type``.

``ternary_place`` serves I2_S and TQ2_0: of 256 codes, place 64 g + 32 h + i holds element
128 h + 32 g + i, so one load of 64 bytes of weights meets four of 64 bytes of activations.

As AMX tiles (activation_tiles.py) 16 rows are side by side: each 64 bytes of a row become 16 words
between those of the other rows, 1024 bytes, so an offset is ``TILE_ROWS`` times as large. Up to
``TILE_ROWS`` rows of the q8 form become tiles up to the sums; bfloat16 tiles of the same rows
follow if a weight takes these. More rows become bfloat16 tiles alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from trinity_kernels._jit import inline
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32, get_i8, get_i32
from trinity_kernels.ops.matmul.operands import TILE_ROWS
from trinity_kernels.quants import READERS
from trinity_kernels.tags import shared

# The form of each type's products, and with it the types that a product can take.
FORMS: dict[str, str] = {name: reader.form for name, reader in READERS.items()}


@dataclass(frozen=True, slots=True)
class Array:
    """One array of a row: a number for ``each`` elements, zeros up to a multiple of ``padding``."""

    name: str
    dtype: DTypeLike
    each: int
    padding: int

    @property
    def elements(self) -> int:
        """Elements of a row for which the array grows by ``nbytes``."""
        return self.each * self.padding

    @property
    def nbytes(self) -> int:
        """Bytes of ``padding`` numbers."""
        return self.padding * np.dtype(self.dtype).itemsize

    def numbers(self, k: int) -> int:
        """Numbers for a row of ``k`` elements."""
        return -(-k // self.elements) * self.padding


LAYOUTS: dict[str, tuple[Array, ...]] = {
    "f32": (Array("values", "<f4", 1, 16),),
    "q8": (
        Array("codes", "i1", 1, 64),
        Array("scales", "<f4", 32, 16),
        Array("sums", "<f4", 32, 16),  # scale * sum of codes
        Array("groups", "<i4", 4, 16),  # minus the sum of codes
        Array("halves", "<f4", 16, 32),  # scale * sum of codes
        Array("negated", "<i4", 16, 32),  # minus the sum of codes
    ),
    "q19": (
        Array("high", "i1", 1, 64),
        Array("middle", "i1", 1, 64),
        Array("ones", "i1", 1, 64),
        Array("scales", "<f4", 32, 16),
        Array("sums", "<f4", 32, 16),  # scale * sum of numbers
        Array("groups", "<i4", 4, 16),  # minus the sum of numbers
        Array("halves", "<f4", 16, 32),  # scale * sum of numbers
    ),
    # Followed by 64 bytes: float32 s, int32 sum of all codes, zeros.
    "ternary": (
        Array("codes", "i1", 1, 256),
        Array("sums", "<i4", 256, 16),  # minus the sum of codes
    ),
}
_TAIL = np.dtype({"names": ["s", "sum"], "formats": ["<f4", "<i4"], "itemsize": 64})


def row_type(form: str, k: int) -> np.dtype[np.void]:
    """A row of ``k`` activations as a structure: a field for each array, and a ternary ``tail``."""
    fields: list[Any] = [(array.name, array.dtype, array.numbers(k)) for array in LAYOUTS[form]]
    return np.dtype(fields + [("tail", _TAIL)] * (form == "ternary"))


@cache
def activation_bytes(form: str, k: int) -> int:
    """Bytes of a row, a multiple of 64."""
    return row_type(form, k).itemsize


def _end(form: str, name: str) -> Callable[[int], int]:
    """Bytes from the start of a row of ``k`` activations to the end of an array.

    A function that Python and compiled code call alike.
    """
    names = [array.name for array in LAYOUTS[form]]
    arrays = LAYOUTS[form][: names.index(name) + 1]

    def python(k: int) -> int:
        return sum(-(-k // array.elements) * array.nbytes for array in arrays)

    @instructions("int64", "int64", python=python)
    def end(builder: Any, k: Any) -> Any:
        total = k.type(0)
        for array in arrays:
            whole = builder.add(k, k.type(array.elements - 1))
            units = builder.udiv(whole, k.type(array.elements))
            total = builder.add(total, builder.mul(units, k.type(array.nbytes)))
        return total

    return end


q8_scales, q8_sums, q8_groups = _end("q8", "codes"), _end("q8", "scales"), _end("q8", "sums")
q8_halves, q8_negated = _end("q8", "groups"), _end("q8", "halves")
q19_middle, q19_ones, q19_scales = (_end("q19", name) for name in ("high", "middle", "ones"))
q19_sums, q19_groups, q19_halves = (_end("q19", name) for name in ("scales", "sums", "groups"))
ternary_sums, ternary_tail = _end("ternary", "codes"), _end("ternary", "sums")


@inline
def q19_number(x: int, k: int, i: int) -> int:
    """Number ``i`` of a row of the q19 form at ``x``."""
    high, middle = int(get_i8(x + i)), int(get_i8(x + q19_middle(k) + i))
    return 65536 * high + 256 * middle + int(get_i8(x + q19_ones(k) + i))


@shared
def ternary_place(e: int) -> int:
    """The place of element ``e`` among the codes of the ternary form."""
    return e // 256 * 256 + e % 128 // 32 * 64 + e % 256 // 128 * 32 + e % 32


@inline
def ternary_result(total: int, x: int, k: int) -> Any:
    """The product with weights -1, 0, 1, float32; ``total`` is that with codes 0, 1, 2."""
    tail = x + ternary_tail(k)
    return np.float32(np.float32(total - get_i32(tail + 4)) / get_f32(tail))


# -- as tiles --------------------------------------------------------------------------------------


@shared
def bf16_tiles_at(k: int, rows: int) -> int:
    """Bytes from the tiles of the q8 form to the bfloat16 tiles of the same rows."""
    return TILE_ROWS * q8_groups(k) if rows <= TILE_ROWS else 0


def unpacked_bytes(form: str, k: int) -> int:
    """Bytes of a row, of weights or activations, in tiles: int8, bfloat16 or two bfloat16."""
    if form == "ternary":
        return ternary_sums(k)
    return -(-k // 32) * (64 if form == "q8" else 128)


def tile_bytes(form: str, k: int, rows: int) -> int:
    """Bytes of ``rows`` rows as tiles."""
    found = -(-rows // 32) * 32 * unpacked_bytes(form, k)
    if form == "q8":
        # Few rows may need both kinds of tiles.
        found = max(found, TILE_ROWS * (q8_groups(k) + unpacked_bytes(form, k)))
    return found
