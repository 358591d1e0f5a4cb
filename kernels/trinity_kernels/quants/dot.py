"""The contract of a compiled dot product: one row of a weight times one token's activations.

``dot_row(isa, qt, w, x, k)`` gives the float32 sum of ``k`` products; ``w`` is the address of the
row's first byte, ``x`` that of the token's activations in the form that the type names. A type's
file registers one body per level that differs; ``portable`` is always there and uses no intrinsics.

Forms of activations, per token:
    f32      K float32.
    q8       int8 codes padded with zeros to 64; per 32 codes a float32 scale, then per 32 codes
             scale * sum, both padded with zeros to 16; per 4 codes the int32 negated sum; per 16
             codes scale * sum, padded with zeros to 32. x = scale * code.
    ternary  int8 codes padded to 256 and permuted (below), per 256 codes the int32 negated sum,
             padded to 16, then float32 s and int32 total. x = code / s, one s per token.

The ternary permutation serves I2_S and TQ2_0 alike: within 256 codes, place 64 g + 32 h + i holds
element 128 h + 32 g + i, so one 64-byte load of weights meets four 64-byte loads of activations.

Numerics: integer sums are exact. Floats are summed in 16 lanes, lane = (element // 4) mod 16 for
q8 and element mod 16 for f32, each product and sum rounded once (fused), then by one fixed tree;
of ternary types with scales, block by block, fused. The result is the same to the last bit on
every level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline
from trinity_kernels.memory import get_f32, get_i32

# Bytes that a dot product asks for ahead of its loads: the hardware stops at every page of 4 KiB.
AHEAD = 2048

FORMS: dict[str, str] = {}
_BODIES: dict[tuple[str, str], Callable[..., Any]] = {}


def activation_bytes(form: str, k: int) -> int:
    """Bytes of one token's activations, a multiple of 64."""
    if form == "f32":
        return -(-4 * k // 64) * 64
    if form == "q8":
        padded = -(-k // 64) * 64
        return 2 * padded + -(-k // 512) * 256
    padded = -(-k // 256) * 256
    return padded + -(-padded // 4096) * 64 + 64


def register_dot(
    quant: str, form: str, *, vector: Callable[..., Any], portable: Callable[..., Any],
    **levels: Callable[..., Any],
) -> None:  # fmt: skip
    """Give a type its dot products; ``levels`` overrides ``vector`` for single levels."""
    FORMS[quant] = form
    _BODIES[quant, "portable"] = portable
    for level in ("amx", "avx512vnni", "avx2", "neon"):
        _BODIES[quant, level] = levels.get(level, vector)


def dot_row(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """The sum of ``k`` products of a weight row at ``w`` and activations at ``x``, float32."""
    return _BODIES[qt.value, isa.value](isa, qt, w, x, k)


@choose(dot_row)
def _dot_row(isa: Any, qt: Any, w: Any, x: Any, k: Any) -> Any:
    return _BODIES.get((qt.value, isa.value))


@inline
def tree_sum(lanes: Any) -> Any:
    """The fixed tree over 16 float32 lanes, as simd.sum_f32x16 does it; overwrites them."""
    half = 8
    while half > 0:
        for i in range(half):
            lanes[i] = np.float32(lanes[i] + lanes[i + half])
        half //= 2
    return lanes[0]


@inline
def ternary_place(e: int) -> int:
    """Where element ``e`` lies among permuted ternary activations."""
    return e // 256 * 256 + e % 128 // 32 * 64 + e % 256 // 128 * 32 + e % 32


@inline
def ternary_sums(x: int, k: int) -> int:
    """Where the negated sums of 256 codes each begin."""
    return x + (k + 255) // 256 * 256


@inline
def ternary_tail(x: int, k: int) -> int:
    """Where s and the total lie."""
    return int(ternary_sums(x, k) + (k + 4095) // 4096 * 64)


@inline
def ternary_result(total: int, x: int, k: int) -> Any:
    """(sum of code * a - sum of a) / s for a row with one scale, float32."""
    tail = ternary_tail(x, k)
    return np.float32(np.float32(total - get_i32(tail + 4)) / get_f32(tail))
