"""Write tests/data/ggml_blocks.npz and ggml_rows.npz: what ggml decodes and encodes in every type.

For development: needs llama-cpp-python, whose ggml library is called through ctypes. ggml_blocks:
blocks with their values, namely random bytes under finite scales, and what ggml's quantizer makes
of normally distributed values. ggml_rows: what it makes of ``difficult_rows``, with and without
importance.

    python tests/goldens/ggml_blocks.py tests/data
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ggml import TYPES_BY_NAME
from trinity_kernels.quantizers import SEARCHED, WRITABLE
from trinity_kernels.quants import TYPES, QuantType

BLOCKS = 3


class Traits(ctypes.Structure):
    """The first fields of ggml.h's ggml_type_traits."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("blck_size", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
    )


def library() -> Any:
    """Return ggml's base library from llama-cpp-python."""
    import llama_cpp

    found = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    found.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    found.ggml_quantize_chunk.restype = ctypes.c_size_t
    found.ggml_quantize_chunk.argtypes = (
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_int64, ctypes.c_void_p,
    )  # fmt: skip
    return found


def random_blocks(quant: QuantType, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return random codes with finite float scales."""
    data = rng.integers(0, 256, BLOCKS * quant.type_size, np.uint8)
    blocks = data.view(quant.block)
    for name in quant.block.names or ():
        if quant.block[name].kind == "f":
            blocks[name] = rng.normal(size=BLOCKS)
    if quant.name == "IQ1_M":  # its scale is in four parts
        blocks["scales"][:, 3] &= 0xBFFF
    return data


def made_blocks(ggml: Any, quant: QuantType, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Quantize one row with ggml."""
    type_id, k = TYPES_BY_NAME[quant.name].id, BLOCKS * quant.block_size
    values = rng.normal(size=k).astype(np.float32)
    importance = np.abs(rng.normal(size=k)).astype(np.float32)
    data = np.zeros(BLOCKS * quant.type_size, np.uint8)
    ggml.ggml_quantize_init(type_id)
    written = ggml.ggml_quantize_chunk(
        type_id, values.ctypes.data, data.ctypes.data, 0, 1, k, importance.ctypes.data
    )
    assert written == data.nbytes, quant.name
    return data


def values_of(ggml: Any, quant: QuantType, data: NDArray[np.uint8]) -> NDArray[np.float32] | None:
    """Decode blocks with ggml; None if it has no function for the type."""
    traits = ggml.ggml_get_type_traits(TYPES_BY_NAME[quant.name].id).contents
    if not traits.to_float:
        return None
    assert (traits.blck_size, traits.type_size) == (quant.block_size, quant.type_size), quant.name
    convert = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    count = data.nbytes // quant.type_size * quant.block_size
    out = np.zeros(count, np.float32)
    convert(traits.to_float)(data.ctypes.data, out.ctypes.data, count)
    return out


def difficult_rows() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return rows (10, 512) to quantize, and the importance (512,) of their columns."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(10, 512)).astype(np.float32)
    rows[4] *= 1 + 50 * (rng.random(512) < 0.01)  # outliers
    rows[5] *= np.float32(1e-7)
    rows[6] *= np.float32(1e4)
    rows[7] = np.abs(rows[7])
    rows[8] = 1
    rows[9] = 0
    return rows, (rng.normal(size=512) ** 2 + 0.01).astype(np.float32)


def quantized(ggml: Any, quant: QuantType, with_importance: bool) -> NDArray[np.uint8]:
    """Quantize ``difficult_rows`` with ggml."""
    rows, importance = difficult_rows()
    data = np.zeros(quant.nbytes(rows.shape), np.uint8)
    given = importance.ctypes.data if with_importance else None
    type_id = TYPES_BY_NAME[quant.name].id
    ggml.ggml_quantize_chunk(type_id, rows.ctypes.data, data.ctypes.data, 0, *rows.shape, given)
    return data


def main() -> None:
    """Write both files into the folder of the command line."""
    folder, ggml, rng = Path(sys.argv[1]), library(), np.random.default_rng(5)
    written = {}
    for name in sorted(WRITABLE & TYPES_BY_NAME.keys() - {"Q8_1", "Q8_K"}):
        if TYPES[name].block_size > 1 and not TYPES[name].ternary:
            written[name] = quantized(ggml, TYPES[name], False)
            if name in SEARCHED:
                written[f"{name} by importance"] = quantized(ggml, TYPES[name], True)
    np.savez_compressed(folder / "ggml_rows.npz", **written)
    found = {}
    for quant in TYPES.values():
        if quant.name not in TYPES_BY_NAME or quant.block_size == 1:
            continue
        data = random_blocks(quant, rng)
        if quant.name not in ("Q8_1", "Q8_K"):
            data = np.concatenate([data, made_blocks(ggml, quant, rng)])
        values = values_of(ggml, quant, data)
        if values is None:
            print(f"{quant.name}: ggml has no way to float", file=sys.stderr)
            continue
        found[f"{quant.name}.data"], found[f"{quant.name}.values"] = data, values
    np.savez_compressed(folder / "ggml_blocks.npz", **found)


if __name__ == "__main__":
    main()
