"""Random weights in each quantized layout, and the values that the layout's definition gives.

The writers follow the layouts' descriptions element by element and share no code with the readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.formats.raw_safetensors import bfloat16

Floats = NDArray[np.float32]
Array = NDArray[Any]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e4m3(code: int) -> float:
    """Decode E4M3 (OCP 8-bit Floating Point Specification)."""
    mantissa, exponent = code & 7, code >> 3 & 15
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if code > 127 else size


E4M3 = np.array([e4m3(code) for code in range(256)], np.float32)


@dataclass
class Weight:
    """A module's tensors by the ends of their names, dtypes that NumPy lacks, and the values."""

    tensors: dict[str, Array]
    values: Floats
    dtypes: dict[str, str] = field(default_factory=dict)


def stored(scales: Floats, dtype: str) -> tuple[Array, Floats]:
    """Return scales as a tensor of a dtype, and their rounded values."""
    if dtype == "F16":
        half = scales.astype(np.float16)
        return half, half.astype(np.float32)
    if dtype == "BF16":
        cut = (scales.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        return bfloat16(cut), cut
    return scales, scales


def positive(rng: np.random.Generator, *shape: int, bits: int = 4) -> Floats:
    """Draw scales that give weights of usual size from integers of ``bits``."""
    return (rng.uniform(0.001, 0.02, shape) * 2.0 ** (4 - bits)).astype(np.float32)


def packed(codes: Array, bits: int) -> Array:
    """Pack codes along the last axis into I32 words, lowest bits first, padded with zeros."""
    each = 32 // bits
    words = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // each)), np.uint32)
    for i in range(codes.shape[-1]):
        words[..., i // each] |= codes[..., i].astype(np.uint32) << np.uint32(i % each * bits)
    return words.view(np.int32)


def codes_of(rng: np.random.Generator, bits: int, *shape: int) -> Array:
    return rng.integers(0, 1 << bits, shape)


def fp8_codes(rng: np.random.Generator, *shape: int) -> Array:
    """Draw any codes except NaN."""
    codes = rng.integers(0, 254, shape)
    return (codes + (codes > 126)).astype(np.uint8)


def fp8(
    rng: np.random.Generator, rows: int, columns: int, *, scale: str, dtype: str = "F32",
    of: str = "block", block: tuple[int, int] = (128, 128),
) -> Weight:  # fmt: skip
    """Make E4M3 weights with one scale per block, row, group or tensor."""
    codes = fp8_codes(rng, rows, columns)
    height, width = {"block": block, "row": (1, columns), "group": (1, 64), "all": (rows, columns)}[
        of
    ]
    shape = (-(-rows // height), -(-columns // width))
    scales, wide = stored(positive(rng, *shape), dtype)
    values = np.empty((rows, columns), np.float32)
    for r in range(rows):
        for c in range(columns):
            values[r, c] = E4M3[codes[r, c]] * wide[r // height, c // width]
    scales = scales.reshape(1) if of == "all" else scales
    return Weight({"weight": codes, scale: scales}, values, {"weight": "F8_E4M3"})


def gptq(
    rng: np.random.Generator, rows: int, columns: int, *, bits: int = 4, group: int = 64,
    dtype: str = "F16", less: int = 1, order: bool = True,
) -> Weight:  # fmt: skip
    groups = columns // group
    codes = codes_of(rng, bits, rows, columns)
    zeros = codes_of(rng, bits, groups, rows)
    scales, wide = stored(positive(rng, groups, rows, bits=bits), dtype)
    of = np.arange(columns) // group
    values = ((codes - zeros[of].T).astype(np.float32) * wide[of].T).astype(np.float32)
    tensors = {
        "qweight": np.ascontiguousarray(packed(codes, bits).T),
        "qzeros": packed((zeros - less) & ((1 << bits) - 1), bits),
        "scales": scales,
    }
    if order:
        tensors["g_idx"] = of.astype(np.int32)
    return Weight(tensors, values)


def awq(
    rng: np.random.Generator, rows: int, columns: int, *, group: int = 64, dtype: str = "F16"
) -> Weight:
    groups = columns // group
    codes, zeros = codes_of(rng, 4, rows, columns), codes_of(rng, 4, groups, rows)
    scales, wide = stored(positive(rng, groups, rows), dtype)
    of = np.arange(columns) // group
    values = ((codes - zeros[of].T).astype(np.float32) * wide[of].T).astype(np.float32)
    places = [8 * word + AWQ_ORDER[n] for word in range(rows // 8) for n in range(8)]
    return Weight(
        {"qweight": packed(codes.T[:, places], 4), "qzeros": packed(zeros[:, places], 4),
         "scales": scales}, values,
    )  # fmt: skip


def pack_quantized(
    rng: np.random.Generator, rows: int, columns: int, *, bits: int = 4, group: int = 64,
    dtype: str = "BF16", zeros: bool = False,
) -> Weight:  # fmt: skip
    """Make compressed-tensors integers; ``group`` 0: one scale per row."""
    group = group or columns
    half, groups = 1 << (bits - 1), columns // group
    codes = codes_of(rng, bits, rows, columns) - half
    zero = codes_of(rng, bits, rows, groups) - half if zeros else np.zeros((rows, groups), int)
    scales, wide = stored(positive(rng, rows, groups, bits=bits), dtype)
    of = np.arange(columns) // group
    values = ((codes - zero[:, of]).astype(np.float32) * wide[:, of]).astype(np.float32)
    tensors = {
        "weight_packed": packed(codes + half, bits),
        "weight_scale": scales,
        "weight_shape": np.array([rows, columns], np.int64),
    }
    if zeros:
        tensors["weight_zero_point"] = np.ascontiguousarray(packed((zero + half).T, bits).T)
    return Weight(tensors, values)


def int8(rng: np.random.Generator, rows: int, columns: int, *, dtype: str = "BF16") -> Weight:
    codes = rng.integers(-128, 128, (rows, columns))
    scales, wide = stored(positive(rng, rows, 1, bits=8), dtype)
    values = codes.astype(np.float32) * wide
    return Weight({"weight": codes.astype(np.int8), "weight_scale": scales}, values)


def nvfp4(rng: np.random.Generator, rows: int, columns: int, *, maker: str) -> Weight:
    codes = codes_of(rng, 4, rows, columns)
    scales = rng.integers(1, 127, (rows, columns // 16)).astype(np.uint8)
    whole = np.float32(rng.uniform(1e-4, 2e-4))
    if maker == "compressed-tensors":
        names = "weight_packed", "weight_scale", "weight_global_scale"
        stored_whole = np.array([np.float32(1) / whole], np.float32)
        whole = np.float32(1) / stored_whole[0]
    else:
        names = "weight", "weight_scale", "weight_scale_2"
        stored_whole = np.array(whole, np.float32)
    values = np.empty((rows, columns), np.float32)
    for r in range(rows):
        for c in range(columns):
            code = int(codes[r, c])
            value = E2M1[code & 7] * E4M3[scales[r, c // 16]]
            values[r, c] = np.float32(-value if code > 7 else value) * whole
    bytes_ = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    tensors = dict(zip(names, (bytes_, scales, stored_whole), strict=True))
    return Weight(tensors, values, {"weight_scale": "F8_E4M3"})


def mxfp4(rng: np.random.Generator, rows: int, columns: int) -> Weight:
    codes = codes_of(rng, 4, rows, columns)
    exponents = rng.integers(110, 120, (rows, columns // 32)).astype(np.uint8)
    table = np.array([*E2M1, *(-v for v in E2M1)], np.float32)
    factors = np.ldexp(np.float32(1), exponents.astype(int) - 127).repeat(32, axis=1)
    bytes_ = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    values = (table[codes] * factors).astype(np.float32)
    return Weight({"weight_packed": bytes_, "weight_scale": exponents}, values)


Json = dict[str, Any]
Make = Callable[[np.random.Generator, int, int], Weight]


def _ct(form: str, **more: Any) -> Json:
    return {"quant_method": "compressed-tensors", "format": form, **more}


def _made(make: Callable[..., Weight], **options: Any) -> Make:
    return lambda rng, rows, columns: make(rng, rows, columns, **options)


_BLOCKS = {"config_groups": {"group_0": {"weights": {"block_structure": [128, 128]}}}}
_GPTQ = {"quant_method": "gptq", "bits": 4}
_INV = "weight_scale_inv"
# The quantization_config of each layout, and what draws a weight of it.
LAYOUTS: dict[str, tuple[Json, Make]] = {
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, _made(fp8, scale=_INV)),
    "fp8-bf16-scales": ({"quant_method": "fp8"}, _made(fp8, scale=_INV, dtype="BF16")),
    "fp8-small-blocks": (
        {"quant_method": "fp8", "weight_block_size": [48, 64]},
        _made(fp8, scale=_INV, block=(48, 64)),
    ),
    "fp8-rows": (
        {"quant_method": "fp8", "weight_block_size": None},
        _made(fp8, scale=_INV, of="row"),
    ),
    "ct-fp8-rows": (
        _ct("float-quantized"),
        _made(fp8, scale="weight_scale", of="row", dtype="BF16"),
    ),
    "ct-fp8-all": (_ct("float-quantized"), _made(fp8, scale="weight_scale", of="all", dtype="F16")),
    "ct-fp8-groups": (_ct("naive-quantized"), _made(fp8, scale="weight_scale", of="group")),
    "ct-fp8-blocks": (_ct("float-quantized", **_BLOCKS), _made(fp8, scale="weight_scale")),
    "ct-int4-g32": (_ct("pack-quantized"), _made(pack_quantized, group=32)),
    "ct-int4-g64": (_ct("pack-quantized"), _made(pack_quantized, dtype="F16")),
    "ct-int4-rows": (_ct("pack-quantized"), _made(pack_quantized, group=0)),
    "ct-int4-zeros": (_ct("pack-quantized"), _made(pack_quantized, zeros=True)),
    "ct-int8-packed": (_ct("pack-quantized"), _made(pack_quantized, bits=8, zeros=True)),
    "ct-int8": (_ct("int-quantized"), _made(int8)),
    "ct-nvfp4": (_ct("nvfp4-pack-quantized"), _made(nvfp4, maker="compressed-tensors")),
    "ct-mxfp4": (_ct("mxfp4-pack-quantized"), _made(mxfp4)),
    "modelopt-nvfp4": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        _made(nvfp4, maker="modelopt"),
    ),
    "modelopt-fp8": (
        {"quant_method": "modelopt", "quant_algo": "FP8"},
        _made(fp8, scale="weight_scale", of="all"),
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, _made(awq)),
    "awq-g32": ({"quant_method": "awq"}, _made(awq, group=32)),
    "gptq": (_GPTQ, _made(gptq)),
    "gptq-g32-bf16": (_GPTQ, _made(gptq, group=32, dtype="BF16", order=False)),
    "gptq-v2": ({**_GPTQ, "checkpoint_format": "gptq_v2"}, _made(gptq, less=0)),
    "gptq-8": ({"quant_method": "gptq", "bits": 8}, _made(gptq, bits=8)),
    "gptq-2": ({"quant_method": "gptq", "bits": 2}, _made(gptq, bits=2)),
}
