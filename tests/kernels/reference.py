"""The kernels' formulas in NumPy, and the layouts that kernels read and write.

Sums are float64. What a kernel rounds step by step is rounded in the same steps. The self-test has
the forms of activations (trinity_kernels/selftest/activation_forms.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops.matmul.activations import FORMS, q8_groups, unpacked_bytes
from trinity_kernels.ops.matmul.operands import TILE_ROWS
from trinity_kernels.quants import TYPES
from trinity_kernels.selftest.activation_forms import (
    pack_q8,
    pack_ternary,
    q8_codes,
    ternary_codes,
)

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
    """Whether a field of a block is a floating-point number; NumPy lacks bfloat16."""
    kind = TYPES[quant].block[field]
    return kind.kind == "f" or (quant.endswith("BF16") and kind == np.dtype("<u2"))


def limit_scales(quant: str, blocks: Blocks) -> None:
    """Make random bytes finite: IQ1_M's scale in four parts, codes of FP8."""
    if quant == "IQ1_M":
        blocks["scales"][..., 3] &= 0xBFFF
    if quant == "FP8":
        blocks["qs"][blocks["qs"] & 0x7F == 0x7F] &= 0xFE


def weight_values(quant: str, rows: Bytes) -> tuple[Doubles, Doubles]:
    """Return the values (N, K), and the sums of magnitudes that they are computed from."""
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
    """Return the maximum number of float32 roundings of a product of K terms in rows.py."""
    block = TYPES[quant].block_size
    if quant == "I2_S":
        return 5
    if block == 32:
        return -(-k // 64) + -(-k // 512) + 16
    if FORMS[quant] == "q8":
        return -(-k // 64) + 16
    return k // max(block, 16) + 12


def tile_roundings(k: int) -> int:
    """Return the same for int8 tiles: a product for each group of 16, or 32 and a minimum."""
    return k // 16 + 8


def round_bf16(x: Floats) -> Floats:
    """Round to bfloat16, half to even, and return float32."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32)


def bf16_bytes(x: Floats) -> Bytes:
    """Encode float32 values that are bfloat16 numbers in 2 bytes each."""
    return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def pack_tiles(form: str, x: Floats) -> Bytes:
    """Pack activations (M, K) as tiles [16 tokens][64 bytes of a row], words transposed."""
    m, k = x.shape
    if form == "ternary":
        lines = pack_ternary(*ternary_codes(x))[:, : unpacked_bytes(form, k)]
    elif form == "q8" and m <= TILE_ROWS:
        # Codes, scales and their sums.
        lines = pack_q8(*q8_codes(x))[:, : q8_groups(k)]
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
    """Compute x / sqrt(mean(x^2) + eps) * weight over the last axis; "layer" subtracts the mean."""
    wide = x.astype(np.float64)
    if kind == "layer":
        wide = wide - wide.mean(axis=-1, keepdims=True)
    scale: Doubles = 1 / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps)
    return wide * scale * weight


def rotate(x: Floats, table: Floats, interleaved: bool) -> Floats:
    """Rotate heads (..., D) by a row of cosines and sines; each step is rounded to float32."""
    half = len(table) // 2
    cos, sin = table[:half], table[half:]
    out = x.copy()
    a = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    b = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out


def attention_parts(
    q: Floats, keys: AnyFloats, values: AnyFloats, scale: float
) -> tuple[Doubles, Doubles, Doubles]:
    """Return weighted sums (H, D), m and sums (H,) of q (H, D), k and v (KV, P, D)."""
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
    """Compute softmax(q . k * scale) . v with the shapes of attention_parts; ``sinks`` (H,)."""
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
    """Apply an activation: "none", "sigmoid", SiLU, two GELUs, squared ReLU, gpt-oss's gate."""
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
    if name == "gelu_quick":
        inner = 1.702 * wide
    if name.startswith("swiglu"):
        wide = np.minimum(wide, 7)
        inner = 1.702 * wide if name == "swiglu_oai" else wide
    with np.errstate(over="ignore"):
        result: Doubles = wide / (1 + np.exp(-inner))
    return result


def factors(name: str, x: Floats) -> Doubles:
    """Return what the values of up multiply an activation by."""
    wide = x.astype(np.float64)
    limited: Doubles = np.clip(wide, -7, 7)
    return {"swiglu_oai": limited + 1, "swiglu_7": limited}.get(name, wide)
