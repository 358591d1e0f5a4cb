"""Every kernel against its NumPy reference, on small data with the shapes that go wrong.

``check`` is one kernel on one level, in milliseconds; ``run`` is all of them. The bounds are those
of rounding: so many roundings of float32, times the sum of the magnitudes that were added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trinity_kernels import isa as isa_levels
from trinity_kernels import reference
from trinity_kernels._jit import Kernel
from trinity_kernels.launch import Slot, launch, launch_all
from trinity_kernels.ops import (
    activation,
    attention,
    kv_layout,
    matmul,
    matmul_tiles,
    quantize,
    rmsnorm,
    rope,
)
from trinity_kernels.quants import TYPES
from trinity_kernels.quants.dot import FORMS, activation_bytes
from trinity_kernels.quants.unpack import tile_types
from trinity_kernels.record import RECORD
from trinity_kernels.reference import Bytes, Floats
from trinity_kernels.team import Team

_EPSILON = 2.0**-24  # the largest relative error of one rounding to float32

_TILE_TYPES = tuple(sorted(tile_types()))
KERNELS: dict[str, tuple[Kernel, tuple[str, ...]]] = {
    kernel.name: (kernel, tags)
    for kernel, tags in (
        (matmul.matmul, tuple(FORMS)),
        (quantize.quantize_ternary, ("none",)),
        (quantize.quantize_q8, ("none",)),
        (rmsnorm.rmsnorm, ("none",)),
        (rope.rope_store, kv_layout.KV_TYPES),
        (attention.attention, kv_layout.KV_TYPES),
        (attention.attention_parts, kv_layout.KV_TYPES),
        (attention.attention_merge, ("none",)),
        (activation.gated, activation.ACTIVATIONS),
        (matmul_tiles.tile_activations, ("none",)),
        (matmul_tiles.tile_bf16, ("none",)),
        (matmul_tiles.matmul_tiles, _TILE_TYPES),
    )
}


@dataclass(frozen=True, slots=True)
class Result:
    """One check: ``level`` is that of the code, ``error`` what differed or None."""

    kernel: str
    level: str
    tag: str
    error: str | None
    seconds: float


def check(kernel_name: str, level: str, tag: str) -> str | None:
    """What one kernel computed wrongly, as a sentence; None where it is within its bounds.

    ``tag``: a quantization type, a KV type, an activation, or "none". Compiles that kernel, and for
    matmul_tiles the one that makes its tiles. Raises: KeyError for an unknown kernel.
    """
    with np.errstate(all="ignore"):
        return _CHECKS[kernel_name](level, tag)


def variants(level: str) -> Iterator[tuple[Kernel, str, str]]:
    """Kernel, level of its code and tag of all that a level runs."""
    for kernel, tags in KERNELS.values():
        if level == "amx" or not kernel.uses_tiles:
            for tag in tags:
                yield kernel, kernel.level_of(level), tag


def run(
    levels: list[str] | None = None, progress: Callable[[str], None] | None = None
) -> list[Result]:
    """Check all kernels on ``levels``, by default all that this machine runs.

    Raises: IsaError for a level that is unknown or cannot run here.
    """
    chosen = [isa_levels.select_level(level) for level in levels or isa_levels.available_levels()]
    # Levels share code: each piece is checked once.
    todo = list(dict.fromkeys(v for level in chosen for v in variants(level)))
    results = []
    for i, (kernel, level, tag) in enumerate(todo, 1):
        if progress is not None:
            progress(f"checking {_title(kernel, tag)} at {level} ({i}/{len(todo)})")
        kernel.address(level, tag)
        start = time.perf_counter()
        error = check(kernel.name, level, tag)
        results.append(Result(kernel.name, level, tag, error, time.perf_counter() - start))
    return results


def compile_all(isa: str | None, progress: Callable[[str], None] | None) -> int:
    """See trinity_kernels.warmup."""
    todo = list(variants(isa_levels.select_level(isa)))
    fresh: list[str] = []
    for i, (kernel, level, tag) in enumerate(todo, 1):
        line = f"compiling {_title(kernel, tag)} ({i}/{len(todo)})"

        def compiling(line: str = line) -> None:
            fresh.append(line)
            if progress is not None:
                progress(line)

        kernel.address(level, tag, compiling)
    # The walk itself, the workers' part included.
    team = Team(2)
    team.run(np.zeros(0, RECORD))
    team.close()
    return len(fresh)


def _title(kernel: Kernel, tag: str) -> str:
    return kernel.name if tag == "none" else f"{kernel.name} {tag}"


def _differs(what: str, found: ArrayLike, expected: ArrayLike, bound: ArrayLike = 0) -> str | None:
    """A sentence about the element that is furthest outside of its bound."""
    got, want = np.asarray(found), np.asarray(expected)
    error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    # A comparison that is false for what is no number.
    wrong = ~((error <= bound) | (got == want))
    if not wrong.any():
        return None
    excess = np.where(wrong, np.where(np.isfinite(error), error, np.inf), -1)
    at = np.unravel_index(int(excess.argmax()), excess.shape)
    place = ", ".join(map(str, map(int, at)))
    limit = float(np.broadcast_to(bound, excess.shape)[at])
    return (
        f"{what}: {int(wrong.sum())} of {wrong.size} values differ, the worst at [{place}] is "
        f"{got[at]:.9g}, expected {want[at]:.9g} within {limit:.2g}"
    )


# -- products --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """Operands of a product, and what it must give."""

    x: Floats
    slots: dict[int, Slot]
    out: Floats
    expected: NDArray[np.float64]
    bound: NDArray[np.float64]


def product(tag: str, tokens: int, n: int, k: int, plain: bool, seed: int = 1) -> _Product:
    """Seeded operands of ops/matmul.py; ``plain``: no scale, bias or addition."""
    rng = np.random.default_rng([seed, tokens, n, k])
    rows = reference.random_weights(rng, tag, n, k)
    x = rng.normal(size=(tokens, k)).astype(np.float32)
    packed, values = reference.activations(FORMS[tag], x)
    weights, magnitudes = reference.weight_values(tag, rows)
    out = rng.normal(size=(tokens, n)).astype(np.float32)
    bias = None if plain else rng.normal(size=n).astype(np.float32)
    scale = 1.0 if plain else 0.3125
    expected = scale * (values @ weights.T)
    size = scale * (np.abs(values) @ magnitudes.T)
    if bias is not None:
        expected = expected + bias + out
        size = size + np.abs(bias) + np.abs(out)
    if FORMS[tag] == "ternary":
        # The integers are exact: only what comes after them is rounded.
        size = np.minimum(size, np.abs(expected) * 4 + 4) if tag == "I2_S" else size
    slots: dict[int, Slot] = {
        matmul.X: packed, matmul.X_STRIDE: packed.strides[0], matmul.W: rows,
        matmul.W_STRIDE: rows.strides[0], matmul.N: n, matmul.K: k, matmul.OUT: out,
        matmul.OUT_STRIDE: out.strides[0], matmul.SCALE: scale, matmul.BIAS: bias,
        matmul.ADD: not plain,
    }  # fmt: skip
    bound = reference.roundings(tag, k) * _EPSILON * size
    return _Product(x, slots, out, expected, bound)


def _lengths(tag: str) -> tuple[int, ...]:
    """Row lengths: one block, an odd number of them, and what fills no vector."""
    block = TYPES[tag].block_size
    return (1, 5, 37) if block == 1 else (block, 3 * block) if block > 32 else (32, 27 * 32)


def _matmul(level: str, tag: str) -> str | None:
    for k in _lengths(tag):
        for tokens, n, plain in ((1, 17, True), (3, 3, False)):
            p = product(tag, tokens, n, k, plain)
            launch(matmul.matmul, level, tag, tokens, p.slots)
            wrong = _differs(f"{tokens} tokens times {n} rows of {k}", p.out, p.expected, p.bound)
            if wrong:
                return wrong
    return None


def _packer(tag: str) -> Kernel:
    return matmul_tiles.tile_activations if FORMS[tag] == "ternary" else matmul_tiles.tile_bf16


def tile_slots(form: str, k: int, tokens: int, threads: int = 1) -> dict[int, Slot]:
    """The slots that the tile kernels need beyond those of matmul."""
    op = matmul_tiles
    scratch = op.scratch_bytes(form, k)
    return {
        op.TILES: np.full(op.tile_bytes(form, k, tokens), 85, np.uint8),
        op.SCRATCH: np.zeros(threads * scratch, np.uint8), op.SCRATCH_STRIDE: scratch,
    }  # fmt: skip


def _check_tiles(form: str, level: str, kernel: Kernel) -> str | None:
    rng = np.random.default_rng(2)
    for tokens, k in ((5, 32), (33, 3 * 128)):
        x = rng.normal(size=(tokens, k)).astype(np.float32)
        source = reference.activations("f32", x)[0]
        if form == "ternary":
            source = reference.activations("ternary", x)[0]
        slots = tile_slots(form, k, tokens)
        values: dict[int, Slot] = {
            matmul.X: source, matmul.X_STRIDE: source.strides[0], matmul.K: k, **slots,
        }  # fmt: skip
        launch(kernel, level, "none", tokens, values)
        expected = reference.pack_tiles(form, x)
        wrong = _differs(f"bytes of {tokens} rows of {k}", slots[matmul_tiles.TILES], expected)
        if wrong:
            return wrong
    return None


def _matmul_tiles(level: str, tag: str) -> str | None:
    k = _lengths(tag)[-1]
    form = FORMS[tag]
    for tokens, n, plain in ((3, 35, True), (5, 53, False), (33, 16, True)):
        p = product(tag, tokens, n, k, plain)
        slots = {**p.slots, **tile_slots(form, k, tokens)}
        source = reference.activations("f32", p.x)[0] if form != "ternary" else p.slots[matmul.X]
        assert isinstance(source, np.ndarray)
        expected, bound = p.expected.copy(), p.bound.copy()
        if form != "ternary" and tokens >= matmul_tiles.FEW:
            # Whole panels of 16 rows multiply bfloat16 by bfloat16.
            rows = p.slots[matmul.W]
            assert isinstance(rows, np.ndarray)
            whole = n // 16 * 16
            values, _ = reference.weight_values(tag, rows[:whole])
            w = reference.round_bf16(values.astype(np.float32)).astype(np.float64)
            x = reference.round_bf16(p.x).astype(np.float64)
            scale = 1.0 if plain else 0.3125
            size = np.abs(x) @ np.abs(w).T
            expected[:, :whole] = scale * (x @ w.T)
            if not plain:
                bias = p.slots[matmul.BIAS]
                assert isinstance(bias, np.ndarray)
                expected[:, :whole] += bias[:whole] + p.out[:, :whole]
                size = size + np.abs(bias[:whole]) + np.abs(p.out[:, :whole])
            # A weight computed with one rounding more may fall to the other bfloat16.
            bound[:, :whole] = 2.0**-12 * size
        launch_all(
            [
                (_packer(tag), "none", {**slots, matmul.X: source,
                                        matmul.X_STRIDE: source.strides[0]}),
                (matmul_tiles.matmul_tiles, tag, slots),
            ],
            level, tokens,
        )  # fmt: skip
        wrong = _differs(f"{tokens} tokens times {n} rows of {k}", p.out, expected, bound)
        if wrong:
            return wrong
    return None


# -- activations -----------------------------------------------------------------------------------


def _quantize(form: str, level: str, kernel: Kernel) -> str | None:
    rng = np.random.default_rng(3)
    for tokens, k in ((1, 32), (3, 27 * 32)):
        x = rng.normal(size=(tokens, k)).astype(np.float32)
        x[-1, :32] = [0, -0.0, 1e30, -1e30] * 8
        x[0] *= 0 if tokens > 1 else 1
        out = np.full((tokens, activation_bytes(form, k)), 85, np.uint8)
        expected = reference.activations(form, x)[0]
        launch(kernel, level, "none", tokens, {
            quantize.X: x, quantize.X_STRIDE: x.strides[0], quantize.K: k,
            quantize.OUT: out, quantize.OUT_STRIDE: out.strides[0],
        })  # fmt: skip
        written = _written(form, k)
        what = f"bytes of {tokens} rows of {k}"
        wrong = _differs(what, out[:, :written], expected[:, :written])
        if wrong:
            return wrong
    return None


def _written(form: str, k: int) -> int:
    """Bytes of the form that mean something; the rest fills a cache line."""
    if form == "ternary":
        return -(-k // 256) * 320 + 8
    return -(-k // 64) * 136


def _rmsnorm(level: str, tag: str) -> str | None:
    rng = np.random.default_rng(4)
    op = rmsnorm
    for tokens, k, groups in ((1, 5, 1), (3, 37, 1), (2, 80, 3)):
        x = rng.normal(size=(tokens, groups, k)).astype(np.float32)
        weight = rng.normal(size=k).astype(np.float32)
        out = np.zeros_like(x)
        index = np.arange(tokens, dtype=np.int32)[::-1].copy()
        launch(op.rmsnorm, level, tag, tokens, {
            op.X: x, op.X_STRIDE: x.strides[0], op.WEIGHT: weight, op.OUT: out,
            op.OUT_STRIDE: out.strides[0], op.K: k, op.EPS: 1e-5, op.GROUPS: groups,
            op.INDEX: index,
        })  # fmt: skip
        expected = reference.rmsnorm(x[index], weight, 1e-5)
        bound = (k / 16 + 12) * _EPSILON * np.abs(expected)
        wrong = _differs(f"{tokens} rows of {groups} * {k}", out, expected, bound)
        if wrong:
            return wrong
    return None


def _gated(level: str, tag: str) -> str | None:
    rng = np.random.default_rng(5)
    op = activation
    for tokens, k in ((1, 37), (3, 200)):
        gate = (4 * rng.normal(size=(tokens, k))).astype(np.float32)
        up = rng.normal(size=(tokens, k)).astype(np.float32)
        gate[:, :6] = [0, -0.0, 100, -100, 1e-30, 20]
        out = np.zeros_like(gate)
        launch(op.gated, level, tag, tokens, {
            op.GATE: gate, op.UP: up, op.OUT: out, op.STRIDE: gate.strides[0], op.K: k,
        })  # fmt: skip
        expected = reference.activate(tag, gate) * up
        bound = 1e-6 * np.abs(gate.astype(np.float64) * up) + 2e-6 * np.abs(expected)
        wrong = _differs(f"{tokens} rows of {k}", out, expected, bound)
        if wrong:
            return wrong
    return None


# -- attention -------------------------------------------------------------------------------------


def _rope_store(level: str, tag: str) -> str | None:
    rng = np.random.default_rng(6)
    op = rope
    capacity, heads, kv_heads, head_dim, rope_dim = 48, 6, 2, 24, 16
    positions = np.array([0, 15, 16, 37], np.int32)
    tokens = len(positions)
    table = rng.normal(size=(capacity, rope_dim)).astype(np.float32)
    for interleaved in (False, True):
        q = rng.normal(size=(tokens, heads, head_dim)).astype(np.float32)
        key = rng.normal(size=(tokens, kv_heads, head_dim)).astype(np.float32)
        value = rng.normal(size=key.shape).astype(np.float32)
        turned = [reference.rotate(x, table[p], interleaved) for x, p in zip(q, positions)]  # noqa: B905
        new_keys = [reference.rotate(x, table[p], interleaved) for x, p in zip(key, positions)]  # noqa: B905
        size = kv_layout.layer_bytes(tag, kv_heads, head_dim, capacity)
        cache = np.zeros(3 * size, np.uint8)
        launch(op.rope_store, level, tag, tokens, {
            op.Q: q, op.Q_STRIDE: q.strides[0], op.KEY: key, op.VALUE: value,
            op.KV_STRIDE: key.strides[0], op.POSITIONS: positions,
            op.CACHES: np.full(tokens, cache.ctypes.data, np.int64), op.LAYER_OFFSET: size,
            op.TABLE: table, op.HEAD_DIM: head_dim, op.ROPE_DIM: rope_dim, op.HEADS: heads,
            op.KV_HEADS: kv_heads, op.CAPACITY: capacity, op.INTERLEAVED: interleaved,
        })  # fmt: skip
        keys, values = reference.cache_views(
            cache[size : 2 * size], tag, kv_heads, head_dim, capacity
        )
        expected = np.zeros((2, kv_heads, capacity, head_dim), values.dtype)
        expected[0][:, positions] = np.stack(new_keys, axis=1).astype(values.dtype)
        expected[1][:, positions] = value.transpose(1, 0, 2).astype(values.dtype)
        wrong = (
            _differs("queries", q, np.stack(turned))
            or _differs("keys", reference.keys_by_position(keys), expected[0])
            or _differs("values", values[:, :, :head_dim], expected[1])
            or _differs("bytes outside of the layer", cache[:size] + cache[2 * size :], 0)
        )
        if wrong:
            return wrong
    return None


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """Operands of the attention kernels over a random cache, and the expected output."""

    slots: dict[int, Slot]
    q: Floats
    keys: NDArray[np.floating]
    values: NDArray[np.floating]
    positions: NDArray[np.int32]
    scale: float
    parts: NDArray[np.float32]
    out: Floats
    expected: NDArray[np.float64]
    bound: NDArray[np.float64]


def attention_case(
    kv_type: str, positions: tuple[int, ...], kv_heads: int, group: int, head_dim: int,
    threads: int = 1, seed: int = 7,
) -> AttentionCase:  # fmt: skip
    """Seeded operands for one token at each of ``positions``, all in one cache."""
    rng = np.random.default_rng([seed, head_dim, group])
    op = attention
    heads, tokens = kv_heads * group, len(positions)
    capacity = -(-(max(positions) + 1) // 16) * 16
    blocks = -(-capacity // op.BLOCK)
    size = kv_layout.layer_bytes(kv_type, kv_heads, head_dim, capacity)
    dtype = np.float16 if kv_type == "F16" else np.float32
    cache = np.zeros(2 * size, np.uint8)
    layer = cache[size:]
    layer.view(dtype)[:] = rng.normal(size=size // np.dtype(dtype).itemsize).astype(dtype)
    tiled, padded_values = reference.cache_views(layer, kv_type, kv_heads, head_dim, capacity)
    padded_values[:, :, head_dim:] = 0
    keys = reference.keys_by_position(tiled)
    values = padded_values[:, :, :head_dim]
    q = rng.normal(size=(tokens, heads, head_dim)).astype(np.float32)
    scale = float(np.float32(head_dim**-0.5))
    expected = np.stack(
        [
            reference.attention(q[t], keys[:, : p + 1], values[:, : p + 1], scale)
            for t, p in enumerate(positions)
        ]
    )
    out = np.zeros_like(q)
    scratch = op.scratch_bytes(head_dim, group)
    parts = np.zeros((tokens, heads, blocks, op.part_bytes(head_dim) // 4), np.float32)
    at = np.array(positions, np.int32)
    slots: dict[int, Slot] = {
        op.Q: q, op.Q_STRIDE: q.strides[0], op.POSITIONS: at,
        op.CACHES: np.full(tokens, cache.ctypes.data, np.int64), op.LAYER_OFFSET: size,
        op.HEAD_DIM: head_dim, op.HEADS: heads, op.KV_HEADS: kv_heads, op.CAPACITY: capacity,
        op.OUT: out, op.OUT_STRIDE: out.strides[0], op.SCALE: scale,
        op.SCRATCH: np.zeros(threads * scratch, np.uint8), op.SCRATCH_STRIDE: scratch,
        op.PARTS: parts, op.MAX_BLOCKS: blocks,
    }  # fmt: skip
    # Scores are sums of head_dim products; their errors are relative errors of probabilities.
    error = 4 * head_dim**0.5 * _EPSILON * np.abs(q).max() * float(np.abs(keys).max())
    bound = (error + 1e-6) * float(np.abs(values).max()) * np.ones_like(expected)
    # The slots hold addresses: the arrays behind them live as long as the case.
    slots_alive = {**slots, -1: cache}
    return AttentionCase(
        slots_alive, q, keys, values, at, scale, parts, out, expected, bound
    )  # fmt: skip


_CASES = (((0, 17), 2, 1, 8), ((300, 127, 128), 1, 5, 20))


def _attention(level: str, tag: str) -> str | None:
    for case in _CASES:
        c = attention_case(tag, *case)
        launch(attention.attention, level, tag, len(c.q), record_slots(c))
        wrong = _differs(_describe(case), c.out, c.expected, c.bound)
        if wrong:
            return wrong
    return None


def _attention_parts(level: str, tag: str) -> str | None:
    for case in _CASES:
        c = attention_case(tag, *case)
        launch(attention.attention_parts, level, tag, len(c.q), record_slots(c))
        found, (expected, _) = c.parts.copy(), _fill_parts(c)
        bound = np.maximum(c.bound.max() * 128, 1e-5) * np.ones_like(expected)
        # What no block wrote is zero on both sides; the last 14 words of a part are not used.
        used = found.shape[-1] - 14
        wrong = _differs(
            _describe(case), found[..., :used], expected[..., :used], bound[..., :used]
        )
        if wrong:
            return wrong
    return None


def _attention_merge(level: str, tag: str) -> str | None:
    for case in _CASES:
        c = attention_case("F32", *case)
        c.parts[:] = _fill_parts(c)[0]
        launch(attention.attention_merge, level, tag, len(c.q), record_slots(c))
        wrong = _differs(_describe(case), c.out, c.expected, c.bound)
        if wrong:
            return wrong
    return None
