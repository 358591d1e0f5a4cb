"""Products of experts and their sum, compared with NumPy and with single products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels import reference
from tests.kernels.launch import Slot, launch, launch_all
from tests.kernels.operands import EPSILON, aligned, row_lengths, same_bits
from tests.kernels.reference import Bytes, Floats
from tests.matrix import KINDS, some
from trinity_kernels._jit import Kernel, kernel
from trinity_kernels.isa import available_levels, interpreted
from trinity_kernels.memory import get_i64, set_i64
from trinity_kernels.ops import expert_rows, mix, squares
from trinity_kernels.ops.matmul import activation_tiles, experts, variants
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul.activations import FORMS, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import ROWS, SLOTS
from trinity_kernels.selftest.activation_forms import form_of
from trinity_kernels.team import Team

BEST = available_levels()[0]
EXPERTS, PER_TOKEN, N, MOST_THREADS = 6, 2, 53, 8
TOKENS = (1, 2, 9, 75)
# The longest but one of row_lengths, of which tiles and panels have some parts.
LENGTH = -2


@dataclass(frozen=True, slots=True)
class Rows:
    """The arrays of expert_rows.py for CHOSEN (M, PER_TOKEN)."""

    chosen: NDArray[np.int32]
    groups: NDArray[np.int64]
    places: NDArray[np.int32]
    tokens: NDArray[np.int32]
    copies: Bytes

    @property
    def slots(self) -> dict[int, Slot]:
        """Return the slots that group_by_expert and spread share."""
        return {
            expert_rows.PER_TOKEN: self.chosen.shape[1], expert_rows.PLACES: self.places,
            expert_rows.TOKENS: self.tokens, expert_rows.GROUPS: self.groups,
        }  # fmt: skip

    def of(self, expert: int) -> NDArray[np.int64]:
        """Return the rows of an expert, in order."""
        at = np.flatnonzero(self.chosen.reshape(-1) == expert)
        return self.places.reshape(-1)[at].astype(np.int64)


def rows_of(chosen: NDArray[np.int32], level: str = BEST, team: Team | None = None) -> Rows:
    words = expert_rows.groups_words(EXPERTS)
    found = Rows(
        chosen, np.full(words, -7, np.int64), np.full_like(chosen, -1),
        np.full(chosen.size, -1, np.int32), aligned(MOST_THREADS * expert_rows.COPY_BYTES),
    )  # fmt: skip
    found.groups[expert_rows.COPIES] = found.copies.ctypes.data
    launch(expert_rows.group_by_expert, level, "none", len(chosen), {
        **found.slots, expert_rows.CHOSEN: chosen, expert_rows.EXPERTS: EXPERTS,
        expert_rows.COUNTS: np.full(EXPERTS, -1, np.int64),
    }, team)  # fmt: skip
    return found


def choice(tokens: int) -> NDArray[np.int32]:
    """Return different experts for each token; expert 3 is never chosen, expert 1 often."""
    rng = np.random.default_rng(tokens)
    share = np.array([0.1, 0.6, 0.1, 0, 0.1, 0.1])
    drawn = [rng.choice(EXPERTS, PER_TOKEN, replace=False, p=share) for _ in range(tokens)]
    return np.array(drawn, np.int32)


@pytest.mark.parametrize("tokens", TOKENS)
def test_rows_of_an_expert_lie_together_in_order(tokens: int, level: str, two: Team) -> None:
    chosen = choice(tokens)
    for team in (None, two):
        found = rows_of(chosen, level, team)
        order = np.argsort(chosen.reshape(-1), kind="stable")
        assert np.array_equal(found.tokens, order // PER_TOKEN)
        assert np.array_equal(found.places.reshape(-1)[order], np.arange(chosen.size))
        present, counts = np.unique(chosen, return_counts=True)
        assert found.groups[expert_rows.ACTIVE] == len(present)
        assert found.groups[expert_rows.ALL_ROWS] == chosen.size
        pairs = -(-counts // 32)
        words = found.groups[expert_rows.FIRST_GROUP :].reshape(-1, expert_rows.GROUP_WORDS)
        for group, expert in enumerate(present):
            first = counts[:group].sum(), counts[group], pairs[:group].sum()
            assert words[group].tolist() == [expert, *first]


@pytest.mark.parametrize("nbytes", [4, 64, 100, 2944])
@pytest.mark.parametrize("tokens", TOKENS)
def test_spread(nbytes: int, tokens: int, level: str, two: Team) -> None:
    rows = rows_of(choice(tokens))
    x = np.random.default_rng(nbytes).integers(0, 256, (tokens, nbytes + 8), np.uint8)
    out = np.full((rows.chosen.size, nbytes + 12), 85, np.uint8)
    launch(expert_rows.spread, level, "none", tokens, {
        **rows.slots, expert_rows.X: x, expert_rows.X_STRIDE: x.strides[0], expert_rows.OUT: out,
        expert_rows.OUT_STRIDE: out.strides[0], expert_rows.NBYTES: nbytes,
    }, two)  # fmt: skip
    assert np.array_equal(out[:, :nbytes], x[rows.tokens, :nbytes])
    assert np.all(out[:, nbytes:] == 85)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("k", [1, 16, 37, 700])
@pytest.mark.parametrize("tokens", TOKENS)
def test_mix(tokens: int, k: int, add: bool, level: str, two: Team) -> None:
    rng = np.random.default_rng([tokens, k])
    rows = rows_of(choice(tokens))
    x = rng.normal(size=(rows.chosen.size, k + 3)).astype(np.float32)
    weights = rng.random(rows.chosen.shape).astype(np.float32)
    before = rng.normal(size=(tokens, k)).astype(np.float32)
    # The same steps in float32: bit by bit.
    total = np.zeros((tokens, k), np.float32)
    for slot in range(PER_TOKEN):
        total = total + weights[:, slot, None] * x[rows.places[:, slot], :k]
    expected = before + total if add else total
    for team in (None, two):
        out = before.copy()
        launch(mix.mix, level, "none", tokens, {
            mix.X: x, mix.X_STRIDE: x.strides[0], mix.OUT: out, mix.OUT_STRIDE: out.strides[0],
            mix.K: k, mix.PER_TOKEN: PER_TOKEN, mix.PLACES: rows.places, mix.WEIGHTS: weights,
            mix.ADD: add,
        }, team)  # fmt: skip
        assert np.array_equal(out, expected)


@dataclass(frozen=True, slots=True)
class Product:
    """Products of each expert's rows of x with its weights, which are stored as 1, 0, 3, 2, ..."""

    tag: str
    rows: Rows
    x: Floats
    packed: Bytes
    weights: NDArray[Any]
    table: NDArray[np.int64]
    scales: NDArray[np.float64]
    biases: Floats
    expected: NDArray[np.float64]
    size: NDArray[np.float64]

    def run(
        self, inner: Kernel, level: str, team: Team | None = None, many: bool = False
    ) -> Floats:
        """Add the products of all experts to ones with one kernel."""
        out = np.ones(self.expected.shape, np.float32)
        k = self.x.shape[1]
        scratch = -(-variants.scratch_bytes(inner, self.tag, k) // 64) * 64
        pair = tile_bytes(FORMS[self.tag], k, 32)
        shared: dict[int, Slot] = {
            op.SCRATCH: aligned(MOST_THREADS * scratch), op.SCRATCH_STRIDE: scratch,
            op.TILES: aligned(pair * (EXPERTS + len(self.x) // 32)), experts.TILE_STEP: pair,
            experts.GROUPS: self.rows.groups, op.MANY: many,
        }  # fmt: skip
        steps: list[tuple[Kernel, str, dict[int, Slot]]] = []
        if inner is matmul_tiles:
            form = FORMS[self.tag]
            source = self.packed if form == "ternary" else self.x.view(np.uint8)
            tiles = activation_tiles.tiles_of(form)
            steps.append((experts.expert_tiles, "none", {
                op.X: source, op.X_STRIDE: source.strides[0], op.K: k,
                op.CODES: self.packed, op.CODES_STRIDE: self.packed.strides[0], **shared,
                op.FLOATS: self.tag not in int8_tile_types(),
                experts.INNER: tiles.address(level, "none"),
            }))  # fmt: skip
        steps.append((experts.expert_products, "none", {
            op.X: self.packed, op.X_STRIDE: self.packed.strides[0], op.W: self.table,
            op.W_STRIDE: self.weights.strides[1], op.N: N, op.K: k, op.OUT: out,
            op.OUT_STRIDE: out.strides[0], op.SCALE: self.scales, op.BIAS: self.biases,
            experts.BIAS_STEP: self.biases.strides[0], op.ADD: 1, **shared,
            experts.INNER: inner.address(level, self.tag),
        }))  # fmt: skip
        launch_all(steps, level, len(self.rows.chosen), team)
        return out

    def one_by_one(self, inner: Kernel, level: str) -> Floats:
        """Do the same with a product for each expert."""
        out = np.ones(self.expected.shape, np.float32)
        k = self.x.shape[1]
        for expert in range(EXPERTS):
            rows = self.rows.of(expert)
            if not len(rows):
                continue
            some = slice(rows[0], rows[-1] + 1)
            scratch = variants.scratch_bytes(inner, self.tag, k)
            launch(inner, level, self.tag, len(rows), {
                op.X: self.packed[some], op.X_STRIDE: self.packed.strides[0],
                op.W: int(self.table[expert]), op.W_STRIDE: self.weights.strides[1], op.N: N,
                op.K: k, op.OUT: out[some], op.OUT_STRIDE: out.strides[0],
                op.SCALE: float(self.scales[expert]), op.BIAS: self.biases[expert], op.ADD: 1,
                op.SCRATCH: aligned(scratch + 64),
            })  # fmt: skip
        return out


def product(tag: str, tokens: int, repeat: int = 1) -> Product:
    """Draw operands; ``repeat``: each token occurs so many times."""
    rng = np.random.default_rng([tokens, len(tag)])
    k = row_lengths(tag)[LENGTH]
    rows = rows_of(np.tile(choice(tokens), (repeat, 1)))
    drawn = rng.normal(size=(tokens * PER_TOKEN, k)).astype(np.float32)
    x = np.empty((rows.chosen.size, k), np.float32)
    x[rows.places.reshape(-1)] = np.tile(drawn, (repeat, 1))
    packed, values = form_of(FORMS[tag], x)
    stack = reference.random_weights(rng, tag, EXPERTS * N, k)
    weights = stack.reshape(EXPERTS, N, -1)
    table = weights.ctypes.data + (np.arange(EXPERTS) ^ 1) * weights.strides[0]
    scales = rng.uniform(0.5, 1, EXPERTS).astype(np.float32).astype(np.float64)
    # Every other value: a part of a fused weight's.
    biases = rng.normal(size=(EXPERTS, 2 * N)).astype(np.float32)[:, :N]
    dense, magnitudes = reference.weight_values(tag, stack)
    dense, magnitudes = (d.reshape(EXPERTS, N, k) for d in (dense, magnitudes))
    expected, size = np.zeros((2, rows.chosen.size, N))
    for expert in range(EXPERTS):
        some, at = rows.of(expert), expert ^ 1
        expected[some] = scales[expert] * (values[some] @ dense[at].T) + biases[expert] + 1
        size[some] = np.abs(values[some]) @ magnitudes[at].T + np.abs(biases[expert]) + 1
    return Product(tag, rows, x, packed, weights, table, scales, biases, expected, size)


TAGS = pytest.mark.parametrize("tag", some(sorted(FORMS), {*KINDS, "MXFP4", "F16"}))


@TAGS
@pytest.mark.parametrize("tokens", TOKENS)
def test_products_of_experts_are_products(tag: str, tokens: int, level: str, two: Team) -> None:
    p = product(tag, tokens)
    exact = p.one_by_one(matmul, BEST)
    k = p.x.shape[1]
    for inner in variants.kernels(level):
        if tag not in variants.types_of(inner):
            continue
        for team in (None, two):
            found = p.run(inner, level, team)
            relative = reference.roundings(tag, k) * EPSILON if inner is matmul else 2.0**-6
            assert np.all(np.abs(found - p.expected) <= relative * p.size), inner.name
            if variants.serves(inner, tag, exact=True):
                assert same_bits(found, exact), inner.name
            elif inner is not matmul_tiles:
                assert same_bits(found, p.one_by_one(inner, level)), inner.name


@TAGS
def test_many_gives_a_row_the_same_bits_however_many_rows_its_expert_has(
    tag: str, level: str, two: Team
) -> None:
    """Experts have 1 to 16 rows, then 4 times as many: every kind of step occurs."""
    once, often = product(tag, 9), product(tag, 9, repeat=4)
    for inner in variants.kernels(level):
        if tag in variants.types_of(inner):
            expected = often.run(inner, level, two, many=True)[often.rows.places[:9]]
            found = once.run(inner, level, many=True)[once.rows.places]
            assert same_bits(found, expected), inner.name


@pytest.mark.parametrize("threads", [1, 2, 3, 5, MOST_THREADS])
def test_every_row_is_multiplied_by_one_thread(threads: int) -> None:
    p = product("F32", 9)
    team = Team(threads)
    try:
        # Added onto ones: a row that is multiplied twice is added twice.
        assert same_bits(p.run(matmul, BEST, team), p.one_by_one(matmul, BEST))
    finally:
        team.close()


@kernel
def note(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Record the slots and the rows of a call."""
    if thread != 0:
        return
    log = get_i64(record + 8 * op.OUT)
    calls = get_i64(log)
    to = log + 8 * (1 + (SLOTS + 1) * calls)
    for slot in range(SLOTS):
        set_i64(to + 8 * slot, get_i64(record + 8 * slot))
    set_i64(to + 8 * SLOTS, get_i64(get_i64(record + 8 * ROWS)))
    set_i64(log, calls + 1)


@pytest.mark.parametrize("index", [True, False])
def test_each_expert_has_tiles_of_its_own_rows(index: bool, level: str) -> None:
    rows = rows_of(choice(75))
    log = np.zeros(1 + (SLOTS + 1) * EXPERTS, np.int64)
    x, codes, tiles = 1 << 20, 1 << 30, 1 << 40
    launch(experts.expert_tiles, level, "none", 75, {
        op.X: x, op.X_STRIDE: 128, op.CODES: codes, op.CODES_STRIDE: 192, op.TILES: tiles,
        op.INDEX: rows.tokens if index else None, op.OUT: log, experts.TILE_STEP: 4096,
        experts.GROUPS: rows.groups, experts.INNER: note.address(level, "none"),
    })  # fmt: skip
    calls = log[1:].reshape(EXPERTS, SLOTS + 1)
    present, counts = np.unique(rows.chosen, return_counts=True)
    assert log[0] == len(present)
    pair = 0
    for call, expert, count in zip(calls, present, counts, strict=False):
        first = rows.of(expert)[0]
        assert call[SLOTS] == count
        assert call[op.X] == (x if index else x + 128 * first)
        assert call[op.INDEX] == (rows.tokens.ctypes.data + 4 * first if index else 0)
        assert call[op.CODES] == codes + 192 * first
        assert call[op.TILES] == tiles + 4096 * pair
        pair += -(-count // 32)


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("k", [1, 8, 37, 256])
def test_squares_by_expert(spread: bool, k: int, level: str, two: Team) -> None:
    chosen = choice(40)
    rows = rows_of(chosen)
    count = len(chosen) if spread else chosen.size
    x = np.random.default_rng(k).normal(size=(count, k + 2)).astype(np.float32)
    found = np.zeros((EXPERTS, k + 1))
    slots: dict[int, Slot] = {
        squares.X: x, squares.X_STRIDE: x.strides[0], squares.SUMS: found, squares.K: k,
        squares.GROUPS: rows.groups, squares.INDEX: rows.tokens if spread else None,
    }  # fmt: skip
    launch(squares.add_expert_squares, level, "none", 40, slots, two)
    for expert in range(EXPERTS):
        some = rows.of(expert)
        own = x[rows.tokens[some] if spread else some, :k]
        sums = np.zeros(k)
        for row in own.astype(np.float64):
            sums += row * row
        assert np.array_equal(found[expert, :k], sums)
        assert found[expert, k] == len(own)


@pytest.mark.skipif(interpreted(), reason="one level")
def test_levels_leave_the_bits_alone(levels: tuple[str, ...]) -> None:
    p = product("Q4_0", 9)
    expected = p.run(matmul, "portable")
    for level in levels:
        assert same_bits(p.run(matmul, level), expected)
