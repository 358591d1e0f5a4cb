"""Read the structure of one GGUF file from a buffer: header, positions of values, tensors.

The file is untrusted: every count and size is a Python integer that is checked against the
remaining bytes before use, and only what is asked for is decoded.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from operator import attrgetter
from typing import NamedTuple

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.foreign import looks_like
from trinity.formats.gguf_cursor import Buffer, GGUFCursor, read_u32, read_u64
from trinity.formats.gguf_layout import (
    ARRAY_ID,
    DEFAULT_ALIGNMENT,
    HEADER_BYTES,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_ARRAY_DEPTH,
    MAX_DIMS,
    MAX_ELEMENTS,
    MAX_INNER_ARRAYS,
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_KEYS_BYTES,
    MAX_METADATA_BYTES,
    MAX_NAME_BYTES,
    MAX_STRINGS,
    MAX_TENSORS,
    MIN_KEY_VALUE_BYTES,
    MIN_TENSOR_INFO_BYTES,
    READABLE_VERSIONS,
    STRING_ID,
    UINT32_ID,
    ValueType,
    is_alignment,
    padded,
)
from trinity.formats.gguf_types import Extent, decide_types


@dataclass(frozen=True, slots=True)
class KeyLocation:
    """The position of one key's value."""

    key: str
    type: ValueType
    offset: int  # first byte of the value, after its type
    end: int  # byte after the value
    element: ValueType | None = None  # element type of an array, None for other values
    count: int = 0


class TensorInfo(NamedTuple):
    """One tensor of the file."""

    name: str
    dims: tuple[int, ...]  # in file order: the row length first
    type: str
    start: int  # byte in the file
    nbytes: int


@dataclass(slots=True)
class GGUFStructure:
    """The structure of a file."""

    version: int
    size: int
    alignment: int = DEFAULT_ALIGNMENT
    data_start: int = 0  # first byte of the tensors' data
    entries: dict[str, KeyLocation] = field(default_factory=dict)
    tensors: list[TensorInfo] = field(default_factory=list)


def read_structure(buffer: Buffer, source: str) -> GGUFStructure:
    """Parse and check all of ``buffer`` except the values and the tensors' data.

    Raises FormatError for a malformed file, UnsupportedError for another version, byte order or
    tensor type; each message begins with ``source``.
    """
    cursor = GGUFCursor(buffer, source)
    num_tensors, structure = _read_keys(cursor)
    _read_tensors(cursor, num_tensors, structure)
    return structure


def read_keys(head: Buffer, source: str, *, whole: bool) -> dict[str, KeyLocation] | None:
    """Read the keys of a file that begins with ``head``, whatever follows them.

    Returns None if the head is too short, unless it is the ``whole`` file. Raises as
    ``read_structure``.
    """
    cursor = GGUFCursor(head, source)
    try:
        return _read_keys(cursor)[1].entries
    except FormatError:
        if whole or not cursor.ended:
            raise
        return None


def _read_keys(cursor: GGUFCursor) -> tuple[int, GGUFStructure]:
    """Read the metadata keys; return the number of tensors, and a structure without tensors."""
    source = cursor.source
    structure = GGUFStructure(version=_read_version(cursor), size=cursor.size)
    cursor.pos = 8
    num_tensors = cursor.count("the number of tensors", MIN_TENSOR_INFO_BYTES)
    num_keys = cursor.count("the number of keys", MIN_KEY_VALUE_BYTES)
    refuse_too_many(source, "tensors", num_tensors, MAX_TENSORS)
    refuse_too_many(source, "keys", num_keys, MAX_KEYS)
    parts, key_bytes = _Parts(), 0
    for _ in range(num_keys):
        entry = _read_input(cursor, parts)
        if entry.key in structure.entries:
            raise cursor.error(f"the key {entry.key!r:.80} occurs twice")
        structure.entries[entry.key] = entry
        key_bytes += len(entry.key.encode())
        refuse_too_many(source, "bytes of keys", key_bytes, MAX_KEYS_BYTES)
        refuse_too_many(source, "bytes of metadata", cursor.pos, MAX_METADATA_BYTES)
    structure.alignment = _read_alignment(cursor, structure.entries.get("general.alignment"))
    return num_tensors, structure


