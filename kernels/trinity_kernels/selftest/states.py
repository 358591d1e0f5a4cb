"""Checks of the kernels that update a recurrent state.

One step contains three sequences: one begins, one continues from the end of a page on the next
page, and the state after each token of the third is in memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import (
    causal_conv,
    channel_delta_rule,
    channel_scan,
    delta_rule,
    rwkv,
    rwkv6,
    selective_scan,
    state,
)
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import at, differs, first_error, random_numbers, run_kernel

Array = NDArray[Any]
_HEADS, _GROUPS, _KEYS, _VALUES, _OFFSET = 4, 2, 5, 37, 64
_POSITIONS = np.array([0, 1, 127, 128, 129, 5, 6], np.int32)
# The part (sequence, number) from which each token reads its state, and the part it writes it to.
_BEFORE = [(0, 0), (0, 0), (1, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
_AFTER = [(0, 0), (0, 0), (1, 0), (1, 1), (1, 1), (2, 1), (2, 0)]
_COLUMNS = 48
Token = Callable[[int, Array], tuple[Array, Array]]


def _states() -> tuple[Array, Array, list[Array]]:
    """Parts (sequence, number, values) of random numbers, and both tables of each token."""
    count = state.state_values(_HEADS, _KEYS, _VALUES)
    parts = random_numbers().standard_normal((3, 2, _OFFSET // 4 + count)).astype(np.float32)
    return parts, *_tables(parts)


def _tables(parts: Array) -> tuple[Array, list[Array]]:
    of_pages = np.array([[at(part) for part in of_one] for of_one in parts], np.int64)
    apart = np.array([at(parts[2, 1])], np.int64)
    tables = np.array([[at(of_pages[sequence])] * 2 for sequence, _ in _AFTER], np.int64)
    tables[5, 1] = tables[6, 0] = at(apart)
    return tables, [of_pages, apart]


def _matrices(part: Array) -> Array:
    """The state in a part, (heads, keys, values)."""
    columns = part[_OFFSET // 4 :].reshape(_HEADS, _COLUMNS // 16, _KEYS, 16)
    return columns.transpose(0, 2, 1, 3).reshape(_HEADS, _KEYS, _COLUMNS)[..., :_VALUES]


def _expected(parts: Array, token: Token) -> tuple[Array, Array]:
    """The outputs, and the states (sequence, number, heads, keys, values) after all tokens."""
    states = np.array([[_matrices(part) for part in of_one] for of_one in parts], np.float64)
    out = np.zeros((len(_POSITIONS), _HEADS, _VALUES))
    for t, position in enumerate(_POSITIONS.tolist()):
        old = states[_BEFORE[t]] if position else np.zeros_like(states[0, 0])
        states[_AFTER[t]], out[t] = token(t, old)
    return out, states


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x.astype(np.float64))


def _compare(out: Array, parts: Array, expected: Array, states: Array) -> str | None:
    error = differs(out, expected.reshape(out.shape), 1e-5)
    if error:
        return error
    found = np.array([[_matrices(part) for part in of_one] for of_one in parts])
    # The sequence that begins does not reach its second page.
    error = differs(found[0, 0], states[0, 0], 1e-5) or differs(found[1:], states[1:], 1e-5)
    return f"in the state, {error}" if error else None


def check_delta_rule(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare both ways in which heads share keys."""
    return first_error(_check_delta_rule(kernel, level, tag, tiled) for tiled in (0, 1))


