"""Checks of the kernels of the output head's sketch (ops/sketch.py, sketch_codes.py)."""

from __future__ import annotations

import numpy as np

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import sketch as op
from trinity_kernels.ops import sketch_codes
from trinity_kernels.selftest.activation_forms import pack_q8, q8_codes
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import Array, at, differs, random_numbers, run_kernel, same

_K, _BLOCKS = 192, 3


def check_codes(kernel: Kernel, level: str, tag: str) -> str | None:
    """Make a sketch of two panels, with a row of zeros, a large and a tiny one."""
    making, numbers, size = sketch_codes, random_numbers(), op.panel_bytes(_K)
    x = numbers.standard_normal((32, _K)).astype(np.float32)
    x[3], x[5], x[7] = 0, x[5] * 1e4, x[7] * 1e-8
    shifts = (numbers.random(_K) + 7.5).astype(np.float32)
    out, bad = np.zeros((2, size), np.uint8), np.zeros(1, np.uint8)
    run_kernel(kernel, level, tag, 1, {
        making.X: at(x), making.X_STRIDE: x.strides[0], making.N: 32, making.K: _K,
        making.OUT: at(out), making.OUT_STRIDE: size, making.SHIFTS: at(shifts),
        making.BAD: at(bad),
    })  # fmt: skip
    codes, scales = _unpacked(out)
    wanted = np.abs(x).reshape(32, _BLOCKS, 64).max(axis=2) / 7.0
    if not ((scales >= wanted) & (scales <= wanted * 1.004 + 1.2e-7)).all():
        return "a scale is too small, or larger than needed"
    if bad[0]:
        return "finite numbers count as not finite"
    by_block = x.reshape(32, _BLOCKS, 64).astype(np.float64)
    shifted = by_block / np.where(scales == 0, 1, scales)[:, :, None]
    error = shifted + shifts.reshape(_BLOCKS, 64) - 0.5 - codes.reshape(32, _BLOCKS, 64)
    return differs(error, np.zeros_like(error), 0.5 + 1e-5)


def check_inputs(kernel: Kernel, level: str, tag: str) -> str | None:
    """Prepare two rows, the second with zeros in its first part."""
    numbers = random_numbers()
    x = numbers.standard_normal((2, _K)).astype(np.float32)
    x[1, :32] = 0
    shifts = numbers.random((2, _K)).astype(np.float32)
    out = np.zeros((2, op.input_bytes(_K)), np.uint8)
    parts = x.reshape(2, -1, 32).astype(np.float64)
    if tag == "q8":
        codes, scales = q8_codes(x)
        source = pack_q8(codes, scales)
        scales = scales.astype(np.float64)
        lengths = ((codes.reshape(2, -1, 32) * scales[:, :, None]) ** 2).sum(axis=2) / 12
    else:
        source = x.view(np.uint8)
        scales = np.abs(parts).max(axis=2) / 126.5
        steps = np.divide(parts, scales[:, :, None], where=scales[:, :, None] > 0, out=parts * 0)
        codes = np.floor(steps + shifts[1].reshape(-1, 32) - 1e-7).reshape(2, _K)
        lengths = np.sqrt((parts**2).sum(axis=2)) + scales * np.sqrt(32)
        lengths = lengths**2 / 12 + 392 * scales**2
    run_kernel(kernel, level, tag, 2, {
        op.X: at(source), op.X_STRIDE: source.strides[0], op.K: _K, op.OUT: at(out),
        op.OUT_STRIDE: out.strides[0], op.SHIFTS: at(shifts),
    })  # fmt: skip
    found = out[:, :_K].view(np.int8)
    error = differs(found, codes.astype(np.float64), 1 if tag == "f32" else 0)
    if error or (found != codes).mean() > 0.02:
        return error or "many codes differ"
    numbers_of_blocks = np.ascontiguousarray(out[:, _K : _K + 16 * _BLOCKS]).view(np.float32)
    numbers_of_blocks = numbers_of_blocks.reshape(2, _BLOCKS, 4)
    terms = (found * shifts[0]).reshape(2, -1, 32).sum(axis=2, dtype=np.float64) * scales
    expected = np.empty((2, _BLOCKS, 4))
    expected[:, :, :2] = scales.reshape(2, _BLOCKS, 2)
    expected[:, :, 2] = terms.reshape(2, _BLOCKS, 2).sum(axis=2)
    expected[:, :, 3] = lengths.reshape(2, _BLOCKS, 2).sum(axis=2)
    return differs(numbers_of_blocks, expected, 2e-5 + 1e-5 * np.abs(expected))


