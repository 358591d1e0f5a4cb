"""Every kernel against its NumPy formula, in milliseconds each: the check at a kernel's first use.

Data is small, seeded and of awkward shape: rows that fill no panel, a last block that stands
alone, positions across blocks of attention. Formulas are in float64 and know nothing of lanes,
tiles or threads; integer activations are built here anew, so nothing is compared with itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import byte_checks, expert_checks, isa, record, row_checks, state_checks
from trinity_kernels._jit import Kernel
from trinity_kernels.comparing import at as _at
from trinity_kernels.comparing import differs as _differs
from trinity_kernels.comparing import random_numbers as _rng
from trinity_kernels.comparing import run_kernel
from trinity_kernels.comparing import same as _same
from trinity_kernels.ops import (
    activation,
    attention,
    copy,
    gated_add,
    kv_layout,
    norm,
    rope,
    scale,
    softcap,
    squares,
)
from trinity_kernels.ops.matmul import activation_tiles, operands, quantize, variants
from trinity_kernels.ops.matmul.activations import FORMS, activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.panels import matmul_panels
from trinity_kernels.ops.matmul.rows import matmul
from trinity_kernels.ops.matmul.tile_layout import int8_tile_types
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.quants import TYPES, dequantize
from trinity_kernels.quants import quantize as quantize_weights

Array = NDArray[Any]
_NONE = ("none",)

# Each kernel, the tags it is compiled for, and whether only the tile level has it.
KERNELS: dict[str, tuple[Kernel, tuple[str, ...]]] = {
    "matmul": (matmul, tuple(sorted(variants.types_of(matmul)))),
    "quantize_ternary": (quantize.quantize_ternary, _NONE),
    "quantize_q8": (quantize.quantize_q8, _NONE),
    "quantize_q19": (quantize.quantize_q19, _NONE),
    "norm": (norm.norm, norm.NORMS),
    "rope_store": (rope.rope_store, kv_layout.KV_TYPES),
    "attention": (attention.attention, kv_layout.KV_TYPES),
    "attention_parts": (attention.attention_parts, kv_layout.KV_TYPES),
    "attention_merge": (attention.attention_merge, _NONE),
    "gated": (activation.gated, activation.ACTIVATIONS),
    "gated_add": (gated_add.gated_add, _NONE),
    "scale": (scale.scale, _NONE),
    "softcap": (softcap.softcap, _NONE),
    "copy": (copy.copy, _NONE),
    "add_squares": (squares.add_squares, _NONE),
    "tile_activations": (activation_tiles.tile_activations, _NONE),
    "tile_q8": (activation_tiles.tile_q8, _NONE),
    "tile_split": (activation_tiles.tile_split, _NONE),
    "matmul_tiles": (matmul_tiles, tuple(sorted(variants.types_of(matmul_tiles)))),
    "matmul_panels": (matmul_panels, tuple(sorted(variants.types_of(matmul_panels)))),
    **byte_checks.KERNELS,
    **expert_checks.KERNELS,
    **state_checks.KERNELS,
}


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found; ``error`` is empty where kernel and formula agree."""

    kernel: str
    level: str
    tag: str
    passed: bool
    error: str
    milliseconds: float


def kernels_of(level: str) -> list[tuple[str, str]]:
    """The (kernel, tag) pairs that a level has."""
    return [
        (name, tag)
        for name, (kernel, tags) in KERNELS.items()
        for tag in tags
        if _has(level, kernel)
    ]


def _has(level: str, kernel: Kernel) -> bool:
    if kernel is matmul_panels:
        return kernel in variants.kernels(level)
    return level == "amx" or not kernel.uses_tiles


def check(name: str, level: str, tag: str) -> str | None:
    """Run one kernel and compare; None where it agrees, else a sentence with what differed."""
    if name in _ROW_CHECKS:
        return _ROW_CHECKS[name](KERNELS[name][0], level, tag)
    return _CHECKS[name](level, tag)


def run(
    levels: list[str] | None = None, progress: Callable[[str], None] | None = None
) -> list[Result]:
    """Check every kernel of ``levels``, by default of all that this machine runs."""
    results = []
    wanted = levels or list(isa.available_levels())
    for level in wanted:
        isa.select_level(level)
        for name, tag in kernels_of(level):
            serves = KERNELS[name][0].level_of(level)
            if serves != level and serves in wanted:
                continue  # the same code
            if progress:
                progress(f"{level}: {name} {tag}")
            KERNELS[name][0].address(level, tag)
            started = time.perf_counter()
            error = check(name, level, tag)
            elapsed = 1e3 * (time.perf_counter() - started)
            results.append(Result(name, level, tag, error is None, error or "", elapsed))
    return results


