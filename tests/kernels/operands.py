"""Seeded operands of products and attention, with the expected results and error bounds."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels import reference
from tests.kernels.launch import Slot, launch
from tests.kernels.reference import Bytes, Doubles, Floats
from trinity_kernels.ops import attention as attention_op
from trinity_kernels.ops import kv_layout, prompt_attention
from trinity_kernels.ops.matmul import operands as op
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.activations import FORMS, tile_bytes
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.quants import TYPES
from trinity_kernels.selftest import kv_cache
from trinity_kernels.selftest.activation_forms import form_of
from trinity_kernels.team import Team

T = TypeVar("T")
EPSILON = 2.0**-24  # the largest relative error of one rounding to float32
SCALE = 0.3125


@dataclass(frozen=True, slots=True)
class Product:
    """x (M, K) times rows of weights; ``bias`` and ``out``, if given, are added."""

    tag: str
    x: Floats
    packed: Bytes
    rows: Bytes
    bias: Floats | None
    out: Floats
    expected: Doubles
    bound: Doubles

    @property
    def shape(self) -> tuple[int, int]:
        """N and K."""
        return self.out.shape[1], self.x.shape[1]

    def first(self, tokens: int) -> Product:
        """Return the product of the first tokens only."""
        return replace(
            self, x=self.x[:tokens], packed=self.packed[:tokens], out=self.out[:tokens].copy()
        )

    def slots(self, tokens: slice = slice(None)) -> dict[int, Slot]:
        """Return the record of some tokens."""
        n, k = self.shape
        packed, out = self.packed[tokens], self.out[tokens]
        return {
            op.X: packed, op.X_STRIDE: packed.strides[0], op.W: self.rows,
            op.W_STRIDE: self.rows.strides[0], op.N: n, op.K: k, op.OUT: out,
            op.OUT_STRIDE: out.strides[0], op.BIAS: self.bias,
            op.SCALE: 1.0 if self.bias is None else SCALE, op.ADD: self.bias is not None,
        }  # fmt: skip

    def run(self, level: str, team: Team | None = None) -> Floats:
        """Return the kernel's result; the operands do not change."""
        before = self.out.copy()
        launch(matmul, level, self.tag, len(self.x), self.slots(), team)
        result = self.out.copy()
        self.out[:] = before
        return result

    def tile_slots(self, threads: int) -> tuple[dict[int, Slot], dict[int, Slot]]:
        """Return the records of the kernel that makes tiles and of matmul_tiles."""
        (_, k), form = self.shape, FORMS[self.tag]
        scratch = -(-variants.scratch_bytes(matmul_tiles, self.tag, k) // 64) * 64
        shared: dict[int, Slot] = {
            op.TILES: aligned(tile_bytes(form, k, len(self.x))),
            op.SCRATCH: aligned(threads * scratch),
            op.SCRATCH_STRIDE: scratch,
        }
        source = self.packed if form == "ternary" else self.x.view(np.uint8)
        first: dict[int, Slot] = {
            op.X: source, op.X_STRIDE: source.strides[0], op.K: k,
            op.CODES: self.packed, op.CODES_STRIDE: self.packed.strides[0], **shared,
            op.FLOATS: self.tag not in int8_tile_types(),
        }  # fmt: skip
        return first, {**self.slots(), **shared}


def aligned(nbytes: int) -> Bytes:
    """Return bytes of value 85 that start at a cache line."""
    raw = np.full(nbytes + 64, 85, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def product(
    tag: str, tokens: int, n: int, k: int, *, plain: bool = False, x: Floats | None = None,
    rows: Bytes | None = None,
) -> Product:  # fmt: skip
    """Draw random operands; ``plain``: without scale, bias or addition."""
    rng = np.random.default_rng([tokens, n, k])
    rows = reference.random_weights(rng, tag, n, k) if rows is None else rows
    x = rng.normal(size=(tokens, k)).astype(np.float32) if x is None else x
    packed, values = form_of(FORMS[tag], x)
    weights, magnitudes = reference.weight_values(tag, rows)
    out = rng.normal(size=(tokens, n)).astype(np.float32)
    bias = None if plain else rng.normal(size=n).astype(np.float32)
    expected = (1 if plain else SCALE) * (values @ weights.T)
    # Of I2_S only what comes after the exact sums is rounded.
    size = np.abs(expected) if tag == "I2_S" else np.abs(values) @ magnitudes.T
    if bias is not None:
        expected = expected + bias + out
        size = size + np.abs(bias) + np.abs(out)
    bound = reference.roundings(tag, k) * EPSILON * size
    return Product(tag, x, packed, rows, bias, out, expected, bound)


def row_lengths(tag: str) -> tuple[int, ...]:
    """Return 1, 2, 3 and 27 blocks; for plain numbers also lengths that fill no vector."""
    block = TYPES[tag].block_size
    return (1, 15, 16, 37, 700) if block == 1 else (block, 2 * block, 3 * block, 27 * block)


def lengths_and_shapes(tag: str, shapes: Sequence[T]) -> Iterator[tuple[int, T]]:
    """Pair row lengths with shapes: the longest with every third, others for the next type."""
    *lengths, longest = row_lengths(tag)
    yield from combinations(lengths, shapes)
    for shape in shapes[list(TYPES).index(tag) % 3 :: 3]:
        yield longest, shape


@dataclass(frozen=True, slots=True)
class Attention:
    """Queries (M, H, D) at ``positions`` of one sequence, and the expected output.

    ``kept``: the pages and the table, whose addresses the slots hold.
    """

    slots: dict[int, Slot]
    kept: tuple[NDArray[Any], ...]
    out: Floats
    expected: Doubles
    bound: float

    @property
    def tokens(self) -> int:
        """The number of tokens, M."""
        return len(self.out)


def attention(
    kv_type: str, positions: tuple[int, ...], kv_heads: int, group: int, head_dim: int,
    threads: int = 2, *, value_dim: int = 0, window: int = 0, softcap: float = 0.0,
    with_sinks: bool = False, rounds: bool = False,
) -> Attention:  # fmt: skip
    """Draw random operands for a token at each of ``positions``; the layer is a page's second.

    ``rounds``: for the kernel that rounds operands, which takes queries as they are; its results
    are not within the bound.
    """
    rng = np.random.default_rng([head_dim, group, *positions])
    value_dim = value_dim or head_dim
    op, heads, tokens = attention_op, kv_heads * group, len(positions)
    seen = max(positions) + 1
    count = -(-seen // op.BLOCK)
    page = kv_cache.page_type(kv_type, kv_heads, head_dim, value_dim)
    size = kv_layout.layer_bytes(kv_type, kv_heads, head_dim, value_dim)
    assert size == page.itemsize
    pages = np.zeros((count, 2), page)
    # Positions that no token sees hold what must not be read as a value.
    whole_keys = np.full((kv_heads, count * 128, head_dim), np.nan, np.float32)
    whole_values = np.full((kv_heads, count * 128, value_dim), np.nan, np.float32)
    kv_cache.write(pages[:, 0], whole_keys, whole_values)
    table = pages.ctypes.data + pages.strides[0] * np.arange(count, dtype=np.int64)
    some_keys = rng.normal(size=(kv_heads, seen, head_dim)).astype(np.float32)
    some_values = rng.normal(size=(kv_heads, seen, value_dim)).astype(np.float32)
    some_keys, some_values = kv_cache.kept(kv_type, some_keys), kv_cache.kept(kv_type, some_values)

    def fill() -> None:
        whole_keys[:, :seen], whole_values[:, :seen] = some_keys, some_values
        kv_cache.write(pages[:, 1], whole_keys, whole_values)

    fill()
    q = rng.normal(size=(tokens, heads, head_dim)).astype(np.float32)
    taken = q if rounds else kv_cache.taken(kv_type, q)
    scale = float(np.float32(head_dim**-0.5))
    sinks = rng.normal(size=heads).astype(np.float32) * 3 if with_sinks else None
    expected = []
    for t, p in enumerate(positions):
        sees = slice(max(0, p + 1 - window) if window else 0, p + 1)
        expected.append(
            reference.attention(
                taken[t], some_keys[:, sees], some_values[:, sees], scale, softcap, sinks
            )
        )
    if window:
        # What no token sees, and what fills no tile with what one sees, is not read.
        unseen = (min(positions) + 1 - window) // 16 * 16
        some_keys[:, : max(unseen, 0)] = some_values[:, : max(unseen, 0)] = np.nan
        fill()
        some_keys, some_values = np.nan_to_num(some_keys), np.nan_to_num(some_values)
    out = np.zeros((tokens, heads, value_dim), np.float32)
    scratch = (prompt_attention if rounds else op).scratch_bytes(head_dim, value_dim)
    blocks = sum(position // op.BLOCK + 1 for position in positions)
    parts = np.full((blocks, heads, op.part_bytes(value_dim)), 255, np.uint8)
    slots: dict[int, Slot] = {
        op.Q: q, op.Q_STRIDE: q.strides[0], op.POSITIONS: np.array(positions, np.int32),
        op.CACHES: np.full(tokens, table.ctypes.data, np.int64), op.LAYER_OFFSET: size,
        op.HEAD_DIM: head_dim, op.VALUE_DIM: value_dim, op.HEADS: heads, op.KV_HEADS: kv_heads,
        op.OUT: out, op.OUT_STRIDE: out.strides[0], op.SCALE: scale,
        op.SCRATCH: np.full(threads * scratch, 255, np.uint8), op.SCRATCH_STRIDE: scratch,
        op.PARTS: parts, op.WINDOW: window, op.SOFTCAP: softcap,
        op.SINKS: sinks,
    }  # fmt: skip
    # An error of a score is a relative error of its probability.
    norms = np.linalg.norm(q, axis=2).max() * np.linalg.norm(some_keys.astype(float), axis=2).max()
    score_error = head_dim * EPSILON * scale * norms
    # A cap is c - 2 c / (exp + 1): some roundings of c.
    score_error += 8 * EPSILON * softcap
    bound = (2 * score_error + 1e-6) * float(np.abs(some_values).max())
    return Attention(slots, (pages, table), out, np.stack(expected), bound)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether arrays are equal to the last bit, including the sign of zero."""
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def at_the_edge(data: NDArray[np.uint8]) -> Bytes:
    """Return a copy whose last byte is followed by a protected page."""
    if sys.platform != "linux":
        pytest.skip("protects a page with Linux's mprotect")
    page = mmap.PAGESIZE
    whole = -(-data.nbytes // page) * page
    memory = np.frombuffer(mmap.mmap(-1, whole + page), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    guard = ctypes.c_void_p(memory.ctypes.data + whole)
    assert libc.mprotect(guard, ctypes.c_size_t(page), ctypes.c_int(0)) == 0
    copy = memory[whole - data.nbytes : whole].reshape(data.shape)
    copy[:] = data
    return copy