def refuse_too_many(source: str, what: str, count: int, most: int) -> None:
    """Raise FormatError if there are more than ``most``."""
    if count > most:
        raise FormatError(
            f"{source}: {count} {what}, which is more than the limit of {most} and far more than "
            "any model has: the file is damaged or not a model"
        )


@dataclass(slots=True)
class _Parts:
    """Counts of strings and nested arrays, updated while arrays are skipped."""

    strings: int = 0
    arrays: int = 0


def _read_version(cursor: GGUFCursor) -> int:
    head = bytes(cursor.buffer[:64])
    if not head:
        raise FormatError(f"{cursor.source}: the file is empty; download or convert it again")
    if not head.startswith(MAGIC):
        if MAGIC.startswith(head):
            raise cursor.end_error("the file ends within its first 4 bytes")
        kind, advice = looks_like(head, cursor.size)
        raise FormatError(
            f"{cursor.source}: not a GGUF file: it begins with {head[:8]!r} instead of {MAGIC!r} "
            f"and looks like {kind}; {advice}"
        )
    cursor.pos = 4
    version = cursor.u32("the version")
    if version and version & 0xFFFF == 0:
        raise UnsupportedError(
            f"{cursor.source}: the file is big-endian (version {version:#010x}), which is not "
            "supported; convert it with gguf_convert_endian.py of the gguf package"
        )
    if version not in READABLE_VERSIONS:
        advice = (
            "convert the model again with a current llama.cpp"
            if version < min(READABLE_VERSIONS)
            else "the file is damaged or newer than this trinity"
        )
        raise UnsupportedError(
            f"{cursor.source}: GGUF version {version} is not supported; trinity reads versions 2 "
            f"and 3: {advice}"
        )
    cursor.need(HEADER_BYTES - 8, "the header")
    return version


def _read_input(cursor: GGUFCursor, parts: _Parts) -> KeyLocation:
    key = cursor.string("a key", MAX_KEY_BYTES)
    if not key:
        raise cursor.error("a key is empty")
    cursor.part = f"the value of {key!r:.80}"
    value_type = cursor.value_type(f"the value type of {key!r:.80}")
    offset = cursor.pos
    if value_type.id == ARRAY_ID:
        element, count = _skip_array(cursor, parts, depth=1)
        return KeyLocation(key, value_type, offset, cursor.pos, element, count)
    if value_type.id == STRING_ID:
        length = cursor.u64(cursor.part)
        cursor.need(length, cursor.part)
        cursor.pos += length
    else:
        cursor.need(value_type.min_bytes, cursor.part)
        cursor.pos += value_type.min_bytes
    return KeyLocation(key, value_type, offset, cursor.pos)


def _skip_array(cursor: GGUFCursor, parts: _Parts, depth: int) -> tuple[ValueType, int]:
    """Skip an array, after checking that all of it is within the file."""
    if depth > MAX_ARRAY_DEPTH:
        raise cursor.error(f"{cursor.part} nests arrays more than {MAX_ARRAY_DEPTH} deep")
    element, count = cursor.array_header()
    if element.id == STRING_ID:
        parts.strings += count
        refuse_too_many(cursor.source, "strings in arrays", parts.strings, MAX_STRINGS)
        _skip_strings(cursor, count)
    elif element.id == ARRAY_ID:
        parts.arrays += count
        refuse_too_many(cursor.source, "arrays in arrays", parts.arrays, MAX_INNER_ARRAYS)
        for _ in range(count):
            _skip_array(cursor, parts, depth + 1)
    else:
        cursor.pos += count * element.min_bytes
    return element, count