def _check_delta_rule(kernel: Kernel, level: str, tag: str, tiled: int) -> str | None:
    op, count, per_row = delta_rule, len(_POSITIONS), _GROUPS * _KEYS
    rng = random_numbers()
    x = rng.standard_normal((count, 2 * per_row + _HEADS * _VALUES)).astype(np.float32) / 2
    alpha, beta = rng.standard_normal((2, count, _HEADS)).astype(np.float32) * 3
    bias, a = rng.standard_normal((2, _HEADS)).astype(np.float32)
    a = -np.exp(a)
    q, k = (x[:, i * per_row : (i + 1) * per_row].reshape(count, _GROUPS, _KEYS) for i in (0, 1))
    v = x[:, 2 * per_row :].reshape(count, _HEADS, _VALUES)
    of_keys = np.arange(_HEADS) % _GROUPS if tiled else np.arange(_HEADS) // (_HEADS // _GROUPS)
    decay = np.exp(_softplus(alpha + bias) * a)
    rate = 1 / (1 + np.exp(-beta.astype(np.float64)))

    def token(t: int, old: Array) -> tuple[Array, Array]:
        key, query = k[t, of_keys].astype(np.float64), q[t, of_keys]
        old = decay[t][:, None, None] * old
        wrong = v[t] - np.einsum("hk,hkv->hv", key, old)
        new = old + np.einsum("hk,hv->hkv", key, rate[t][:, None] * wrong)
        return new, 0.25 * np.einsum("hk,hkv->hv", query, new)

    parts, tables, kept = _states()
    expected, states = _expected(parts, token)
    out = np.zeros((count, _HEADS * _VALUES), np.float32)
    run_kernel(kernel, level, tag, count, {
        op.QUERY: at(x), op.KEY: at(x) + 4 * per_row, op.VALUE: at(x) + 8 * per_row,
        op.STRIDE: x.strides[0], op.BETA: at(beta), op.BETA_STRIDE: beta.strides[0],
        op.ALPHA: at(alpha), op.ALPHA_STRIDE: alpha.strides[0], op.A: at(a), op.DT_BIAS: at(bias),
        op.OUT: at(out), op.OUT_STRIDE: out.strides[0], op.POSITIONS: at(_POSITIONS),
        op.TABLES: at(tables), op.LAYER_OFFSET: _OFFSET, op.SCALE: record.float_bits(0.25),
        op.HEADS: _HEADS, op.KEY_HEADS: _GROUPS, op.KEYS: _KEYS, op.VALUES: _VALUES,
        op.TILED: tiled,
    })  # fmt: skip
    del kept
    return _compare(out, parts, expected, states)


