"""Write tests/data/quants.npz: rows quantized by llama.cpp, and what llama.cpp reads from them.

Usage: python scripts/make_quant_goldens.py path/to/libggml-base.so
The wheel of llama-cpp-python has one.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ggml import TYPES_BY_NAME

# Those whose quantizer searches for the best codes.
NAMES = (
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S",
    "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS",
)  # fmt: skip
ROWS, WIDTH = 2, 512


def main(library: str) -> None:
    """Quantize normally distributed rows, of uneven importance, to every type."""
    ggml = ctypes.CDLL(library)
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    rng = np.random.default_rng(1)
    values = rng.standard_normal((ROWS, WIDTH)).astype(np.float16).astype(np.float32)
    importance = rng.uniform(0.5, 2, WIDTH).astype(np.float32)
    arrays = {"values": values.astype(np.float16)}
    for name in NAMES:
        kind = TYPES_BY_NAME[name]
        data = np.zeros(ROWS * WIDTH // kind.block_size * kind.type_size, np.uint8)
        read = np.zeros_like(values)
        size = ggml.ggml_quantize_chunk(
            kind.id, pointer(values), pointer(data), ctypes.c_int64(0),
            ctypes.c_int64(ROWS), ctypes.c_int64(WIDTH), pointer(importance),
        )  # fmt: skip
        assert size == data.nbytes, name
        dequantize = getattr(ggml, f"dequantize_row_{name.lower().replace('_k', '_K')}")
        dequantize(pointer(data), pointer(read), ctypes.c_int64(read.size))
        arrays[f"{name}.data"], arrays[f"{name}.read"] = data, read
        rmse = np.sqrt(np.mean((read - values) ** 2) / np.mean(values**2))
        print(f"{name}: relative error {rmse:.4f}")
    target = Path(__file__).parents[1] / "tests" / "data" / "quants.npz"
    np.savez_compressed(target, **arrays)  # type: ignore[arg-type]
    print(f"{target}: {target.stat().st_size} bytes")


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    """The address of an array's first byte."""
    return ctypes.c_void_p(array.ctypes.data)


if __name__ == "__main__":
    main(*sys.argv[1:])