def check_bounds(kernel: Kernel, level: str, tag: str) -> str | None:
    """Bound three panels of rows for seven rows of activations."""
    numbers, size, rows, count = random_numbers(), op.panel_bytes(_K), 48, 7
    panels = numbers.integers(0, 256, (3, size), np.uint8)
    ends = panels[:, 512 * _BLOCKS : 544 * _BLOCKS]
    ends[:] = numbers.random((3, 16 * _BLOCKS)).astype(np.float16).view(np.uint8)
    x = np.zeros((count, op.input_bytes(_K)), np.uint8)
    x[:, :_K] = numbers.integers(-127, 128, (count, _K)).astype(np.int8).view(np.uint8)
    of_blocks = numbers.random((count, _BLOCKS, 4)).astype(np.float32)
    x[:, _K : _K + 16 * _BLOCKS] = of_blocks.reshape(count, -1).view(np.uint8)
    out, tops = np.zeros((count, rows), np.float32), np.zeros((count, 3), np.float32)
    run_kernel(kernel, level, tag, count, {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.W: at(panels), op.N: rows, op.K: _K,
        op.OUT: at(out), op.OUT_STRIDE: out.strides[0], op.TOPS: at(tops),
        op.TOPS_STRIDE: tops.strides[0], op.FACTOR: record.float_bits(3),
    })  # fmt: skip
    codes, scales = _unpacked(panels)
    halves = codes.reshape(rows, _BLOCKS, 2, 32)
    of_inputs = x[:, :_K].view(np.int8).reshape(count, _BLOCKS, 2, 32).astype(np.float64)
    sums = np.einsum("rbhj,tbhj,tbh->trb", halves, of_inputs, of_blocks[:, :, :2])
    products = ((sums - of_blocks[:, None, :, 2]) * scales).sum(axis=2)
    spread = (scales**2 * of_blocks[:, None, :, 3]).sum(axis=2)
    error = differs(out, products + 3 * np.sqrt(spread), 1e-5 * np.abs(sums).sum(axis=2))
    return error or same(tops, out.reshape(count, 3, 16).max(axis=2))


def _unpacked(panels: Array) -> tuple[Array, Array]:
    """The codes (rows, K) and the scales (rows, blocks) of panels, float64."""
    count = len(panels)
    packed = panels[:, : 512 * _BLOCKS].reshape(count, _BLOCKS, 8, 16, 4)
    nibbles = np.stack([packed & 15, packed >> 4])  # half, panel, block, vector, row, column
    codes = nibbles.transpose(1, 4, 2, 0, 3, 5).reshape(16 * count, _K).astype(np.float64)
    halves = np.ascontiguousarray(panels[:, 512 * _BLOCKS : 544 * _BLOCKS]).view(np.float16)
    scales = halves.reshape(count, _BLOCKS, 16).transpose(0, 2, 1).reshape(-1, _BLOCKS)
    return codes, scales.astype(np.float64)


CHECKS = {
    "sketch_codes": Check(sketch_codes.sketch_codes, NO_TAG, check_codes),
    "sketch_inputs": Check(op.sketch_inputs, op.FORMS, check_inputs),
    "sketch_bounds": Check(op.sketch_bounds, NO_TAG, check_bounds),
}
