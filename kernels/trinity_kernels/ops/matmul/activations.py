"""The forms that activations have when they meet weights, and where their parts lie.

A row of K activations, by form:

    f32      K float32.
    q8       int8 codes, padded with zeros to 64; x = scale * code.
             at q8_scales:  per 32 codes their float32 scale, padded with zeros to 16 of them
             at q8_sums:    per 32 codes scale * sum, padded likewise
             at q8_groups:  per 4 codes the int32 negated sum, padded as the codes
             at q8_halves:  per 16 codes scale * sum, padded with zeros to 32 of them
             at q8_negated: per 16 codes the int32 negated sum, padded likewise
    q19      a number of 19 bits in three int8 codes, of 65536s, of 256s and of 1s; the first ones
             padded with zeros to 64; x = scale * number
             at q19_middle: the codes of 256s, padded likewise
             at q19_ones:   the codes of 1s, padded likewise
             at q19_scales: per 32 numbers their float32 scale, padded with zeros to 16 of them
             at q19_sums:   per 32 numbers scale * sum, padded likewise
             at q19_groups: per 4 numbers the int32 negated sum, padded as the codes
             at q19_halves: per 16 numbers scale * sum, padded with zeros to 32 of them
    ternary  int8 codes, padded with zeros to 256, permuted (ternary_place); x = code / s, one s a
             row.
             at ternary_sums:  per 256 codes the int32 negated sum, padded to 16 of them
             at ternary_tail:  float32 s, int32 sum of all codes, then padding to 64 bytes

Offsets are bytes from the row's first. The ternary permutation serves I2_S and TQ2_0 alike: within
256 codes, place 64 g + 32 h + i holds element 128 h + 32 g + i, so one 64-byte load of weights
meets four 64-byte loads of activations.

The tile form of 16 rows (activation_tiles.py) has each 64 bytes of a row as 16 words, side by side
with those of the other rows: 1024 bytes, so every offset is ``TILE_ROWS`` times as large. Of up to
``TILE_ROWS`` rows the q8 form's codes, scales and sums are tiles, and then, where a weight takes
them, come the bfloat16 tiles of the same rows; of more rows, bfloat16 tiles alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.memory import get_f32, get_i8, get_i32
from trinity_kernels.ops.matmul.operands import TILE_ROWS
from trinity_kernels.quants import READERS
from trinity_kernels.tags import shared

# The form that each type's product takes, and with it the types that a product can take.
FORMS: dict[str, str] = {name: reader.form for name, reader in READERS.items()}


@shared
def q8_scales(k: int) -> int:
    """Bytes from a row's codes to its scales of 32."""
    return (k + 63) // 64 * 64


@shared
def q8_sums(k: int) -> int:
    """Bytes from a row's codes to its scaled sums of 32."""
    return q8_scales(k) + (k + 511) // 512 * 64


@shared
def q8_groups(k: int) -> int:
    """Bytes from a row's codes to its negated sums of 4."""
    return q8_sums(k) + (k + 511) // 512 * 64


@shared
def q8_halves(k: int) -> int:
    """Bytes from a row's codes to its scaled sums of 16."""
    return q8_groups(k) + (k + 63) // 64 * 64


@shared
def q8_negated(k: int) -> int:
    """Bytes from a row's codes to its negated sums of 16."""
    return q8_halves(k) + (k + 511) // 512 * 128


@shared
def q19_middle(k: int) -> int:
    """Bytes from a row's codes of 65536s to those of 256s."""
    return (k + 63) // 64 * 64


@shared
def q19_ones(k: int) -> int:
    """Bytes from a row's codes of 65536s to those of 1s."""
    return 2 * q19_middle(k)


@shared
def q19_scales(k: int) -> int:
    """Bytes from a row's codes to its scales of 32."""
    return 3 * q19_middle(k)


@shared
def q19_sums(k: int) -> int:
    """Bytes from a row's codes to its scaled sums of 32."""
    return q19_scales(k) + (k + 511) // 512 * 64


@shared
def q19_groups(k: int) -> int:
    """Bytes from a row's codes to its negated sums of 4."""
    return q19_sums(k) + (k + 511) // 512 * 64


@shared
def q19_halves(k: int) -> int:
    """Bytes from a row's codes to its scaled sums of 16."""
    return q19_groups(k) + (k + 63) // 64 * 64


@inline
def q19_number(x: int, k: int, i: int) -> int:
    """Number ``i`` of a row at ``x``."""
    high, middle = int(get_i8(x + i)), int(get_i8(x + q19_middle(k) + i))
    return 65536 * high + 256 * middle + int(get_i8(x + q19_ones(k) + i))


@shared
def ternary_place(e: int) -> int:
    """Where element ``e`` lies among the permuted codes."""
    return e // 256 * 256 + e % 128 // 32 * 64 + e % 256 // 128 * 32 + e % 32


@shared
def ternary_sums(k: int) -> int:
    """Bytes from a row's codes to its negated sums of 256."""
    return (k + 255) // 256 * 256


@shared
def ternary_tail(k: int) -> int:
    """Bytes from a row's codes to s and the sum of all codes."""
    return ternary_sums(k) + (k + 4095) // 4096 * 64


@inline
def ternary_result(total: int, x: int, k: int) -> Any:
    """(sum of code * a - sum of a) / s for weights 0, 1, 2 of one scale, float32."""
    tail = x + ternary_tail(k)
    return np.float32(np.float32(total - get_i32(tail + 4)) / get_f32(tail))


def activation_bytes(form: str, k: int) -> int:
    """Bytes of a row, a multiple of 64."""
    if form == "f32":
        return -(-4 * k // 64) * 64
    if form == "q8":
        return q8_negated(k) + -(-k // 512) * 128
    if form == "q19":
        return q19_halves(k) + -(-k // 512) * 128
    return ternary_tail(k) + 64


# -- as tiles --------------------------------------------------------------------------------------


@shared
def bf16_tiles_at(k: int, rows: int) -> int:
    """Bytes from the tiles of the q8 form's activations to those of bfloat16."""
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
        # A step of few rows has both kinds.
        found = max(found, TILE_ROWS * (q8_groups(k) + unpacked_bytes(form, k)))
    return found
