"""Builds safetensors files byte by byte, valid or not."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_NAMES = {
    "float32": "F32", "float16": "F16", "float64": "F64", "uint16": "BF16", "uint8": "U8",
    "int8": "I8", "int32": "I32", "int64": "I64", "uint32": "U32",
}  # fmt: skip
Arrays = Mapping[str, NDArray[np.generic]]


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    """Return a header's entry of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def file_bytes(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """Build a file; ``header`` is text, bytes or an object; ``length`` may be wrong."""
    if isinstance(header, str):
        header = header.encode()
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the upper halves of float32 values, which should be exact."""
    return (np.ascontiguousarray(values, "<f4").view("<u4") >> 16).astype("<u2")


def write_safetensors(path: Path, tensors: Arrays, dtypes: Mapping[str, str] | None = None) -> None:
    """Write a valid file; uint16 arrays are BF16 unless ``dtypes`` names another type."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    reached = 0
    for name, values in tensors.items():
        dtype = (dtypes or {}).get(name) or _NAMES[values.dtype.name]
        raw = values.tobytes()
        header[name] = entry(dtype, list(values.shape), reached, reached + len(raw))
        parts.append(raw)
        reached += len(raw)
    path.write_bytes(file_bytes(header, b"".join(parts)))
