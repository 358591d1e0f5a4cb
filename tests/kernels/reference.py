"""The kernels' formulas in NumPy, and the layouts that kernels read and write.

Sums are float64; what a kernel promises to round step by step, such as the
codes of activations, is rounded in the same steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops.matmul.activations import FORMS, activation_bytes, unpacked_bytes
from trinity_kernels.ops.matmul.operands import TILE_ROWS
from trinity_kernels.quants import TYPES

Bytes = NDArray[np.uint8]
Blocks = NDArray[np.void]
Codes = NDArray[np.int8]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
AnyFloats = NDArray[Any]  # float16 or float32


# Types whose minimum, or the offset of whose codes, is multiplied in floating point.
FLOAT_OFFSETS = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q4_K", "Q5_K"}
FLOAT_OFFSETS |= {name for name in TYPES if name.startswith("AFFINE")}


def random_weights(rng: np.random.Generator, quant: str, n: int, k: int) -> Bytes:
    """N rows of K weights in random bytes, so that every code occurs; (N, bytes of a row).

    Scales and minima are small numbers of either sign. No tensor's scale follows the codes.
    """
    row = k // TYPES[quant].block_size
    blocks = rng.integers(0, 256, (n, row * TYPES[quant].type_size), np.uint8)
    fields = blocks.view(TYPES[quant].block)
    for name in TYPES[quant].block.names or ():
        values = rng.normal(size=fields.shape).astype(np.float32)
        if fields[name].dtype.kind == "f":
            fields[name] = values / 8
        elif name == "e":  # of a power of 2
            fields[name] = rng.integers(118, 128, fields.shape)
        elif is_number(quant, name):
            fields[name] = (values if quant == "BF16" else values / 8).view(np.uint32) >> 16
    limit_scales(quant, fields)
    return blocks


def is_number(quant: str, field: str) -> bool:
    """Whether a field of a block is a floating-point number; bfloat16 is one that NumPy lacks."""
    kind = TYPES[quant].block[field]
    return kind.kind == "f" or (quant.endswith("BF16") and kind == np.dtype("<u2"))


def limit_scales(quant: str, blocks: Blocks) -> None:
    """Make finite what random bytes may not be: IQ1_M's scale in four parts, codes of FP8."""
    if quant == "IQ1_M":
        blocks["scales"][..., 3] &= 0xBFFF
    if quant == "FP8":
        blocks["qs"][blocks["qs"] & 0x7F == 0x7F] &= 0xFE


def weight_values(quant: str, rows: Bytes) -> tuple[Doubles, Doubles]:
    """The values (N, K), and for each the sum of the magnitudes that it is computed from."""
    kind = TYPES[quant]
    blocks = rows.reshape(-1).view(kind.block)
    values = kind.decode_blocks(blocks).astype(np.float64)
    magnitudes = np.abs(values)
    if quant == "MXFP4":  # whose doubled values stand 16 higher, 4 / 3 of the largest
        top = blocks.copy()
        top["qs"] = 0x77
        magnitudes = magnitudes + 2 * (4 / 3) * np.abs(kind.decode_blocks(top).astype(np.float64))
    if quant in FLOAT_OFFSETS:
        # What unsigned codes stand above is multiplied apart: what codes of 0 stand for.
        zeros = blocks.copy()
        for name in {"qs", "qh"} & set(kind.block.names or ()):
            zeros[name] = 0
        magnitudes = magnitudes + 2 * np.abs(kind.decode_blocks(zeros).astype(np.float64))
    return values.reshape(len(rows), -1), magnitudes.reshape(len(rows), -1)


