"""Rotation of queries and keys, and what is stored in the pages."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels import reference
from tests.kernels.launch import Slot, launch
from tests.kernels.operands import same_bits
from tests.kernels.reference import Bytes, Floats
from trinity_kernels.ops import kv_layout
from trinity_kernels.ops import rope as op
from trinity_kernels.selftest import kv_cache
from trinity_kernels.team import Team

PAGES = 2
POSITIONS = np.array([0, 15, 16, 17, 127, 128, 143], np.int32)
# Rows of the table; in text, these are the positions.
TURNS = np.array([0, 15, 200, 17, 3, 128, 255], np.int32)
TOKENS = len(POSITIONS)
SEQUENCE = np.arange(TOKENS) % 2  # of each token


@dataclass(slots=True)
class Case:
    """Tokens of two sequences with three layers each, of which the second is written."""

    kv_type: str
    kv_heads: int
    group: int
    head_dim: int
    rope_dim: int
    value_dim: int = 0
    first: int = 0
    interleaved: bool = False
    angles: NDArray[np.float64] = field(init=False)
    table: Floats = field(init=False)
    q: Floats = field(init=False)
    key: Floats = field(init=False)
    value: Floats = field(init=False)
    caches: Bytes = field(init=False)
    tables: NDArray[np.int64] = field(init=False)
    slots: dict[int, Slot] = field(init=False)

    def __post_init__(self) -> None:
        self.value_dim = self.value_dim or self.head_dim
        rng = np.random.default_rng([self.kv_heads, self.group, self.head_dim, self.rope_dim])
        positions = PAGES * kv_layout.PAGE
        self.angles = rng.uniform(-np.pi, np.pi, (positions, self.rope_dim // 2))
        turns = np.hstack([np.cos(self.angles), np.sin(self.angles)])
        self.table = turns.astype(np.float32)
        heads = self.kv_heads * self.group
        self.q = rng.normal(size=(TOKENS, heads, self.head_dim)).astype(np.float32)
        self.key = rng.normal(size=(TOKENS, self.kv_heads, self.head_dim)).astype(np.float32)
        self.value = rng.normal(size=(TOKENS, self.kv_heads, self.value_dim)).astype(np.float32)
        size = kv_layout.layer_bytes(self.kv_type, self.kv_heads, self.head_dim, self.value_dim)
        self.caches = np.zeros((2, PAGES, 3, size), np.uint8)
        self.tables = np.array([[p.ctypes.data for p in pages] for pages in self.caches], np.int64)
        self.slots = {
            op.Q: self.q, op.Q_STRIDE: self.q.strides[0],
            op.KEY: self.key, op.KEY_STRIDE: self.key.strides[0],
            op.VALUE: self.value, op.VALUE_STRIDE: self.value.strides[0],
            op.POSITIONS: POSITIONS,
            op.TURNS: TURNS,
            op.CACHES: np.array([self.tables[s].ctypes.data for s in SEQUENCE], np.int64),
            op.LAYER_OFFSET: size, op.TABLE: self.table, op.ROPE_DIM: self.rope_dim,
            op.HEAD_DIM: self.head_dim, op.VALUE_DIM: self.value_dim, op.FIRST: self.first,
            op.HEADS: heads, op.KV_HEADS: self.kv_heads, op.INTERLEAVED: self.interleaved,
        }  # fmt: skip

    def turned(self, x: Floats) -> Floats:
        """Return the rotated heads (TOKENS, heads, D)."""
        out = x.copy()
        for row, turn in zip(out, TURNS, strict=True):
            part = row[..., self.first :]
            part[:] = reference.rotate(part, self.table[turn], self.interleaved)
        return out

    def run(self, level: str, team: Team | None) -> None:
        launch(op.rope_store, level, self.kv_type, TOKENS, self.slots, team)

    def check_pages(self, keys: Floats, values: Floats) -> None:
        """Check that the second layer holds exactly these values and the others nothing."""
        assert not self.caches[:, :, [0, 2]].any()
        for s in range(2):
            pages = np.ascontiguousarray(self.caches[s, :, 1])
            page = kv_cache.page_type(self.kv_type, self.kv_heads, self.head_dim, self.value_dim)
            expected = np.zeros(PAGES, page)
            here, positions = s == SEQUENCE, PAGES * kv_layout.PAGE
            whole_keys = np.zeros((self.kv_heads, positions, self.head_dim), np.float32)
            whole_keys[:, POSITIONS[here]] = keys[here].transpose(1, 0, 2)
            whole_values = np.zeros((self.kv_heads, positions, self.value_dim), np.float32)
            whole_values[:, POSITIONS[here]] = values[here].transpose(1, 0, 2)
            kv_cache.write(expected, whole_keys, whole_values)
            assert same_bits(pages.reshape(-1), expected.view(np.uint8))


@pytest.fixture(params=[1, 2])
def team(request: pytest.FixtureRequest, two: Team) -> Team | None:
    return two if request.param == 2 else None


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (2, 3, 80, 64), (1, 5, 128, 128)])
@pytest.mark.parametrize("kv_type", kv_layout.KV_TYPES)
def test_rope_store(
    kv_type: str,
    shape: tuple[int, int, int, int],
    interleaved: bool,
    team: Team | None,
    level: str,
) -> None:
    case = Case(kv_type, *shape, interleaved=interleaved)
    unturned, key = case.q.copy(), case.turned(case.key)
    case.run(level, team)
    # Every product and sum is rounded to float32, so the bits are known.
    assert same_bits(case.q, case.turned(unturned))
    half = case.rope_dim // 2
    first, second = np.arange(half), np.arange(half) + half
    if interleaved:
        first, second = 2 * np.arange(half), 2 * np.arange(half) + 1
    turn = np.exp(1j * case.angles[TURNS])[:, None, :]
    pairs = (unturned[..., first] + 1j * unturned[..., second]) * turn
    assert np.abs(case.q[..., first] - pairs.real).max() < 2e-6
    assert np.abs(case.q[..., second] - pairs.imag).max() < 2e-6
    assert same_bits(case.q[..., case.rope_dim :], unturned[..., case.rope_dim :])
    case.check_pages(key, case.value)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("kv_type", kv_layout.KV_TYPES)
def test_a_part_of_each_head_turns(
    kv_type: str, interleaved: bool, team: Team | None, level: str
) -> None:
    """The first values of a latent key do not rotate."""
    case = Case(kv_type, 1, 6, 72, 32, value_dim=40, first=40, interleaved=interleaved)
    case.slots |= {op.VALUE: case.key, op.VALUE_STRIDE: case.key.strides[0]}
    q, key = case.turned(case.q), case.turned(case.key)
    assert same_bits(key[..., :40], case.key[..., :40])
    case.run(level, team)
    assert same_bits(case.q, q)
    case.check_pages(key, key[..., :40])


def test_values_of_another_width_in_wider_rows(team: Team | None, level: str) -> None:
    case = Case("F32", 2, 2, 24, 16, value_dim=40)
    wide = np.full((TOKENS, 2 * 40 + 7), np.nan, np.float32)
    wide[:, :80] = case.value.reshape(TOKENS, 80)
    case.slots |= {op.VALUE: wide, op.VALUE_STRIDE: wide.strides[0]}
    key = case.turned(case.key)
    case.run(level, team)
    case.check_pages(key, case.value)


def test_without_rotation_it_stores(team: Team | None, level: str) -> None:
    case = Case("F32", 2, 2, 24, 16)
    case.slots |= {op.TABLE: None, op.ROPE_DIM: 0}
    q = case.q.copy()
    case.run(level, team)
    assert same_bits(case.q, q)
    case.check_pages(case.key, case.value)


def test_queries_alone(team: Team | None, level: str) -> None:
    case = Case("F16", 2, 3, 24, 24)
    case.slots |= {op.KEY: None, op.VALUE: None, op.KV_HEADS: 0, op.VALUE_DIM: 0}
    q = case.turned(case.q)
    case.run(level, team)
    assert same_bits(case.q, q)
    assert not case.caches.any()


def test_temperatures_of_queries(team: Team | None, level: str) -> None:
    case = Case("F32", 2, 3, 37, 16)
    temperatures = np.random.default_rng(1).uniform(1, 2, PAGES * 128).astype(np.float32)
    case.slots |= {op.TEMPERATURES: temperatures}
    q = case.turned(case.q) * temperatures[POSITIONS][:, None, None]
    key = case.turned(case.key)
    case.run(level, team)
    assert same_bits(case.q, q)
    case.check_pages(key, case.value)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_number_that_is_not_finite_shows_in_its_block(value: float, level: str) -> None:
    case = Case("Q8_0", 1, 1, 64, 16)
    case.slots |= {op.TABLE: None, op.ROPE_DIM: 0}
    case.key[0, 0, 40] = case.value[2, 0, 1] = value
    case.run(level, None)
    page = kv_cache.page_type("Q8_0", 1, 64, 64)
    first = np.ascontiguousarray(case.caches[0, :, 1]).view(page).reshape(-1)
    keys, values = kv_cache.read(first, 64, 64)
    broken = np.zeros(keys.shape, bool)
    broken[0, POSITIONS[0], 32:] = True
    assert np.array_equal(np.isnan(keys), broken)
    broken[:] = False
    broken[0, POSITIONS[2], :32] = True
    assert np.array_equal(np.isnan(values), broken)
