"""A GGUF file's metadata as a mapping that decodes values when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.formats.gguf_cursor import Buffer, GGUFCursor, read_u64
from trinity.formats.gguf_layout import ARRAY_ID, BOOL_ID, MAX_TEXT_BYTES, STRING_ID, ValueType
from trinity.formats.gguf_reader import KeyLocation


class GGUFMetadata(Mapping[str, object]):
    """Keys and values in file order.

    Values are bool, int, float or str. Arrays of numbers and bools are read-only 1-D NumPy arrays
    of the file's width; arrays of strings and of arrays are lists. A decoded value is kept. Reading
    raises FormatError for text that is not UTF-8 or too long, InputError if the file is closed and
    the value was not read before.
    """

    def __init__(
        self, source: str, entries: Mapping[str, KeyLocation], open_buffer: Callable[[], Buffer]
    ) -> None:
        self._source = source
        self._entries = entries
        self._open_buffer = open_buffer
        self._decoded: dict[str, object] = {}
        self._added: set[str] = set()  # keys that the file does not have

    def __getitem__(self, key: str) -> object:
        if key not in self._decoded:
            entry = self._entries[key]
            self._decoded[key] = read_value(self._open_buffer(), self._source, entry)
        return self._decoded[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries or key in self._added

    def __iter__(self) -> Iterator[str]:
        yield from self._entries
        yield from self._added

    def __len__(self) -> int:
        return len(self._entries) + len(self._added)

    def override(self, values: Mapping[str, bool | int | float | str]) -> None:
        """Replace values, and add keys that the file does not have, as if they were in the file.

        Raises InputError if the file's value is of another kind.
        """
        for key, value in values.items():
            entry = self._entries.get(key)
            if entry is None:
                self._added.add(key)
            elif (kind := _kind_of(entry)) != type(value).__name__:
                advice = f"write {key}={kind}:VALUE" if kind else "an array cannot be overridden"
                raise InputError(
                    f"{self._source}: override_kv: {key} is of the type {self.value_type(key)}; "
                    f"{advice}"
                )
            self._decoded[key] = value

    def value_type(self, key: str) -> str:
        """Return the type of a value, such as "uint32" or "array[string]", without decoding it."""
        entry = self._entries[key]
        return entry.type.name if entry.element is None else f"array[{entry.element.name}]"

    def array_length(self, key: str) -> int | None:
        """Return the length of an array, or None for other types, without decoding it."""
        entry = self._entries[key]
        return None if entry.element is None else entry.count

    def encoded_length(self, key: str) -> int:
        """Return the size of a value in the file, in bytes."""
        entry = self._entries[key]
        return entry.end - entry.offset

    def encoded(self, key: str) -> bytes:
        """Return a value as the file stores it, preceded by its type."""
        entry = self._entries[key]
        value_type = entry.type.id.to_bytes(4, "little")
        return value_type + bytes(self._open_buffer()[entry.offset : entry.end])


def _kind_of(entry: KeyLocation) -> str:
    """The name of the Python type of a value; "" for arrays."""
    if entry.type.id == ARRAY_ID:
        return ""
    if entry.type.id == STRING_ID:
        return "str"
    if entry.type.id == BOOL_ID:
        return "bool"
    return "float" if entry.type.name.startswith("float") else "int"


def read_value(buffer: Buffer, source: str, entry: KeyLocation) -> object:
    """Decode one value: bool, int, float, str, a NumPy array of numbers, or a list.

    Raises FormatError for text that is not UTF-8 or longer than any model's.
    """
    cursor = GGUFCursor(buffer, source, entry.offset)
    cursor.part = f"the value of {entry.key!r}"
    if entry.type.id == STRING_ID:
        return cursor.string(cursor.part, MAX_TEXT_BYTES)
    if entry.type.id == ARRAY_ID:
        return _read_array(cursor)
    value = _read_numbers(cursor, entry.type, 1)[0]
    return value.item()


def _read_array(cursor: GGUFCursor) -> object:
    element, count = cursor.array_header()
    if element.id == STRING_ID:
        return _read_strings(cursor, count)
    if element.id == ARRAY_ID:
        return [_read_array(cursor) for _ in range(count)]
    return _read_numbers(cursor, element, count)


def _read_strings(cursor: GGUFCursor, count: int) -> list[str]:
    buffer, pos, read = cursor.buffer, cursor.pos, read_u64
    strings: list[str] = []
    append = strings.append
    try:
        for _ in range(count):
            start = pos + 8
            pos = start + read(buffer, pos)[0]
            append(str(buffer[start:pos], "utf-8"))
    except UnicodeDecodeError as error:
        cursor.pos = start
        what = f"string {len(strings)} in {cursor.part}"
        raise cursor.error(f"{what} is not UTF-8 text ({error.reason})") from error
    cursor.pos = pos
    return strings


def _read_numbers(cursor: GGUFCursor, element: ValueType, count: int) -> NDArray[np.generic]:
    view = np.frombuffer(cursor.buffer, np.dtype(element.format), count, cursor.pos)
    cursor.pos += view.nbytes
    # Copied, so that metadata outlives the mapping; any byte but 0 is true, as in llama.cpp.
    values: NDArray[np.generic] = view != 0 if element.id == BOOL_ID else view.copy()
    values.flags.writeable = False
    return values
