"""Read the older format of importance matrices, imatrix.dat.

Layout, little-endian: int32 number of entries; for each entry int32 name length, the name, int32
calls, int32 number of values and that many float32; newer files end with int32 calls of the whole
file, int32 length and name of the text. A value is the mean of the squares times the calls. Source:
llama.cpp tools/imatrix/imatrix.cpp, save_imatrix_legacy().
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError
from trinity.formats.foreign import looks_like
from trinity.formats.gguf_cursor import Buffer, GGUFCursor
from trinity.formats.gguf_layout import MAX_NAME_BYTES, MAX_TENSORS
from trinity.formats.gguf_reader import refuse_too_many

MIN_ENTRY_BYTES = 4 + 1 + 4 + 4 + 4
MAX_TEXT_BYTES = 1 << 16
_read_i32 = struct.Struct("<i").unpack_from


@dataclass(frozen=True, slots=True)
class DatEntry:
    """One weight: ``values`` (n,) float32 are the means of the squares times ``calls``."""

    calls: int
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Dat:
    """A whole file; ``dataset`` is empty if the file does not name its text."""

    entries: dict[str, DatEntry]
    dataset: str


def read_dat(buffer: Buffer, source: str) -> Dat:
    """Parse a file. Raises FormatError, also for another kind of file."""
    cursor = GGUFCursor(buffer, source)
    count = _i32(cursor, "the number of entries") if cursor.size >= 4 else 0
    if not 0 < count * MIN_ENTRY_BYTES <= cursor.left:
        kind, _ = looks_like(bytes(buffer[:64]), cursor.size)
        raise FormatError(
            f"{source}: this is not an importance matrix: it looks like {kind}; give a file that "
            "`trinity imatrix` or llama.cpp's llama-imatrix wrote"
        )
    refuse_too_many(source, "entries", count, MAX_TENSORS)
    entries: dict[str, DatEntry] = {}
    for number in range(count):
        name = _text(cursor, f"the name of entry {number}", MAX_NAME_BYTES)
        if not name or name in entries:
            raise cursor.error(f"the name {name!r} of entry {number} is empty or occurs twice")
        calls = _i32(cursor, f"the calls of {name!r}")
        size = _i32(cursor, f"the number of values of {name!r}")
        if calls < 0 or size < 1:
            raise cursor.error(f"{name!r} has {calls} calls and {size} values")
        cursor.need(4 * size, f"the values of {name!r}")
        values = np.frombuffer(buffer, "<f4", size, cursor.pos).astype(np.float32)
        cursor.pos += 4 * size
        entries[name] = DatEntry(calls, values)
    dataset = ""
    if cursor.left:
        _i32(cursor, "the calls of the file")
        if cursor.left:
            dataset = _text(cursor, "the name of the text", MAX_TEXT_BYTES)
    return Dat(entries, dataset)


def _i32(cursor: GGUFCursor, what: str) -> int:
    cursor.need(4, what)
    value: int = _read_i32(cursor.buffer, cursor.pos)[0]
    cursor.pos += 4
    return value


def _text(cursor: GGUFCursor, what: str, longest: int) -> str:
    length = _i32(cursor, what)
    if not 0 <= length <= longest:
        raise cursor.error(f"{what} is {length} bytes long; 0 to {longest} are possible")
    cursor.need(length, what)
    raw = bytes(cursor.buffer[cursor.pos : cursor.pos + length])
    cursor.pos += length
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise cursor.error(f"{what} is not UTF-8 text ({error.reason})") from error