def check_channel_decay(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compute the decays of two tokens."""
    op, width = channel_delta_rule, _HEADS * _KEYS
    alpha = 3 * random_numbers().standard_normal((2, width)).astype(np.float32)
    bias = random_numbers().standard_normal(width).astype(np.float32)
    a = -np.exp(random_numbers().standard_normal(_HEADS).astype(np.float32))
    expected = np.exp(_softplus(alpha + bias) * np.repeat(a, _KEYS))
    run_kernel(kernel, level, tag, 2, {
        op.ALPHA: at(alpha), op.ALPHA_STRIDE: alpha.strides[0], op.A: at(a), op.DT_BIAS: at(bias),
        op.HEADS: _HEADS, op.KEYS: _KEYS,
    })  # fmt: skip
    return differs(alpha, expected, 1e-5)


def check_channel_delta_rule(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare heads whose keys decay differently."""
    op, count = channel_delta_rule, len(_POSITIONS)
    rng = random_numbers()
    q, k = rng.standard_normal((2, count, _HEADS, _KEYS)).astype(np.float32) / 2
    v = rng.standard_normal((count, _HEADS, _VALUES)).astype(np.float32) / 2
    beta = rng.standard_normal((count, _HEADS)).astype(np.float32) * 3
    decay = rng.random((count, _HEADS, _KEYS)).astype(np.float32)
    rate = 1 / (1 + np.exp(-beta.astype(np.float64)))

    def token(t: int, old: Array) -> tuple[Array, Array]:
        old = decay[t][:, :, None] * old
        wrong = v[t] - np.einsum("hk,hkv->hv", k[t].astype(np.float64), old)
        new = old + np.einsum("hk,hv->hkv", k[t], rate[t][:, None] * wrong)
        return new, 0.25 * np.einsum("hk,hkv->hv", q[t], new)

    parts, tables, kept = _states()
    expected, states = _expected(parts, token)
    out = np.zeros((count, _HEADS * _VALUES), np.float32)
    run_kernel(kernel, level, tag, count, {
        op.QUERY: at(q), op.QUERY_STRIDE: q.strides[0], op.KEY: at(k),
        op.KEY_STRIDE: k.strides[0], op.VALUE: at(v), op.VALUE_STRIDE: v.strides[0],
        op.BETA: at(beta), op.BETA_STRIDE: beta.strides[0], op.ALPHA: at(decay),
        op.ALPHA_STRIDE: decay.strides[0], op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.POSITIONS: at(_POSITIONS), op.TABLES: at(tables), op.LAYER_OFFSET: _OFFSET,
        op.SCALE: record.float_bits(0.25), op.HEADS: _HEADS, op.KEYS: _KEYS, op.VALUES: _VALUES,
    })  # fmt: skip
    del kept
    return _compare(out, parts, expected, states)


def check_selective_scan(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare two groups of heads."""
    op, count, per_row = selective_scan, len(_POSITIONS), _GROUPS * _KEYS
    width = _HEADS * _VALUES
    rng = random_numbers()
    row = rng.standard_normal((count, width + 2 * per_row)).astype(np.float32)
    dt = rng.standard_normal((count, _HEADS)).astype(np.float32) * 3
    bias, a, d = rng.standard_normal((3, _HEADS)).astype(np.float32)
    a = -np.exp(a)
    x = row[:, :width].reshape(count, _HEADS, _VALUES)
    b, c = (
        row[:, width + i * per_row : width + (i + 1) * per_row].reshape(count, _GROUPS, _KEYS)
        for i in (0, 1)
    )
    of_group = np.arange(_HEADS) // (_HEADS // _GROUPS)
    step = _softplus(dt + bias)

    def token(t: int, old: Array) -> tuple[Array, Array]:
        taken = np.einsum("hk,hv->hkv", b[t, of_group], step[t][:, None] * x[t])
        new = np.exp(a * step[t])[:, None, None] * old + taken
        return new, np.einsum("hkv,hk->hv", new, c[t, of_group]) + d[:, None] * x[t]

    parts, tables, kept = _states()
    expected, states = _expected(parts, token)
    out = np.zeros((count, width), np.float32)
    run_kernel(kernel, level, tag, count, {
        op.X: at(row), op.B: at(row) + 4 * width, op.C: at(row) + 4 * (width + per_row),
        op.STRIDE: row.strides[0], op.DT: at(dt), op.DT_STRIDE: dt.strides[0], op.A: at(a),
        op.D: at(d), op.DT_BIAS: at(bias), op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.POSITIONS: at(_POSITIONS), op.TABLES: at(tables), op.LAYER_OFFSET: _OFFSET,
        op.HEADS: _HEADS, op.GROUPS: _GROUPS, op.KEYS: _KEYS, op.VALUES: _VALUES,
    })  # fmt: skip
    del kept
    return _compare(out, parts, expected, states)


def check_channel_scan(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare channels whose number is not a multiple of 16, with the states of one head."""
    op, count, width = channel_scan, len(_POSITIONS), _HEADS * _COLUMNS - 7
    rng = random_numbers()
    x, dt = rng.standard_normal((2, count, _HEADS * _COLUMNS)).astype(np.float32)
    b, c = rng.standard_normal((2, count, _KEYS)).astype(np.float32)
    d = rng.standard_normal(_HEADS * _COLUMNS).astype(np.float32)
    a = -np.exp(rng.standard_normal((_KEYS, width)).astype(np.float32))
    every_a = np.zeros((_KEYS, _HEADS * _COLUMNS))
    every_a[:, :width] = a

    def compared(values: Array) -> Array:
        """The channels of the last axis that ``_matrices`` takes, by head."""
        return values.reshape(*values.shape[:-1], _HEADS, _COLUMNS)[..., :_VALUES]

    decays, values = compared(every_a).transpose(1, 0, 2), compared(x)
    step = _softplus(compared(dt))

    def token(t: int, old: Array) -> tuple[Array, Array]:
        taken = np.einsum("k,hv->hkv", b[t], step[t] * values[t])
        new = np.exp(decays * step[t][:, None]) * old + taken
        return new, np.einsum("hkv,k->hv", new, c[t]) + compared(d) * values[t]

    parts, tables, kept = _states()
    expected, states = _expected(parts, token)
    out = np.zeros(x.shape, np.float32)
    run_kernel(kernel, level, tag, count, {
        op.X: at(x), op.STRIDE: x.strides[0], op.B: at(b), op.B_STRIDE: b.strides[0],
        op.C: at(c), op.C_STRIDE: c.strides[0], op.DT: at(dt), op.DT_STRIDE: dt.strides[0],
        op.A: at(a), op.D: at(d), op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.POSITIONS: at(_POSITIONS), op.TABLES: at(tables), op.LAYER_OFFSET: _OFFSET,
        op.KEYS: _KEYS, op.WIDTH: width,
    })  # fmt: skip
    del kept
    return _compare(compared(out), parts, expected, states)


def _compare_kept(out: Array, expected: Array, found: Array, states: Array) -> str | None:
    """Compare results, and states that are copies of inputs."""
    error = differs(out, expected, 1e-5)
    if error:
        return error
    error = differs(found[0, 0], states[0, 0], 0) or differs(found[1:], states[1:], 0)
    return f"in the state, {error}" if error else None


def check_causal_conv(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare four taps with a bias."""
    op, count, k, taps = causal_conv, len(_POSITIONS), 37, 4
    rng = random_numbers()
    x = rng.standard_normal((count, k)).astype(np.float32)
    weight, bias = rng.standard_normal((taps, k)).astype(np.float32), x[0].copy()
    parts = rng.standard_normal((3, 2, _OFFSET // 4 + (taps - 1) * k)).astype(np.float32)
    tables, kept = _tables(parts)
    found, out = parts[:, :, _OFFSET // 4 :].reshape(3, 2, taps - 1, k), x.copy()
    states = found.astype(np.float64)
    expected = np.zeros(x.shape)
    for t, position in enumerate(_POSITIONS.tolist()):
        old = states[_BEFORE[t]] if position else np.zeros((taps - 1, k))
        seen = np.concatenate([old, x[t : t + 1]])
        states[_AFTER[t]] = seen[1:]
        expected[t] = (weight * seen).sum(axis=0) + bias
    if tag == "silu":
        expected = expected / (1 + np.exp(-expected))
    run_kernel(kernel, level, tag, count, {
        op.X: at(out), op.STRIDE: out.strides[0], op.WEIGHT: at(weight), op.BIAS: at(bias),
        op.K: k, op.TAPS: taps, op.POSITIONS: at(_POSITIONS), op.TABLES: at(tables),
        op.LAYER_OFFSET: _OFFSET,
    })  # fmt: skip
    del kept
    return _compare_kept(out, expected, found, states)


def check_token_shift(kernel: Kernel, level: str, tag: str) -> str | None:
    """Mix each token with the one before it, in two ways."""
    return _check_shift(kernel, level, tag, rwkv, np.zeros((len(_POSITIONS), 2, 37), np.float32))


def check_shift_by(kernel: Kernel, level: str, tag: str) -> str | None:
    """Mix each token with the one before it, by weights of each token."""
    delta = random_numbers().standard_normal((len(_POSITIONS), 2, 37)).astype(np.float32)
    slots = {rwkv6.DELTA: at(delta), rwkv6.DELTA_STRIDE: delta.strides[0]}
    return _check_shift(kernel, level, tag, rwkv6, delta, slots)


def _check_shift(
    kernel: Kernel, level: str, tag: str, op: ModuleType, delta: Array,
    slots: Mapping[int, int] = MappingProxyType({}),
) -> str | None:  # fmt: skip
    count, _, k = delta.shape
    rng = random_numbers()
    x = rng.standard_normal((count, k)).astype(np.float32)
    mu = rng.random((2, k)).astype(np.float32)
    parts = rng.standard_normal((3, 2, _OFFSET // 4 + k)).astype(np.float32)
    tables, kept = _tables(parts)
    found, outs = parts[:, :, _OFFSET // 4 :], np.zeros((2, count, k), np.float32)
    states, expected = found.copy(), np.zeros(outs.shape)
    for t, position in enumerate(_POSITIONS.tolist()):
        old = states[_BEFORE[t]] if position else np.zeros(k)
        expected[:, t] = x[t] + (old.astype(np.float64) - x[t]) * (mu + delta[t])
        states[_AFTER[t]] = x[t]
    run_kernel(kernel, level, tag, count, {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.MU: at(mu), op.PARTS: 2, op.SIZE: k,
        **{op.OUTS + 2 * part: at(out) for part, out in enumerate(outs)},
        **{op.OUTS + 2 * part + 1: out.strides[0] for part, out in enumerate(outs)},
        op.POSITIONS: at(_POSITIONS), op.TABLES: at(tables), op.LAYER_OFFSET: _OFFSET, **slots,
    })  # fmt: skip
    del kept
    return _compare_kept(outs, expected, found, states)


def check_rwkv_keys(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the first layer and another."""
    return first_error(_check_rwkv_keys(kernel, level, tag, first) for first in (True, False))


def _check_rwkv_keys(kernel: Kernel, level: str, tag: str, first: bool) -> str | None:
    op, count, width = rwkv, 3, _HEADS * _KEYS
    rng = random_numbers()
    rows = rng.standard_normal((7, count, width)).astype(np.float32)
    w, a, k, v, keys, v_first, mix = rows
    w0, a0, v0, k_k, k_a = rng.standard_normal((5, width)).astype(np.float32)
    before = rows.astype(np.float64)

    def sigmoid(x: Array) -> Array:
        return 1 / (1 + np.exp(-x.astype(np.float64)))

    rate = sigmoid(a + a0)
    unit = (before[2] * k_k).reshape(count, _HEADS, _KEYS)
    unit = (unit / np.linalg.norm(unit, axis=2, keepdims=True)).reshape(count, width)
    values = v.astype(np.float64)
    if not first:
        values += (before[5] - values) * sigmoid(mix + v0)
    wanted = (
        (w, np.exp(-np.exp(-0.5) * sigmoid(w + w0))), (a, unit * rate), (keys, unit),
        (k, before[2] * (1 + k_a * (rate - 1))), (v, values),
        (v_first, before[3] if first else before[5]),
    )  # fmt: skip
    slots = {op.W: w, op.A: a, op.K: k, op.V: v, op.KEYS: keys, op.FIRST: v_first}
    slots |= {} if first else {op.MIX: mix}
    run_kernel(kernel, level, tag, count, {
        **{slot: at(row) for slot, row in slots.items()},
        **{slot + 1: row.strides[0] for slot, row in slots.items()},
        op.W0: at(w0), op.A0: at(a0), op.V0: at(v0), op.K_K: at(k_k), op.K_A: at(k_a),
        op.HEADS: _HEADS, op.SIZE: _KEYS,
    })  # fmt: skip
    return first_error(differs(found, expected, 1e-5) for found, expected in wanted)


def check_rwkv_rule(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare heads of a size that is not a multiple of 16."""
    op, size = rwkv, 21
    rng = random_numbers()
    r, k, a, n, v = rng.standard_normal((5, len(_POSITIONS), _HEADS, size)).astype(np.float32) / 3
    w = rng.random(v.shape).astype(np.float32)

    def token(t: int, old: Array) -> tuple[Array, Array]:
        seen = np.einsum("hk,hkv->hv", n[t].astype(np.float64), old)
        new = w[t][:, :, None] * old - np.einsum("hk,hv->hkv", a[t], seen)
        new += np.einsum("hk,hv->hkv", k[t].astype(np.float64), v[t])
        return new, np.einsum("hkv,hk->hv", new, r[t])

    rows = {op.R: r, op.W: w, op.K: k, op.V: v, op.A: a, op.KEYS: n}
    return _check_rule(kernel, level, tag, token, rows, {op.HEADS: _HEADS, op.SIZE: size}, op)


def _check_rule(
    kernel: Kernel, level: str, tag: str, token: Token, rows: dict[int, Array],
    slots: dict[int, int], op: ModuleType,
) -> str | None:  # fmt: skip
    """Compare states of HEADS matrices (SIZE, SIZE); ``rows`` are the buffers by slot."""
    size = slots[op.SIZE]
    shape = 3, 2, _OFFSET // 4 + state.state_values(_HEADS, size, size)
    parts = random_numbers().standard_normal(shape).astype(np.float32)

    def matrices() -> Array:
        columns = parts[..., _OFFSET // 4 :].reshape(3, 2, _HEADS, -1, size, 16)
        return columns.swapaxes(3, 4).reshape(3, 2, _HEADS, size, -1)[..., :size]

    tables, kept = _tables(parts)
    states, expected = matrices().astype(np.float64), np.zeros(rows[op.V].shape)
    for t, position in enumerate(_POSITIONS.tolist()):
        old = states[_BEFORE[t]] if position else np.zeros_like(states[0, 0])
        states[_AFTER[t]], expected[t] = token(t, old)
    out = np.zeros(expected.shape, np.float32)
    buffers = {**rows, op.OUT: out}
    run_kernel(kernel, level, tag, len(_POSITIONS), {
        **{slot: at(row) for slot, row in buffers.items()},
        **{slot + 1: row.strides[0] for slot, row in buffers.items()},
        op.POSITIONS: at(_POSITIONS), op.TABLES: at(tables), op.LAYER_OFFSET: _OFFSET, **slots,
    })  # fmt: skip
    del kept
    error = differs(out, expected, 1e-5)
    if error:
        return error
    found = matrices()
    error = differs(found[0, 0], states[0, 0], 1e-5) or differs(found[1:], states[1:], 1e-5)
    return f"in the state, {error}" if error else None


def check_rwkv_output(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare results with a gate and without one."""
    return first_error(_check_rwkv_output(kernel, level, tag, gated) for gated in (True, False))


def _check_rwkv_output(kernel: Kernel, level: str, tag: str, gated: bool) -> str | None:
    op, count = rwkv, 3
    rng = random_numbers()
    rows = rng.standard_normal((5, count, _HEADS, _VALUES)).astype(np.float32) / 3
    r, k, v, g, out = rows
    r_k, weight, bias = rng.standard_normal((3, _HEADS, _VALUES)).astype(np.float32)
    y = out.astype(np.float64)
    y = (y - y.mean(axis=2, keepdims=True)) / np.sqrt(y.var(axis=2, keepdims=True) + 0.01)
    y = y * weight + bias + v * (r.astype(np.float64) * k * r_k).sum(axis=2, keepdims=True)
    expected = y * g if gated else y
    slots = {op.R: r, op.K: k, op.V: v, op.OUT: out} | ({op.G: g} if gated else {})
    run_kernel(kernel, level, tag, count, {
        **{slot: at(row) for slot, row in slots.items()},
        **{slot + 1: row.strides[0] for slot, row in slots.items()},
        op.R_K: at(r_k), op.NORM: at(weight), op.NORM_BIAS: at(bias),
        op.EPS: record.float_bits(0.01), op.HEADS: _HEADS, op.SIZE: _VALUES,
    })  # fmt: skip
    return differs(out, expected, 1e-5)


def check_wkv6_decay(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare two exponentials."""
    op, w0 = rwkv6, random_numbers().standard_normal((_HEADS, _VALUES)).astype(np.float32)
    w = random_numbers().standard_normal((3, _HEADS, _VALUES)).astype(np.float32)
    expected = np.exp(-np.exp(w.astype(np.float64) + w0))
    run_kernel(kernel, level, tag, len(w), {
        op.W: at(w), op.W_STRIDE: w.strides[0], op.W0: at(w0), op.HEADS: _HEADS, op.SIZE: _VALUES,
    })  # fmt: skip
    return differs(w, expected, 1e-5)


def check_wkv6_rule(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare heads of a size that is not a multiple of 16."""
    op, size = rwkv6, 21
    rng = random_numbers()
    r, k, v = rng.standard_normal((3, len(_POSITIONS), _HEADS, size)).astype(np.float32) / 3
    w = rng.random(v.shape).astype(np.float32)
    u = rng.standard_normal((_HEADS, size)).astype(np.float32)

    def token(t: int, old: Array) -> tuple[Array, Array]:
        taken = np.einsum("hk,hv->hkv", k[t].astype(np.float64), v[t])
        out = np.einsum("hkv,hk->hv", old + u[:, :, None] * taken, r[t])
        return w[t][:, :, None] * old + taken, out

    slots = {op.HEADS: _HEADS, op.SIZE: size, op.U: at(u)}
    return _check_rule(kernel, level, tag, token, {op.R: r, op.W: w, op.K: k, op.V: v}, slots, op)


def check_wkv6_norm(kernel: Kernel, level: str, tag: str) -> str | None:
    """Compare the norms of heads."""
    op, rng = rwkv6, random_numbers()
    out = rng.standard_normal((3, _HEADS, _VALUES)).astype(np.float32)
    weight, bias = rng.standard_normal((2, _HEADS, _VALUES)).astype(np.float32)
    y = out.astype(np.float64)
    y = (y - y.mean(axis=2, keepdims=True)) / np.sqrt(y.var(axis=2, keepdims=True) + 0.01)
    run_kernel(kernel, level, tag, len(out), {
        op.OUT: at(out), op.OUT_STRIDE: out.strides[0], op.NORM: at(weight),
        op.NORM_BIAS: at(bias), op.EPS: record.float_bits(0.01), op.HEADS: _HEADS,
        op.SIZE: _VALUES,
    })  # fmt: skip
    return differs(out, y * weight + bias, 1e-5)


CHECKS = {
    "shift_by": Check(rwkv6.shift_by, NO_TAG, check_shift_by),
    "wkv6_decay": Check(rwkv6.wkv6_decay, NO_TAG, check_wkv6_decay),
    "wkv6_norm": Check(rwkv6.wkv6_norm, NO_TAG, check_wkv6_norm),
    "wkv6_rule": Check(rwkv6.wkv6_rule, NO_TAG, check_wkv6_rule),
    "rwkv_keys": Check(rwkv.rwkv_keys, NO_TAG, check_rwkv_keys),
    "rwkv_output": Check(rwkv.rwkv_output, NO_TAG, check_rwkv_output),
    "rwkv_rule": Check(rwkv.rwkv_rule, NO_TAG, check_rwkv_rule),
    "token_shift": Check(rwkv.token_shift, NO_TAG, check_token_shift),
    "channel_decay": Check(channel_delta_rule.channel_decay, NO_TAG, check_channel_decay),
    "channel_delta_rule": Check(
        channel_delta_rule.channel_delta_rule, NO_TAG, check_channel_delta_rule
    ),
    "channel_scan": Check(channel_scan.channel_scan, NO_TAG, check_channel_scan),
    "causal_conv": Check(causal_conv.causal_conv, causal_conv.ACTIVATIONS, check_causal_conv),
    "delta_rule": Check(delta_rule.delta_rule, NO_TAG, check_delta_rule),
    "selective_scan": Check(selective_scan.selective_scan, NO_TAG, check_selective_scan),
}
