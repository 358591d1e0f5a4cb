"""Checks of the kernels of mixture-of-experts layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import Kernel
from trinity_kernels.ops import expert_rows, mix, route, squares
from trinity_kernels.ops.matmul import experts
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.record import float_bits
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import at, differs, random_numbers, run_kernel

Array = NDArray[Any]
# Each of three tokens is routed to two experts, none to expert 2; then the rows that follow.
_EXPERTS, _K = 4, 37
_CHOSEN = np.array([[3, 0], [1, 3], [0, 3]], np.int32)
_PLACES = np.array([[3, 0], [2, 4], [1, 5]], np.int32)
_TOKENS = np.array([0, 2, 1, 0, 1, 2], np.int32)
# The expert, its first row, its number of rows, the pairs of tiles before it.
_GROUPS = np.array([[0, 0, 2, 0], [1, 2, 1, 1], [3, 3, 3, 2]], np.int64)


def _values(*shape: int) -> NDArray[np.float32]:
    return random_numbers().standard_normal(shape).astype(np.float32)


def _wrong(what: str, found: Array, expected: Array, bound: float = 0.0) -> str | None:
    error = differs(found, expected, bound)
    return f"{what} {error}" if error else None


def _groups() -> tuple[Array, Array]:
    """The GROUPS of _CHOSEN, and the memory for copies whose address they contain."""
    groups = np.zeros(expert_rows.groups_words(_EXPERTS), np.int64)
    copies = np.zeros(expert_rows.COPY_BYTES, np.uint8)
    groups[: expert_rows.COPIES + 1] = len(_GROUPS), _CHOSEN.size, at(copies)
    groups[expert_rows.FIRST_GROUP :][: _GROUPS.size] = _GROUPS.reshape(-1)
    return groups, copies


def _near_weights(scores: Array, chosen: Array) -> Array:
    """The weights of chosen experts among those that are left and whose scores are near."""
    left, weights = scores.copy(), np.zeros(len(chosen))
    for i, best in enumerate(chosen):
        near = left[best] - left <= 0.02 * np.maximum(np.abs(left), left[best])
        weights[i] = 1 / np.exp(left[near] - left[best]).sum()
        left[best] = np.nan
    return weights


def _check_route(kernel: Kernel, level: str, tag: str) -> str | None:
    scores, per_token = 2 * _values(3, _K), 4
    chosen, weights = np.zeros((3, per_token), np.int32), np.zeros((3, per_token), np.float32)
    bias = np.zeros(_K, np.float32)
    bias[5] = 100
    scratch = np.zeros(route.scratch_bytes(_K), np.uint8)
    run_kernel(kernel, level, tag, 3, {
        route.SCORES: at(scores), route.SCORES_STRIDE: scores.strides[0], route.EXPERTS: _K,
        route.PER_TOKEN: per_token, route.BIAS: at(bias), route.CHOSEN: at(chosen),
        route.WEIGHTS: at(weights), route.NORMALIZE: 1, route.LEAST_SUM: float_bits(1e-4),
        route.SCALE: float_bits(2.5), route.SCRATCH: at(scratch),
    })  # fmt: skip
    x = scores.astype(np.float64)
    p = 1 / (1 + np.exp(-x)) if tag == "sigmoid" else np.exp(x)
    expected = np.argsort(-np.where(bias > 0, np.inf, x), axis=1, kind="stable")[:, :per_token]
    some = np.take_along_axis(p, expected, axis=1)
    if tag == "sparsemixer":
        some = np.array([_near_weights(*row) for row in zip(x, expected, strict=True)])
    some = 2.5 * some / some.sum(axis=1, keepdims=True)
    return _wrong("chosen", chosen, expected) or _wrong("weights", weights, some, 1e-5)


def _check_group_by_expert(kernel: Kernel, level: str, tag: str) -> str | None:
    groups, expected = np.zeros_like(_groups()[0]), _groups()[0]
    expected[expert_rows.COPIES] = 0
    places, tokens = np.zeros_like(_PLACES), np.zeros_like(_TOKENS)
    counts = np.zeros(_EXPERTS, np.int64)
    run_kernel(kernel, level, tag, len(_CHOSEN), {
        expert_rows.CHOSEN: at(_CHOSEN), expert_rows.EXPERTS: _EXPERTS,
        expert_rows.PER_TOKEN: _CHOSEN.shape[1], expert_rows.PLACES: at(places),
        expert_rows.TOKENS: at(tokens), expert_rows.GROUPS: at(groups),
        expert_rows.COUNTS: at(counts),
    })  # fmt: skip
    return (
        _wrong("groups", groups, expected)
        or _wrong("places", places, _PLACES)
        or _wrong("tokens", tokens, _TOKENS)
    )


def _check_spread(kernel: Kernel, level: str, tag: str) -> str | None:
    x, out = _values(len(_CHOSEN), _K), np.zeros((_CHOSEN.size, _K), np.float32)
    run_kernel(kernel, level, tag, len(_CHOSEN), {
        expert_rows.PER_TOKEN: _CHOSEN.shape[1], expert_rows.PLACES: at(_PLACES),
        expert_rows.X: at(x), expert_rows.X_STRIDE: x.strides[0], expert_rows.OUT: at(out),
        expert_rows.OUT_STRIDE: out.strides[0], expert_rows.NBYTES: 4 * _K,
    })  # fmt: skip
    return _wrong("rows", out, x[_TOKENS])


def _check_spread_weighted(kernel: Kernel, level: str, tag: str) -> str | None:
    x, out = _values(len(_CHOSEN), _K), np.zeros((_CHOSEN.size, _K), np.float32)
    weights = _values(*_CHOSEN.shape)
    run_kernel(kernel, level, tag, len(_CHOSEN), {
        expert_rows.PER_TOKEN: _CHOSEN.shape[1], expert_rows.PLACES: at(_PLACES),
        expert_rows.X: at(x), expert_rows.X_STRIDE: x.strides[0], expert_rows.OUT: at(out),
        expert_rows.OUT_STRIDE: out.strides[0], expert_rows.NBYTES: 4 * _K,
        expert_rows.WEIGHTS: at(weights),
    })  # fmt: skip
    expected = np.zeros_like(out)
    expected[_PLACES] = weights[:, :, None] * x[:, None]
    return _wrong("rows", out, expected)


def _check_mix(kernel: Kernel, level: str, tag: str) -> str | None:
    x, weights = _values(_CHOSEN.size, _K), _values(*_CHOSEN.shape)
    out = np.ones((len(_CHOSEN), _K), np.float32)
    run_kernel(kernel, level, tag, len(_CHOSEN), {
        mix.X: at(x), mix.X_STRIDE: x.strides[0], mix.OUT: at(out),
        mix.OUT_STRIDE: out.strides[0], mix.K: _K, mix.PER_TOKEN: _CHOSEN.shape[1],
        mix.PLACES: at(_PLACES), mix.WEIGHTS: at(weights), mix.ADD: 1,
    })  # fmt: skip
    expected = 1 + (weights[:, :, None] * x[_PLACES].astype(np.float64)).sum(axis=1)
    return _wrong("sums", out, expected, 1e-5)


def _check_expert_products(kernel: Kernel, level: str, tag: str) -> str | None:
    n = 21
    x, w, bias = _values(_CHOSEN.size, _K), _values(_EXPERTS, n, _K), _values(_EXPERTS, n)
    table = at(w) + np.arange(_EXPERTS) * w.strides[0]
    scales, out = np.arange(1.0, _EXPERTS + 1), np.zeros((len(x), n), np.float32)
    groups, copies = _groups()
    run_kernel(kernel, level, tag, len(_CHOSEN), {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.W: at(table), op.W_STRIDE: w.strides[1],
        op.N: n, op.K: _K, op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.SCALE: at(scales), op.BIAS: at(bias), experts.BIAS_STEP: bias.strides[0],
        experts.GROUPS: at(groups), experts.INNER: matmul.address(level, "F32"),
    })  # fmt: skip
    expected = np.zeros(out.shape)
    for expert, first, count, _ in _GROUPS:
        rows = slice(first, first + count)
        product = x[rows].astype(np.float64) @ w[expert].astype(np.float64).T
        expected[rows] = scales[expert] * product + bias[expert]
    del copies
    return _wrong("products", out, expected, 1e-4)


def _check_expert_tiles(kernel: Kernel, level: str, tag: str) -> str | None:
    """Run add_squares, which every level has, in place of a kernel that prepares tiles."""
    x, sums = _values(_CHOSEN.size, _K), np.zeros(_K + 1)
    groups, copies = _groups()
    run_kernel(kernel, level, tag, len(_CHOSEN), {
        op.X: at(x), op.X_STRIDE: x.strides[0], squares.SUMS: at(sums), squares.K: _K,
        experts.GROUPS: at(groups), experts.INNER: squares.add_squares.address(level, "none"),
    })  # fmt: skip
    del copies
    expected = np.append((x.astype(np.float64) ** 2).sum(axis=0), len(x))
    return _wrong("sums", sums, expected, 1e-12)


def _check_add_expert_squares(kernel: Kernel, level: str, tag: str) -> str | None:
    x, sums = _values(len(_CHOSEN), _K), np.zeros((_EXPERTS, _K + 1))
    groups, copies = _groups()
    run_kernel(kernel, level, tag, len(_CHOSEN), {
        squares.X: at(x), squares.X_STRIDE: x.strides[0], squares.SUMS: at(sums),
        squares.K: _K, squares.GROUPS: at(groups), squares.INDEX: at(_TOKENS),
    })  # fmt: skip
    del copies
    expected = np.zeros(sums.shape)
    for expert, first, count, _ in _GROUPS:
        own = x[_TOKENS[first : first + count]].astype(np.float64)
        expected[expert] = np.append((own**2).sum(axis=0), count)
    return _wrong("sums", sums, expected, 1e-12)


CHECKS = {
    "route": Check(route.route, route.GATINGS, _check_route),
    "group_by_expert": Check(expert_rows.group_by_expert, NO_TAG, _check_group_by_expert),
    "spread": Check(expert_rows.spread, NO_TAG, _check_spread),
    "spread_weighted": Check(expert_rows.spread_weighted, NO_TAG, _check_spread_weighted),
    "mix": Check(mix.mix, NO_TAG, _check_mix),
    "expert_products": Check(experts.expert_products, NO_TAG, _check_expert_products),
    "expert_tiles": Check(experts.expert_tiles, NO_TAG, _check_expert_tiles),
    "add_expert_squares": Check(squares.add_expert_squares, NO_TAG, _check_add_expert_squares),
}