def _skip_strings(cursor: GGUFCursor, count: int) -> None:
    # Vocabularies have up to 400,000 strings, so the loop only adds lengths. If a length leaves the
    # file, the next read or the comparison after the loop fails.
    buffer, pos, read = cursor.buffer, cursor.pos, read_u64
    try:
        for _ in range(count):
            pos += read(buffer, pos)[0] + 8
    except (struct.error, OverflowError):
        pos = cursor.size + 1
    if pos > cursor.size:
        raise cursor.end_error(f"a string in {cursor.part} reaches past the end of the file")
    cursor.pos = pos


def _read_alignment(cursor: GGUFCursor, entry: KeyLocation | None) -> int:
    if entry is None:
        return DEFAULT_ALIGNMENT
    if entry.type.id != UINT32_ID:
        raise cursor.error(f"general.alignment has type {entry.type.name} instead of uint32")
    alignment: int = read_u32(cursor.buffer, entry.offset)[0]
    if not is_alignment(alignment):
        raise cursor.error(
            f"general.alignment is {alignment}, not a power of two from 1 to {MAX_ALIGNMENT}"
        )
    return alignment


def _read_tensors(cursor: GGUFCursor, num_tensors: int, structure: GGUFStructure) -> None:
    cursor.part = "the tensor infos"
    infos = [_read_tensor_info(cursor, structure.alignment) for _ in range(num_tensors)]
    names = set()
    for name, *_ in infos:
        if name in names:
            raise cursor.error(f"the tensor {name!r} occurs twice")
        names.add(name)
    structure.data_start = padded(cursor.pos, structure.alignment)
    if not infos:
        return
    data_size = cursor.size - structure.data_start
    ends = _following_offsets([offset for *_, offset in infos], data_size)
    for name, _, _, offset in infos:
        if offset >= data_size:
            raise cursor.error(
                f"tensor {name!r} begins at byte {offset} of the data, which has only "
                f"{max(data_size, 0)} bytes"
            )
    extents = [
        Extent(name, type_id, dims, ends[offset] - offset) for name, dims, type_id, offset in infos
    ]
    layouts = decide_types(cursor.source, extents, structure.alignment)
    for (name, dims, _, offset), layout in zip(infos, layouts, strict=True):
        if offset + layout.nbytes > data_size:
            raise cursor.error(
                f"tensor {name!r} ({layout.type}, dims {list(dims)}) takes {layout.nbytes} bytes "
                f"from byte {offset} of the data, which has only {data_size}"
            )
        start = structure.data_start + offset
        structure.tensors.append(TensorInfo(name, dims, layout.type, start, layout.nbytes))
    _refuse_overlap(cursor, structure.tensors)


def _read_tensor_info(cursor: GGUFCursor, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string("a tensor name", MAX_NAME_BYTES)
    if not name:
        raise cursor.error("a tensor name is empty")
    num_dims = cursor.u32(f"the number of dims of {name!r}")
    if num_dims > MAX_DIMS:
        raise cursor.error(f"tensor {name!r} has {num_dims} dims; at most {MAX_DIMS} are allowed")
    dims = tuple(cursor.u64(f"dims of {name!r}") for _ in range(num_dims))
    if 0 in dims or prod(dims) > MAX_ELEMENTS:
        raise cursor.error(f"tensor {name!r} has the impossible dims {list(dims)}")
    type_id = cursor.u32(f"the type of {name!r}")
    offset = cursor.u64(f"the offset of {name!r}")
    if offset % alignment:
        raise cursor.error(
            f"the offset {offset} of tensor {name!r} is not a multiple of the alignment {alignment}"
        )
    return name, dims, type_id, offset


def _following_offsets(offsets: list[int], data_size: int) -> dict[int, int]:
    """Map each offset to the next larger one, and the largest to the end of the data."""
    ordered = sorted(set(offsets))
    return dict(zip(ordered, [*ordered[1:], data_size], strict=True))


def _refuse_overlap(cursor: GGUFCursor, tensors: list[TensorInfo]) -> None:
    ordered = sorted(tensors, key=attrgetter("start"))
    for first, second in pairwise(ordered):
        if first.start + first.nbytes > second.start:
            raise cursor.error(f"tensors {first.name!r} and {second.name!r} overlap")
