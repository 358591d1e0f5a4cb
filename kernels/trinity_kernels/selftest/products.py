"""Checks of matrix products, on AMX tiles with the kernels that prepare activations for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.activation_tiles import (
    tile_activations,
    tile_q8,
    tile_split,
    tiles_of,
)
from trinity_kernels.ops.matmul.activations import FORMS, tile_bytes
from trinity_kernels.ops.matmul.panels import matmul_panels
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.quants import TYPES
from trinity_kernels.selftest.activation_forms import form_of
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import (
    aligned,
    at,
    differs,
    first_error,
    random_numbers,
    run_kernel,
)
from trinity_kernels.selftest.weights import random_weights

Array = NDArray[Any]
# Rows of weights: two panels, or two tiles, and 5 more.
_N = 37


@dataclass(frozen=True)
class _Product:
    """out = x @ w.T + bias, added to ones: arrays, the record's slots and what must result."""

    x: NDArray[np.float32]  # (tokens, K)
    form: Array  # x as the product takes it
    out: NDArray[np.float32]
    slots: dict[int, int]
    expected: Array
    magnitudes: Array  # the sums of the magnitudes of all terms, which bound the error
    kept: tuple[Array, ...]  # arrays whose addresses are in the slots


def _product(tag: str, tokens: int) -> _Product:
    k = {1: 77, 32: 32 * 19, 128: 384}.get(TYPES[tag].block_size, 3 * TYPES[tag].block_size)
    data, w, stride, scale = random_weights(tag, _N, k)
    x = random_numbers().standard_normal((tokens, k)).astype(np.float32)
    form, values = form_of(FORMS[tag], x)
    out = np.ones((tokens, _N), np.float32)
    bias = random_numbers().standard_normal(_N).astype(np.float32)
    slots = {
        op.X: at(form), op.X_STRIDE: form.strides[0], op.W: at(data), op.W_STRIDE: stride,
        op.N: _N, op.K: k, op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.SCALE: record.float_bits(scale), op.BIAS: at(bias), op.ADD: 1,
    }  # fmt: skip
    magnitudes = np.abs(values) @ np.abs(w).T
    return _Product(x, form, out, slots, values @ w.T + bias + 1, magnitudes, (data, bias))


def check_matmul(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the product of two tokens."""
    product = _product(tag, 2)
    run_kernel(kernel, level, tag, 2, product.slots)
    return differs(product.out, product.expected, 1e-5 + 2e-6 * product.magnitudes)


def check_matmul_panels(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the product of 11 tokens."""
    product = _product(tag, 11)
    scratch = np.zeros(
        variants.scratch_bytes(matmul_panels, tag, product.x.shape[1]) + 64, np.uint8
    )
    run_kernel(kernel, level, tag, 11, product.slots | {op.SCRATCH: aligned(scratch)})
    return differs(product.out, product.expected, 1e-5 + 2e-6 * product.magnitudes)


def check_matmul_tiles(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare products of more tokens and of fewer than a tile has rows."""
    return _check_tiles(tiles_of(FORMS[tag]), kernel, level, tag)


def check_tile_activations(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the products of ternary weights by the tiles that the kernel prepares."""
    return _check_tiles(kernel, matmul_tiles, level, "I2_S")


def check_tile_q8(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the products of Q8_0 weights by the tiles that the kernel prepares."""
    return _check_tiles(kernel, matmul_tiles, level, "Q8_0")


def check_tile_split(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the products of float16 weights by the tiles that the kernel prepares."""
    return _check_tiles(kernel, matmul_tiles, level, "F16")


def _check_tiles(prepare: Kernel, multiply: Kernel, level: str, tag: str) -> str | None:
    return first_error(_check_tiles_of(n, prepare, multiply, level, tag) for n in (21, 11))


def _check_tiles_of(
    tokens: int, prepare: Kernel, multiply: Kernel, level: str, tag: str
) -> str | None:
    product, form = _product(tag, tokens), FORMS[tag]
    k = product.x.shape[1]
    tiles = np.zeros(tile_bytes(form, k, tokens) + 64, np.uint8)
    scratch = np.zeros(variants.scratch_bytes(matmul_tiles, tag, k) + 64, np.uint8)
    slots = product.slots | {op.TILES: aligned(tiles), op.SCRATCH: aligned(scratch)}
    source = product.form if form == "ternary" else product.x
    run_kernel(prepare, level, "none", tokens, slots | {
        op.X: at(source), op.X_STRIDE: source.strides[0], op.CODES: at(product.form),
        op.CODES_STRIDE: product.form.strides[0], op.FLOATS: int(tag not in int8_tile_types()),
    })  # fmt: skip
    run_kernel(multiply, level, tag, tokens, slots)
    # bfloat16 rounds each factor by at most 2**-9; split into two bfloat16, by 2**-17.
    relative = {"ternary": 2e-6, "q8": 2**-7, "q19": 2**-15, "f32": 2**-15}[form]
    if tag in int8_tile_types() and tokens <= op.TILE_ROWS:
        relative = 4e-6
    return differs(product.out, product.expected, 1e-4 + relative * product.magnitudes)


def _types(kernel: Kernel) -> tuple[str, ...]:
    return tuple(sorted(variants.types_of(kernel)))


CHECKS = {
    "matmul": Check(matmul, _types(matmul), check_matmul),
    "matmul_panels": Check(matmul_panels, _types(matmul_panels), check_matmul_panels),
    "matmul_tiles": Check(matmul_tiles, _types(matmul_tiles), check_matmul_tiles),
    "tile_activations": Check(tile_activations, NO_TAG, check_tile_activations),
    "tile_q8": Check(tile_q8, NO_TAG, check_tile_q8),
    "tile_split": Check(tile_split, NO_TAG, check_tile_split),
}