def _run(name: str, level: str, tag: str, rows: int, values: dict[int, int]) -> None:
    run_kernel(KERNELS[name][0], level, tag, rows, values)


# -- activations in their forms (ops/matmul/activations.py) --------------------------------------


def q8_form(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Array]:
    """The bytes of x (M, K) as q8, and the values that they stand for."""
    m, k = x.shape
    blocks = x.reshape(m, -1, 32)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 1e-35)
    codes = np.clip(np.rint(blocks * inverse), -127, 127).astype(np.int8)
    scales = (largest / np.float32(127))[:, :, 0]
    padded, sixteens = -(-k // 64) * 64, -(-k // 512) * 16
    out = np.zeros((m, activation_bytes("q8", k)), np.uint8)
    out[:, :k] = codes.reshape(m, k).view(np.uint8)
    table = np.zeros((m, 2, sixteens), np.float32)
    table[:, 0, : k // 32] = scales
    table[:, 1, : k // 32] = scales * codes.sum(axis=2, dtype=np.int32).astype(np.float32)
    out[:, padded : padded + 8 * sixteens] = table.reshape(m, -1).view(np.uint8)
    sums = np.zeros((m, padded // 4), np.int32)
    sums[:, : k // 4] = -codes.reshape(m, -1, 4).sum(axis=2, dtype=np.int32)
    out[:, padded + 8 * sixteens :][:, :padded] = sums.view(np.uint8)
    halves = np.zeros((m, 2, 2 * sixteens), np.float32)
    of_16 = codes.reshape(m, -1, 16).sum(axis=2, dtype=np.int32)
    halves[:, 0, : k // 16] = np.repeat(scales, 2, axis=1) * of_16.astype(np.float32)
    halves[:, 1, : k // 16] = (-of_16).view(np.float32)
    out[:, 2 * padded + 8 * sixteens :] = halves.reshape(m, -1).view(np.uint8)
    return out, (codes * scales[:, :, None].astype(np.float64)).reshape(m, k)


def q19_form(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Array]:
    """The bytes of x (M, K) as q19, and the values that they stand for."""
    m, k = x.shape
    blocks, top = x.reshape(m, -1, 32), np.float32(1 << 18)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.divide(top, largest, out=np.zeros_like(largest), where=largest > 1e-35)
    codes = np.clip(np.rint(blocks * inverse), -top, top).astype(np.int32)
    scales, high = (largest / top)[:, :, 0], (codes + 0x8080) >> 16
    rest = codes - 65536 * high
    middle = (rest + 128) >> 8
    padded, table = -(-k // 64) * 64, -(-k // 512) * 64
    out = np.zeros((m, activation_bytes("q19", k)), np.uint8)
    for row, of_row in enumerate((high, middle, rest - 256 * middle)):
        bytes_ = of_row.reshape(m, k).astype(np.int8).view(np.uint8)
        out[:, row * padded : row * padded + k] = bytes_
    out[:, 3 * padded :][:, : k // 8] = np.ascontiguousarray(scales).view(np.uint8)
    sums = scales * codes.sum(axis=2, dtype=np.int32).astype(np.float32)
    out[:, 3 * padded + table :][:, : k // 8] = np.ascontiguousarray(sums).view(np.uint8)
    groups = -codes.reshape(m, -1, 4).sum(axis=2, dtype=np.int32)
    out[:, 3 * padded + 2 * table :][:, :k] = groups.view(np.uint8)
    halves = np.repeat(scales, 2, axis=1) * (
        codes.reshape(m, -1, 16).sum(axis=2, dtype=np.int32).astype(np.float32)
    )
    out[:, 4 * padded + 2 * table :][:, : k // 4] = halves.view(np.uint8)
    return out, (codes * scales[:, :, None].astype(np.float64)).reshape(m, k)


def ternary_form(x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Array]:
    """The bytes of x (M, K) as ternary activations, and the values that they stand for."""
    m, k = x.shape
    s = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(1e-5))
    codes = np.clip(np.rint(x * s[:, None]), -128, 127).astype(np.int8)
    padded = -(-k // 256) * 256
    whole = np.zeros((m, padded), np.int8)
    whole[:, :k] = codes
    permuted = whole.reshape(m, -1, 2, 4, 32).transpose(0, 1, 3, 2, 4).reshape(m, padded)
    sums = np.zeros((m, -(-padded // 4096) * 16), np.int32)
    sums[:, : padded // 256] = -whole.reshape(m, -1, 256).sum(axis=2, dtype=np.int32)
    out = np.zeros((m, activation_bytes("ternary", k)), np.uint8)
    out[:, :padded] = permuted.view(np.uint8)
    out[:, padded:-64] = sums.view(np.uint8)
    out[:, -64:-60] = s[:, None].view(np.uint8)
    total = codes.sum(axis=1, dtype=np.int32)[:, None]
    out[:, -60:-56] = total.view(np.uint8)
    return out, codes / s[:, None].astype(np.float64)


def _form(name: str, x: NDArray[np.float32]) -> tuple[Array, Array]:
    if name == "f32":
        return x, x.astype(np.float64)
    forms = {"q8": q8_form, "q19": q19_form, "ternary": ternary_form}
    return forms[name](x)


# -- the checks ----------------------------------------------------------------------------------


def _random_blocks(tag: str, n: int, k: int) -> NDArray[np.uint8]:
    """Any codes, and scales of about 1 / 16."""
    quant = TYPES[tag]
    data = _rng().integers(0, 256, quant.nbytes((n, k)), np.uint8)
    blocks = data.view(quant.block)
    for name in quant.block.names or ():
        scales = _rng().uniform(-1, 1, len(blocks)).astype(np.float32) / 8
        if quant.block[name].kind == "f":
            blocks[name] = scales
        elif name in ("d", "m"):  # bfloat16
            blocks[name] = scales.view(np.uint32) >> 16
        elif name == "e":  # of a power of 2
            blocks[name] = _rng().integers(118, 125, len(blocks))
    if tag == "IQ1_M":  # its scale is in four parts: not infinite
        blocks["scales"][:, 3] &= 0xBFFF
    return data


def _weights(tag: str, n: int, k: int) -> tuple[NDArray[np.uint8], Array, int, float]:
    values = _rng().standard_normal((n, k)).astype(np.float32)
    if TYPES[tag].ternary:
        values = (_rng().integers(-1, 2, (n, k)) * np.float32(0.75)).astype(np.float32)
    if FORMS[tag] in ("q8", "q19") and not TYPES[tag].ternary:
        data = _random_blocks(tag, n, k)
    else:
        data = np.ascontiguousarray(quantize_weights(tag, values))
    scale, stride = 1.0, data.nbytes // n
    if TYPES[tag].tensor_scale:
        stride = k // 4
        scale = float(data[n * stride : n * stride + 4].view(np.float32)[0])
    return data, dequantize(tag, data, (n, k)).astype(np.float64), stride, scale


def _matmul_values(tag: str, tokens: int) -> tuple[dict[int, int], Array, Array, list[Array]]:
    """A product with bias, added onto ones: its record, expected values and bounds."""
    op, n = operands, 37
    k = {1: 77, 32: 32 * 19, 128: 384}.get(TYPES[tag].block_size, 3 * TYPES[tag].block_size)
    data, w, stride, scale = _weights(tag, n, k)
    x = _rng().standard_normal((tokens, k)).astype(np.float32)
    bytes_, values = _form(FORMS[tag], x)
    out, bias = np.ones((tokens, n), np.float32), _rng().standard_normal(n).astype(np.float32)
    slots = {
        op.X: _at(bytes_), op.X_STRIDE: bytes_.strides[0], op.W: _at(data), op.W_STRIDE: stride,
        op.N: n, op.K: k, op.OUT: _at(out), op.OUT_STRIDE: out.strides[0],
        op.SCALE: record.float_bits(scale), op.BIAS: _at(bias), op.ADD: 1,
    }  # fmt: skip
    expected = values @ w.T + bias + 1
    return slots, expected, np.abs(values) @ np.abs(w).T, [out, x, bytes_, data, bias]


def _check_matmul(level: str, tag: str) -> str | None:
    slots, expected, magnitude, keep = _matmul_values(tag, 2)
    _run("matmul", level, tag, 2, slots)
    return _differs(keep[0], expected, 1e-5 + 2e-6 * magnitude)


def _check_matmul_tiles(level: str, tag: str) -> str | None:
    return _check_tiles(level, tag, 21) or _check_tiles(level, tag, 11)


def _check_tiles(level: str, tag: str, tokens: int) -> str | None:
    op = operands
    slots, expected, magnitude, keep = _matmul_values(tag, tokens)
    out, x, bytes_ = keep[:3]
    form, k = FORMS[tag], x.shape[1]
    tiles = np.zeros(tile_bytes(form, k, tokens) + 64, np.uint8)
    scratch = np.zeros(variants.scratch_bytes(matmul_tiles, tag, k) + 64, np.uint8)
    slots |= {op.TILES: -(-_at(tiles) // 64) * 64, op.SCRATCH: -(-_at(scratch) // 64) * 64}
    source = bytes_ if form == "ternary" else x
    prepared = slots | {
        op.X: _at(source),
        op.X_STRIDE: source.strides[0],
        op.CODES: _at(bytes_),
        op.CODES_STRIDE: bytes_.strides[0],
        op.FLOATS: int(tag not in int8_tile_types()),
    }
    _run(activation_tiles.tiles_of(form).name, level, "none", tokens, prepared)
    _run("matmul_tiles", level, tag, tokens, slots)
    # bfloat16 rounds each factor by 2**-9 at most, split in two by 2**-17.
    relative = {"ternary": 2e-6, "q8": 2**-7, "q19": 2**-15, "f32": 2**-15}[form]
    if tag in int8_tile_types() and tokens <= op.TILE_ROWS:
        relative = 4e-6
    return _differs(out, expected, 1e-4 + relative * magnitude)


def _check_matmul_panels(level: str, tag: str) -> str | None:
    slots, expected, magnitude, keep = _matmul_values(tag, 11)
    scratch_bytes = variants.scratch_bytes(matmul_panels, tag, keep[1].shape[1])
    scratch = np.zeros(scratch_bytes + 64, np.uint8)
    slots |= {operands.SCRATCH: -(-_at(scratch) // 64) * 64}
    _run("matmul_panels", level, tag, 11, slots)
    return _differs(keep[0], expected, 1e-5 + 2e-6 * magnitude)


def _check_quantize(name: str, form: str) -> Callable[[str, str], str | None]:
    def checked(level: str, tag: str) -> str | None:
        op, k = quantize, 384 if form == "ternary" else 32 * 19
        x = _rng().standard_normal((3, k)).astype(np.float32)
        x[1] *= 1e4
        x[2, : k // 2] = 0
        expected, _ = _form(form, x)
        out = np.full_like(expected, 0)
        values = {
            op.X: _at(x), op.X_STRIDE: x.strides[0], op.OUT: _at(out),
            op.OUT_STRIDE: out.strides[0], op.K: k,
        }  # fmt: skip
        _run(name, level, tag, 3, values)
        return _same(out, expected)

    return checked


_HEADS, _KV_HEADS, _DIM, _VALUE_DIM, _PAGES = 10, 1, 24, 40, 3
_POSITIONS = _PAGES * kv_layout.PAGE


def _cache(kv_type: str) -> tuple[Array, Array, Array]:
    """Filled pages of one layer: their memory, keys and values (positions, KV heads, dim)."""
    keys, values = (
        _rng().standard_normal((_POSITIONS, _KV_HEADS, dim)).astype(np.float32)
        for dim in (_DIM, _VALUE_DIM)
    )
    dtype = np.float16 if kv_type == "F16" else np.float32
    size = kv_layout.layer_bytes(kv_type, _KV_HEADS, _DIM, _VALUE_DIM)
    memory = np.zeros((_PAGES, size // np.dtype(dtype).itemsize), dtype)
    key_part, value_part = _split(memory)
    key_part[:] = keys.reshape(_PAGES, -1, 16, _KV_HEADS, _DIM).transpose(0, 3, 1, 4, 2)
    by_page = values.reshape(_PAGES, -1, _KV_HEADS, _VALUE_DIM)
    value_part[..., :_VALUE_DIM] = by_page.transpose(0, 2, 1, 3)
    return memory, keys.astype(dtype).astype(np.float64), values.astype(dtype).astype(np.float64)


def _split(memory: Array) -> tuple[Array, Array]:
    """Views: keys [page][head][tile][dim][16] and values [page][head][position][padded]."""
    count = _KV_HEADS * kv_layout.PAGE * _DIM
    keys = memory[:, :count].reshape(_PAGES, _KV_HEADS, -1, _DIM, 16)
    return keys, memory[:, count:].reshape(_PAGES, _KV_HEADS, kv_layout.PAGE, -1)


def _table(memory: Array) -> Array:
    """The addresses of the pages."""
    return np.array([_at(page) for page in memory], np.int64)


def _attention_case(
    kv_type: str, both_ways: bool
) -> tuple[dict[int, int], Array, Array, list[Array]]:
    op = attention
    memory, keys, values = _cache(kv_type)
    positions = np.array([0, 127, 128, 300], np.int32)
    firsts = np.array([0, 100, 128, 141], np.int32) if both_ways else np.zeros(4, np.int32)
    q = _rng().standard_normal((4, _HEADS, _DIM)).astype(np.float32)
    out = np.zeros((4, _HEADS, _VALUE_DIM), np.float32)
    table = _table(memory)
    caches = np.full(4, _at(table), np.int64)
    part = op.part_bytes(_VALUE_DIM)
    blocks = positions // op.BLOCK + 1 - firsts // op.BLOCK
    parts = np.zeros((blocks.sum(), _HEADS, part // 4), np.float32)
    scratch = np.zeros(op.scratch_bytes(_VALUE_DIM) + 64, np.uint8)
    slots = {
        op.Q: _at(q), op.Q_STRIDE: q.strides[0], op.POSITIONS: _at(positions),
        op.CACHES: _at(caches), op.LAYER_OFFSET: 0, op.HEAD_DIM: _DIM, op.HEADS: _HEADS,
        op.KV_HEADS: _KV_HEADS, op.VALUE_DIM: _VALUE_DIM, op.OUT: _at(out),
        op.OUT_STRIDE: out.strides[0], op.SCALE: record.float_bits(_DIM**-0.5),
        op.SCRATCH: -(-_at(scratch) // 64) * 64, op.PARTS: _at(parts),
        op.FIRSTS: _at(firsts) if both_ways else 0,
    }  # fmt: skip
    expected, expected_parts = np.zeros(out.shape), np.zeros(parts.shape)
    for t, (first, position) in enumerate(zip(firsts, positions, strict=True)):
        seen = slice(first, position + 1)
        scores = np.einsum("hd,pd->hp", q[t], keys[seen, 0]) * _DIM**-0.5
        for b, block in enumerate(range(first // op.BLOCK, position // op.BLOCK + 1)):
            start = max(block * op.BLOCK, first)
            some = scores[:, start - first : (block + 1) * op.BLOCK - first]
            m = some.max(axis=1)
            p = np.exp(some - m[:, None])
            at = blocks[:t].sum() + b
            expected_parts[at, :, :_VALUE_DIM] = p @ values[start : start + some.shape[1], 0]
            padded = kv_layout.padded_dim(_VALUE_DIM)
            expected_parts[at, :, padded] = m
            expected_parts[at, :, padded + 1] = p.sum(axis=1)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected[t] = p @ values[seen, 0] / p.sum(axis=1, keepdims=True)
    keep = [q, positions, firsts, memory, table, caches, scratch]
    return slots, expected, expected_parts, [out, parts, *keep]


def _check_attention(level: str, tag: str) -> str | None:
    for both_ways in (False, True):
        slots, expected, _, keep = _attention_case(tag, both_ways)
        _run("attention", level, tag, 4, slots)
        error = _differs(keep[0], expected, 1e-5)
        if error:
            return error
    return None


def _check_attention_parts(level: str, tag: str) -> str | None:
    for both_ways in (False, True):
        slots, _, expected, keep = _attention_case(tag, both_ways)
        _run("attention_parts", level, tag, 4, slots)
        error = _differs(keep[1], expected, 1e-4)
        if error:
            return error
    return None


def _check_attention_merge(level: str, tag: str) -> str | None:
    for both_ways in (False, True):
        slots, expected, parts, keep = _attention_case("F32", both_ways)
        keep[1][:] = parts
        _run("attention_merge", level, tag, 4, slots)
        error = _differs(keep[0], expected, 1e-5)
        if error:
            return error
    return None


def _check_rope_store(level: str, tag: str) -> str | None:
    op, dim, rotated, start = rope, _DIM, 16, 5
    positions = np.array([5, 299], np.int32)
    turns = _rng().standard_normal((_POSITIONS, rotated)).astype(np.float32)
    temperatures = _rng().uniform(0.5, 2, _POSITIONS).astype(np.float32)
    for interleaved in (0, 1):
        memory, keys, values = _cache(tag)
        table = _table(memory)
        caches = np.full(2, _at(table), np.int64)
        q = _rng().standard_normal((2, _HEADS, dim)).astype(np.float32)
        k = np.ascontiguousarray(q[:, :_KV_HEADS] + np.float32(1))
        v = _rng().standard_normal((2, _KV_HEADS, _VALUE_DIM)).astype(np.float32)
        expected_q, expected_k = (x.astype(np.float64) for x in (q, k))
        for x in (expected_q, expected_k):
            x[..., start:] = _rotated(x[..., start:], turns[positions], interleaved)
        expected_q *= temperatures[positions][:, None, None]
        slots = {
            op.Q: _at(q), op.Q_STRIDE: q.strides[0], op.KEY: _at(k), op.VALUE: _at(v),
            op.KEY_STRIDE: k.strides[0], op.VALUE_STRIDE: v.strides[0],
            op.POSITIONS: _at(positions), op.CACHES: _at(caches), op.LAYER_OFFSET: 0,
            op.TABLE: _at(turns), op.TEMPERATURES: _at(temperatures), op.HEAD_DIM: dim,
            op.VALUE_DIM: _VALUE_DIM, op.FIRST: start, op.ROPE_DIM: rotated,
            op.HEADS: _HEADS, op.KV_HEADS: _KV_HEADS, op.INTERLEAVED: interleaved,
        }  # fmt: skip
        _run("rope_store", level, tag, 2, slots)
        keys[positions], values[positions] = expected_k, v
        key_part, value_part = _split(memory)
        found_keys = key_part.transpose(0, 2, 4, 1, 3).reshape(_POSITIONS, _KV_HEADS, dim)
        found_values = value_part.transpose(0, 2, 1, 3)[..., :_VALUE_DIM].reshape(values.shape)
        for found, expected in (
            (q, expected_q),
            (found_keys, keys),
            (found_values, values),
        ):
            error = _differs(found, expected, 1e-5 + 1e-3 * np.abs(expected) * (tag == "F16"))
            if error:
                return error
    return None


def _rotated(x: Array, table: Array, interleaved: int) -> Array:
    half = table.shape[1] // 2
    cos, sin = table[:, None, :half], table[:, None, half:]
    out = x.copy()
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def _check_tile_activations(level: str, tag: str) -> str | None:
    return _check_matmul_tiles(level, "I2_S")


def _check_tile_q8(level: str, tag: str) -> str | None:
    return _check_matmul_tiles(level, "Q8_0")


def _check_tile_split(level: str, tag: str) -> str | None:
    return _check_matmul_tiles(level, "F16")


_ROW_CHECKS: dict[str, Callable[[Kernel, str, str], str | None]] = {
    "norm": row_checks.check_norm,
    "gated": row_checks.check_gated,
    "gated_add": row_checks.check_gated_add,
    "scale": row_checks.check_scale,
    "softcap": row_checks.check_softcap,
    "copy": row_checks.check_copy,
    "add_squares": row_checks.check_add_squares,
    **byte_checks.CHECKS,
    **expert_checks.CHECKS,
    **state_checks.CHECKS,
}
_CHECKS: dict[str, Callable[[str, str], str | None]] = {
    "matmul": _check_matmul,
    "quantize_ternary": _check_quantize("quantize_ternary", "ternary"),
    "quantize_q8": _check_quantize("quantize_q8", "q8"),
    "quantize_q19": _check_quantize("quantize_q19", "q19"),
    "rope_store": _check_rope_store,
    "attention": _check_attention,
    "attention_parts": _check_attention_parts,
    "attention_merge": _check_attention_merge,
    "tile_activations": _check_tile_activations,
    "tile_q8": _check_tile_q8,
    "tile_split": _check_tile_split,
    "matmul_tiles": _check_matmul_tiles,
    "matmul_panels": _check_matmul_panels,
}
