"""Recurrent kernels: the same bits for every level, thread count and division into steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
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
from trinity_kernels.ops.exponential import sigmoid_f32, softplus_f32
from trinity_kernels.selftest.comparing import at
from trinity_kernels.team import Team

Array = NDArray[Any]
TOKENS, PAGES = 150, 2
HEADS, GROUPS, KEYS, VALUES = 4, 2, 19, 40


class Case:
    """One sequence of 150 tokens; ``values`` are the record's slots."""

    def __init__(self, kernel: Kernel, tag: str, count: int, row: Array, out: Array) -> None:
        self.kernel, self.tag, self.row, self.out = kernel, tag, row, out
        self.parts = np.zeros((PAGES, count), np.float32)
        self.table = np.array([at(part) for part in self.parts], np.int64)
        self.tables = np.full((TOKENS, 2), at(self.table), np.int64)
        self.positions = np.arange(TOKENS, dtype=np.int32)
        self.values: dict[int, int] = {}
        self.kept: list[Array] = []
        self.moving: dict[int, Array] = {}  # slots with a row for each token

    def run(self, level: str, threads: int, size: int) -> tuple[Array, Array]:
        """Return the result and the state after steps of ``size`` tokens."""
        before = self.row.copy()
        self.parts[:] = np.nan
        team = Team(threads)
        try:
            for start in range(0, TOKENS, size):
                count = np.array([min(size, TOKENS - start)], np.int64)
                plan = np.zeros(1, record.RECORD)
                slots = plan["slots"][0]
                slots[record.KERNEL] = self.kernel.address(level, self.tag)
                slots[record.ROWS] = at(count)
                for slot, value in self.values.items():
                    slots[slot] = value
                for slot, array in self.moving.items():
                    slots[slot] += start * array.strides[0]
                team.run(plan)
        finally:
            team.close()
        found = self.out.copy(), self.parts.copy()
        self.row[:] = before
        return found


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    per_row, width = GROUPS * KEYS, HEADS * VALUES
    row = rng.standard_normal((TOKENS, width + 2 * per_row)).astype(np.float32) / 3
    gates = rng.standard_normal((2, TOKENS, HEADS)).astype(np.float32)
    a, d, bias = rng.standard_normal((3, HEADS)).astype(np.float32)
    a = -np.exp(a)
    out = np.zeros((TOKENS, width), np.float32)
    count = state.state_values(HEADS, KEYS, VALUES)

    op: Any = delta_rule
    case = Case(op.delta_rule, "none", count, row, out)
    case.values = {
        op.QUERY: at(row), op.KEY: at(row) + 4 * per_row, op.VALUE: at(row) + 8 * per_row,
        op.STRIDE: row.strides[0], op.BETA: at(gates[0]), op.BETA_STRIDE: 4 * HEADS,
        op.ALPHA: at(gates[1]), op.ALPHA_STRIDE: 4 * HEADS, op.A: at(a), op.DT_BIAS: at(bias),
        op.OUT: at(out), op.OUT_STRIDE: out.strides[0], op.POSITIONS: at(case.positions),
        op.TABLES: at(case.tables), op.SCALE: record.float_bits(0.25), op.HEADS: HEADS,
        op.KEY_HEADS: GROUPS, op.KEYS: KEYS, op.VALUES: VALUES, op.TILED: 1,
    }  # fmt: skip
    case.moving = {
        op.QUERY: row, op.KEY: row, op.VALUE: row, op.BETA: gates[0], op.ALPHA: gates[1],
        op.OUT: out, op.POSITIONS: case.positions, op.TABLES: case.tables,
    }  # fmt: skip
    case.kept = [gates, a, bias]
    yield case

    op = channel_delta_rule
    q, k = rng.standard_normal((2, TOKENS, HEADS * KEYS)).astype(np.float32) / 3
    v, decay = row[:, :width].copy(), rng.random((TOKENS, HEADS * KEYS)).astype(np.float32)
    case = Case(op.channel_delta_rule, "none", count, decay, out)
    case.values = {
        op.QUERY: at(q), op.QUERY_STRIDE: q.strides[0], op.KEY: at(k), op.KEY_STRIDE: k.strides[0],
        op.VALUE: at(v), op.VALUE_STRIDE: v.strides[0], op.BETA: at(gates[0]),
        op.BETA_STRIDE: 4 * HEADS, op.ALPHA: at(decay), op.ALPHA_STRIDE: decay.strides[0],
        op.OUT: at(out), op.OUT_STRIDE: out.strides[0], op.POSITIONS: at(case.positions),
        op.TABLES: at(case.tables), op.SCALE: record.float_bits(0.25), op.HEADS: HEADS,
        op.KEYS: KEYS, op.VALUES: VALUES,
    }  # fmt: skip
    case.moving = {
        op.QUERY: q, op.KEY: k, op.VALUE: v, op.BETA: gates[0], op.ALPHA: decay, op.OUT: out,
        op.POSITIONS: case.positions, op.TABLES: case.tables,
    }  # fmt: skip
    case.kept = [q, k, v, gates]
    yield case

    op = selective_scan
    case = Case(op.selective_scan, "none", count, row, out)
    b = at(row) + 4 * width
    case.values = {
        op.X: at(row), op.B: b, op.C: b + 4 * per_row, op.STRIDE: row.strides[0],
        op.DT: at(gates[0]), op.DT_STRIDE: 4 * HEADS, op.A: at(a), op.D: at(d),
        op.DT_BIAS: at(bias), op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.POSITIONS: at(case.positions), op.TABLES: at(case.tables), op.HEADS: HEADS,
        op.GROUPS: GROUPS, op.KEYS: KEYS, op.VALUES: VALUES,
    }  # fmt: skip
    case.moving = {
        op.X: row, op.B: row, op.C: row, op.DT: gates[0], op.OUT: out,
        op.POSITIONS: case.positions, op.TABLES: case.tables,
    }  # fmt: skip
    case.kept = [gates, a, d, bias]
    yield case

    op, channels = channel_scan, HEADS * 48 - 7
    x, dt = rng.standard_normal((2, TOKENS, channels)).astype(np.float32)
    b, c = rng.standard_normal((2, TOKENS, KEYS)).astype(np.float32)
    of_keys = -np.exp(rng.standard_normal((KEYS, channels)).astype(np.float32))
    skip, scanned = x[0].copy(), np.zeros_like(x)
    case = Case(op.channel_scan, "none", state.state_values(1, KEYS, channels), dt, scanned)
    case.values = {
        op.X: at(x), op.STRIDE: x.strides[0], op.B: at(b), op.B_STRIDE: b.strides[0],
        op.C: at(c), op.C_STRIDE: c.strides[0], op.DT: at(dt), op.DT_STRIDE: dt.strides[0],
        op.A: at(of_keys), op.D: at(skip), op.OUT: at(scanned), op.OUT_STRIDE: x.strides[0],
        op.POSITIONS: at(case.positions), op.TABLES: at(case.tables), op.KEYS: KEYS,
        op.WIDTH: channels,
    }  # fmt: skip
    case.moving = {
        op.X: x, op.B: b, op.C: c, op.DT: dt, op.OUT: scanned, op.POSITIONS: case.positions,
        op.TABLES: case.tables,
    }  # fmt: skip
    case.kept = [x, b, c, of_keys, skip]
    yield case

    op, k, taps = causal_conv, 77, 4
    x = rng.standard_normal((TOKENS, k)).astype(np.float32)
    weight = rng.standard_normal((taps, k)).astype(np.float32)
    case = Case(op.causal_conv, "silu", (taps - 1) * k, x, x)
    case.values = {
        op.X: at(x), op.STRIDE: x.strides[0], op.WEIGHT: at(weight), op.K: k, op.TAPS: taps,
        op.POSITIONS: at(case.positions), op.TABLES: at(case.tables),
    }  # fmt: skip
    case.moving = {op.X: x, op.POSITIONS: case.positions, op.TABLES: case.tables}
    case.kept = [weight]
    yield case

    op, size = rwkv, 21
    rows = rng.standard_normal((5, TOKENS, HEADS * size)).astype(np.float32) / 4
    w = rng.random((TOKENS, HEADS * size)).astype(np.float32)
    answer = np.zeros_like(w)
    case = Case(op.rwkv_rule, "none", state.state_values(HEADS, size, size), w, answer)
    buffers = dict(zip((op.R, op.K, op.V, op.A, op.KEYS), rows, strict=True))
    buffers |= {op.W: w, op.OUT: answer}
    case.values = {
        **{slot: at(buffer) for slot, buffer in buffers.items()},
        **{slot + 1: w.strides[0] for slot in buffers},
        op.POSITIONS: at(case.positions), op.TABLES: at(case.tables), op.HEADS: HEADS,
        op.SIZE: size,
    }  # fmt: skip
    case.moving = {**buffers, op.POSITIONS: case.positions, op.TABLES: case.tables}
    case.kept = [rows]
    yield case

    for module, shift in ((rwkv, rwkv.token_shift), (rwkv6, rwkv6.shift_by)):
        x = rng.standard_normal((TOKENS, 77)).astype(np.float32)
        mixed, mu = np.zeros((2, TOKENS, 77), "f4"), rng.random((2, 77)).astype(np.float32)
        delta = rng.random((TOKENS, 154)).astype(np.float32)
        op = module
        case = Case(shift, "none", 77, x, mixed)
        rows = {op.X: x, op.OUTS: mixed[0], op.OUTS + 2: mixed[1]}
        rows |= {rwkv6.DELTA: delta} if op is rwkv6 else {}
        case.values = {
            **{slot: at(row) for slot, row in rows.items()},
            **{slot + 1: row.strides[0] for slot, row in rows.items()}, op.MU: at(mu), op.PARTS: 2,
            op.SIZE: 77, op.POSITIONS: at(case.positions), op.TABLES: at(case.tables),
        }  # fmt: skip
        case.moving = {**rows, op.POSITIONS: case.positions, op.TABLES: case.tables}
        case.kept = [mu]
        yield case

    u = rng.standard_normal(HEADS * size).astype(np.float32)
    rows = rng.standard_normal((3, TOKENS, HEADS * size)).astype(np.float32) / 4
    w, answer = np.abs(rows[0]), np.zeros_like(rows[0])
    case = Case(rwkv6.wkv6_rule, "none", state.state_values(HEADS, size, size), w, answer)
    buffers = dict(zip((rwkv6.R, rwkv6.K, rwkv6.V), rows, strict=True))
    buffers |= {rwkv6.W: w, rwkv6.OUT: answer}
    case.values = {
        **{slot: at(buffer) for slot, buffer in buffers.items()},
        **{slot + 1: w.strides[0] for slot in buffers}, rwkv6.U: at(u),
        rwkv6.POSITIONS: at(case.positions), rwkv6.TABLES: at(case.tables), rwkv6.HEADS: HEADS,
        rwkv6.SIZE: size,
    }  # fmt: skip
    case.moving = {**buffers, rwkv6.POSITIONS: case.positions, rwkv6.TABLES: case.tables}
    case.kept = [rows, u]
    yield case


CASES = list(cases())


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.name)
def test_every_way_gives_the_same_bits(case: Case, levels: tuple[str, ...]) -> None:
    """Levels, threads and steps vary; earlier contents of memory have no effect."""
    expected = case.run("portable", 1, TOKENS)
    assert np.isfinite(expected[0]).all()
    for level in levels:
        for threads, size in ((1, TOKENS), (2, 7), (3, 1)):
            found = case.run(level, threads, size)
            for mine, other in zip(found, expected, strict=True):
                assert np.array_equal(mine, other, equal_nan=True), (level, threads, size)


def test_softplus_and_sigmoid() -> None:
    x = np.concatenate([np.linspace(-80, 80, 4001), [-1e4, 1e4, 0]]).astype(np.float32)
    found = np.array([softplus_f32(value) for value in x])
    np.testing.assert_allclose(found, np.logaddexp(0, x.astype(np.float64)), rtol=1e-6, atol=1e-37)
    found = np.array([sigmoid_f32(value) for value in x])
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-37)
