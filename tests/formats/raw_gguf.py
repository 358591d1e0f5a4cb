"""Builds GGUF files byte by byte, valid or not, without trinity's writer."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw)) + raw


def key_value(key: str | bytes, type_id: int, payload: bytes) -> bytes:
    return string(key) + u32(type_id) + payload


def array(element: int, count: int, payload: bytes = b"") -> bytes:
    return u32(element) + u64(count) + payload


def strings(*texts: str | bytes) -> bytes:
    return array(STRING, len(texts), b"".join(string(text) for text in texts))


def info(
    name: str | bytes,
    dims: Sequence[int],
    type_id: int = 0,
    offset: int = 0,
    num_dims: int | None = None,
) -> bytes:
    count = len(dims) if num_dims is None else num_dims
    sizes = b"".join(u64(size) for size in dims)
    return string(name) + u32(count) + sizes + u32(type_id) + u64(offset)


def gguf(
    keys: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    head = b"GGUF" + u32(version)
    head += u64(len(infos) if num_tensors is None else num_tensors)
    head += u64(len(keys) if num_keys is None else num_keys)
    head += b"".join(keys) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data