def roundings(quant: str, k: int) -> int:
    """How many roundings to float32, at most, a product of K terms passes in ops/matmul/rows.py."""
    block = TYPES[quant].block_size
    if quant == "I2_S":
        return 5
    if block == 32:
        return -(-k // 64) + -(-k // 512) + 16
    if FORMS[quant] == "q8":
        return -(-k // 64) + 16
    return k // max(block, 16) + 12


def tile_roundings(k: int) -> int:
    """As ``roundings`` on int8 tiles: a product for each group of 16, or 32 and a minimum."""
    return k // 16 + 8


def q8_codes(x: Floats) -> tuple[Codes, Floats]:
    """Activations (M, K) as codes (M, K) and scales (M, K / 32); x = scale * code."""
    blocks = x.reshape(len(x), -1, 32)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    largest[largest <= np.float32(1e-35)] = 0
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
    codes = np.clip(np.rint(blocks * inverse), -127, 127).astype(np.int8)
    return codes.reshape(x.shape), (largest / np.float32(127))[:, :, 0]


def pack_q8(codes: Codes, scales: Floats) -> Bytes:
    """The q8 form that ops/matmul/activations.py draws, (M, activation_bytes)."""
    m, k = codes.shape
    padded, table = -(-k // 64) * 64, -(-k // 512) * 64
    out = np.zeros((m, activation_bytes("q8", k)), np.uint8)
    out[:, :k] = codes.view(np.uint8)
    sums = codes.reshape(m, -1, 32).sum(axis=2, dtype=np.int32).astype(np.float32)
    out[:, padded:][:, : k // 8] = np.ascontiguousarray(scales).view(np.uint8)
    out[:, padded + table :][:, : k // 8] = np.ascontiguousarray(scales * sums).view(np.uint8)
    groups = -codes.reshape(m, -1, 4).sum(axis=2, dtype=np.int32)
    out[:, padded + 2 * table :][:, :k] = groups.view(np.uint8)
    sixteens = codes.reshape(m, -1, 16).sum(axis=2, dtype=np.int32)
    halves = np.repeat(scales, 2, axis=1).astype(np.float32) * sixteens.astype(np.float32)
    out[:, 2 * padded + 2 * table :][:, : k // 4] = halves.view(np.uint8)
    out[:, 2 * padded + 4 * table :][:, : k // 4] = (-sixteens).view(np.uint8)
    return out


def pack_q19(x: Floats) -> tuple[Bytes, Doubles]:
    """The q19 form of ``x`` (M, K), (M, activation_bytes), and the values that it stands for."""
    (m, k), top = x.shape, np.float32(1 << 18)
    blocks = x.reshape(m, -1, 32)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    largest[largest <= np.float32(1e-35)] = 0
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(largest > 0, top / largest, np.float32(0))
    codes = np.clip(np.rint(blocks * inverse), -top, top).astype(np.int32)
    scales = (largest / top)[:, :, 0]
    high = (codes + 0x8080) >> 16
    rest = codes - 65536 * high
    middle = (rest + 128) >> 8
    padded, table = -(-k // 64) * 64, -(-k // 512) * 64
    out = np.zeros((m, activation_bytes("q19", k)), np.uint8)
    for row, of_row in enumerate((high, middle, rest - 256 * middle)):
        bytes_ = of_row.reshape(m, k).astype(np.int8).view(np.uint8)
        out[:, row * padded : row * padded + k] = bytes_
    out[:, 3 * padded :][:, : k // 8] = np.ascontiguousarray(scales).view(np.uint8)
    sums = scales * codes.sum(axis=2).astype(np.float32)
    out[:, 3 * padded + table :][:, : k // 8] = np.ascontiguousarray(sums).view(np.uint8)
    groups = -codes.reshape(m, -1, 4).sum(axis=2, dtype=np.int32)
    out[:, 3 * padded + 2 * table :][:, :k] = groups.view(np.uint8)
    sixteens = codes.reshape(m, -1, 16).sum(axis=2, dtype=np.int32).astype(np.float32)
    halves = np.repeat(scales, 2, axis=1).astype(np.float32) * sixteens
    out[:, 4 * padded + 2 * table :][:, : k // 4] = halves.view(np.uint8)
    return out, codes.reshape(m, k) * np.repeat(scales, 32, axis=1).astype(np.float64)


def ternary_codes(x: Floats) -> tuple[Codes, Floats]:
    """Activations (M, K) as codes (M, K) and one s a row (M,); x = code / s."""
    s = np.float32(127) / np.maximum(np.abs(x).max(axis=1), np.float32(1e-5))
    codes = np.clip(np.rint(x * s[:, None]), -128, 127).astype(np.int8)
    return codes, s.astype(np.float32)


def pack_ternary(codes: Codes, s: Floats) -> Bytes:
    """The ternary form that ops/matmul/activations.py draws, (M, activation_bytes)."""
    m, k = codes.shape
    padded = -(-k // 256) * 256
    out = np.zeros((m, activation_bytes("ternary", k)), np.uint8)
    whole = np.zeros((m, padded), np.int8)
    whole[:, :k] = codes
    # Element 128 h + 32 g + i to place 64 g + 32 h + i.
    places = whole.reshape(m, -1, 2, 4, 32).transpose(0, 1, 3, 2, 4).reshape(m, padded)
    out[:, :padded] = places.view(np.uint8)
    sums = np.zeros((m, -(-padded // 4096) * 16), np.int32)
    sums[:, : padded // 256] = -whole.reshape(m, -1, 256).sum(axis=2, dtype=np.int32)
    out[:, padded:-64] = sums.view(np.uint8)
    tail = out[:, -64:]
    tail[:, :4] = s[:, None].view(np.uint8)
    tail[:, 4:8] = codes.sum(axis=1, dtype=np.int32)[:, None].view(np.uint8)
    return out


def activations(form: str, x: Floats) -> tuple[Bytes, Doubles]:
    """The bytes that a dot product takes for ``x`` (M, K), and the values that they stand for."""
    if form == "q8":
        codes, scales = q8_codes(x)
        return pack_q8(codes, scales), (codes.astype(np.float64) * np.repeat(scales, 32, axis=1))
    if form == "q19":
        return pack_q19(x)
    if form == "ternary":
        codes, s = ternary_codes(x)
        return pack_ternary(codes, s), codes / s.astype(np.float64)[:, None]
    rows = np.zeros((len(x), activation_bytes(form, x.shape[1])), np.uint8)
    rows[:, : 4 * x.shape[1]] = np.ascontiguousarray(x).view(np.uint8)
    return rows, x.astype(np.float64)


def round_bf16(x: Floats) -> Floats:
    """The nearest bfloat16, half to even, as float32."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32)


def bf16_bytes(x: Floats) -> Bytes:
    """Float32 that are bfloat16 already, in 2 bytes each."""
    return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def pack_tiles(form: str, x: Floats) -> Bytes:
    """Activations (M, K) as tiles [16 tokens][64 bytes of a row], words transposed."""
    m, k = x.shape
    if form == "ternary":
        lines = pack_ternary(*ternary_codes(x))[:, : unpacked_bytes(form, k)]
    elif form == "q8" and m <= TILE_ROWS:
        # The form itself but for its negated sums.
        lines = pack_q8(*q8_codes(x))[:, : -(-k // 64) * 64 + -(-k // 512) * 128]
    elif form == "q8":
        lines = bf16_bytes(round_bf16(x))
    else:
        padded = np.zeros((m, -(-k // 32) * 32), np.float32)
        padded[:, :k] = x
        parts = [
            bf16_bytes(round_bf16(padded)),
            bf16_bytes(round_bf16(padded - round_bf16(padded))),
        ]
        lines = np.stack([part.reshape(m, -1, 64) for part in parts], axis=2).reshape(m, -1)
    groups = 1 if form == "q8" and m <= TILE_ROWS else -(-m // 32) * 2
    whole = np.zeros((16 * groups, lines.shape[1]), np.uint8)
    whole[:m] = lines
    words = whole.reshape(len(whole) // 16, 16, -1, 16, 4)
    return np.ascontiguousarray(words.transpose(0, 2, 3, 1, 4)).reshape(-1)


def norm(kind: str, x: Floats, weight: Floats, eps: float) -> Doubles:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis; "layer": x without its mean."""
    wide = x.astype(np.float64)
    if kind == "layer":
        wide = wide - wide.mean(axis=-1, keepdims=True)
    scale: Doubles = 1 / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps)
    return wide * scale * weight


def rotate(x: Floats, table: Floats, interleaved: bool) -> Floats:
    """Heads (..., D) turned by a row of cosines and sines, every step rounded to float32."""
    half = len(table) // 2
    cos, sin = table[:half], table[half:]
    out = x.copy()
    a = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    b = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out


def page_views(
    pages: Bytes, kv_type: str, kv_heads: int, head_dim: int, value_dim: int
) -> tuple[AnyFloats, AnyFloats]:
    """A layer's part of pages (P, bytes) as keys [page][head][tile][dim][16] and values

    [page][head][position][padded].
    """
    elements: AnyFloats = pages.view(np.float16 if kv_type == "F16" else np.float32)
    split = kv_heads * 128 * head_dim
    padded = -(-value_dim // 32) * 32
    keys = elements[:, :split].reshape(len(pages), kv_heads, 8, head_dim, 16)
    return keys, elements[:, split:].reshape(len(pages), kv_heads, 128, padded)


def keys_by_position(keys: AnyFloats) -> AnyFloats:
    """Keys as kept, to [head][position][dim]."""
    pages, heads, tiles, head_dim, lanes = keys.shape
    return keys.transpose(1, 0, 2, 4, 3).reshape(heads, pages * tiles * lanes, head_dim)


def keys_as_kept(keys: AnyFloats) -> AnyFloats:
    """Keys [head][position][dim], whole pages of them, to [page][head][tile][dim][16]."""
    heads, _, head_dim = keys.shape
    return keys.reshape(heads, -1, 8, 16, head_dim).transpose(1, 0, 2, 4, 3)


def attention_parts(
    q: Floats, keys: AnyFloats, values: AnyFloats, scale: float
) -> tuple[Doubles, Doubles, Doubles]:
    """Of queries (H, D) over keys and values (KV, P, D): weighted sums (H, D), m, sums (H,)."""
    group = len(q) // len(keys)
    wide_keys = np.repeat(keys.astype(np.float64), group, axis=0)
    wide_values = np.repeat(values.astype(np.float64), group, axis=0)
    scores = np.einsum("hd,hpd->hp", q.astype(np.float64), wide_keys) * scale
    m = scores.max(axis=1)
    p = np.exp(scores - m[:, None])
    return np.einsum("hp,hpd->hd", p, wide_values), m, p.sum(axis=1)


def attention(
    q: Floats, keys: AnyFloats, values: AnyFloats, scale: float, softcap: float = 0.0,
    sinks: Floats | None = None,
) -> Doubles:  # fmt: skip
    """softmax(q . k * scale) . v, shapes as for attention_parts; ``sinks`` (H,)."""
    group = len(q) // len(keys)
    wide_keys = np.repeat(keys.astype(np.float64), group, axis=0)
    wide_values = np.repeat(values.astype(np.float64), group, axis=0)
    scores = np.einsum("hd,hpd->hp", q.astype(np.float64), wide_keys) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    p = np.exp(scores - scores.max(axis=1)[:, None])
    weight = p.sum(axis=1)
    if sinks is not None:
        weight = weight + np.exp(sinks.astype(np.float64) - scores.max(axis=1))
    result: Doubles = np.einsum("hp,hpd->hd", p, wide_values) / weight[:, None]
    return result


def activate(name: str, x: Floats) -> Doubles:
    """Any activation: "none", "sigmoid", SiLU, two GELUs, squared ReLU, gpt-oss's SwiGLU's gate."""
    wide = x.astype(np.float64)
    if name == "none":
        return wide
    if name == "sigmoid":
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-wide))
    if name == "relu2":
        return np.square(np.maximum(wide, 0))
    if name == "gelu_erf":
        exact: Doubles = wide * np.vectorize(math.erfc, otypes=[float])(-wide / math.sqrt(2)) / 2
        return exact
    inner = wide
    if name == "gelu":
        inner = 2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    if name == "swiglu_oai":
        wide = np.minimum(wide, 7)
        inner = 1.702 * wide
    with np.errstate(over="ignore"):
        result: Doubles = wide / (1 + np.exp(-inner))
    return result


def factors(name: str, x: Floats) -> Doubles:
    """What the values of up multiply an activation by."""
    wide = x.astype(np.float64)
    return np.clip(wide, -7, 7) + 1 if name == "swiglu_oai" else wide
