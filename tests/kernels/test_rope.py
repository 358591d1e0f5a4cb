"""Rotation of queries and keys, and what reaches the pages."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import reference
from tests.kernels.launch import Slot, launch
from tests.kernels.operands import same_bits
from trinity_kernels.ops import kv_layout
from trinity_kernels.ops import rope as op
from trinity_kernels.team import Team

PAGES = 2
POSITIONS = np.array([0, 15, 16, 17, 127, 128, 143], np.int32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (2, 3, 80, 64), (1, 5, 128, 128)])
@pytest.mark.parametrize("kv_type", kv_layout.KV_TYPES)
def test_rope_store(
    kv_type: str, shape: tuple[int, int, int, int], interleaved: bool, threads: int,
    level: str, two: Team,
) -> None:  # fmt: skip
    kv_heads, group, head_dim, rope_dim = shape
    rng = np.random.default_rng(shape)
    tokens = len(POSITIONS)
    angles = rng.uniform(-np.pi, np.pi, (PAGES * kv_layout.PAGE, rope_dim // 2))
    table = np.hstack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    q = rng.normal(size=(tokens, kv_heads * group, head_dim)).astype(np.float32)
    key = rng.normal(size=(tokens, kv_heads, head_dim)).astype(np.float32)
    value = rng.normal(size=key.shape).astype(np.float32)
    turned_q, turned_key = (
        np.stack(
            [reference.rotate(x, table[p], interleaved) for x, p in zip(y, POSITIONS, strict=True)]
        )
        for y in (q, key)
    )
    unturned = q.copy()
    # Tokens of two sequences, each with three layers of which the second is written.
    size = kv_layout.layer_bytes(kv_type, kv_heads, head_dim)
    caches = np.zeros((2, PAGES, 3, size), np.uint8)
    tables = np.array([[page.ctypes.data for page in pages] for pages in caches], np.int64)
    sequence = np.arange(tokens) % 2
    slots: dict[int, Slot] = {
        op.Q: q, op.Q_STRIDE: q.strides[0], op.KEY: key, op.VALUE: value,
        op.KV_STRIDE: key.strides[0], op.POSITIONS: POSITIONS,
        op.CACHES: np.array([tables[s].ctypes.data for s in sequence], np.int64),
        op.LAYER_OFFSET: size, op.TABLE: table, op.HEAD_DIM: head_dim, op.ROPE_DIM: rope_dim,
        op.HEADS: kv_heads * group, op.KV_HEADS: kv_heads, op.INTERLEAVED: interleaved,
    }  # fmt: skip
    launch(op.rope_store, level, kv_type, tokens, slots, two if threads == 2 else None)

    # Every product and sum is rounded to float32, so the bits are known.
    assert same_bits(q, turned_q)
    half = rope_dim // 2
    first, second = np.arange(half), np.arange(half) + half
    if interleaved:
        first, second = 2 * np.arange(half), 2 * np.arange(half) + 1
    turn = np.exp(1j * angles[POSITIONS])[:, None, :]
    pairs = (unturned[..., first] + 1j * unturned[..., second]) * turn
    assert np.abs(q[..., first] - pairs.real).max() < 2e-6
    assert np.abs(q[..., second] - pairs.imag).max() < 2e-6
    assert same_bits(q[..., rope_dim:], unturned[..., rope_dim:])
    assert not caches[:, :, 0].any()
    assert not caches[:, :, 2].any()
    for s in range(2):
        pages = np.ascontiguousarray(caches[s, :, 1])
        tiles, lines = reference.page_views(pages, kv_type, kv_heads, head_dim)
        here = sequence == s
        keys, values = np.zeros((2, kv_heads, PAGES * kv_layout.PAGE, head_dim), tiles.dtype)
        keys[:, POSITIONS[here]] = turned_key[here].transpose(1, 0, 2).astype(tiles.dtype)
        values[:, POSITIONS[here]] = value[here].transpose(1, 0, 2).astype(tiles.dtype)
        assert same_bits(reference.keys_by_position(tiles), keys)
        by_position = lines[..., :head_dim].transpose(1, 0, 2, 3).reshape(values.shape)
        assert same_bits(by_position, values)
        assert not lines[..., head_dim:].any()
