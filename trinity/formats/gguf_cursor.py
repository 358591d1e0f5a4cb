"""A read position in a GGUF file; every read is checked against the end of the file first."""

from __future__ import annotations

import mmap
import struct

from trinity.errors import FormatError
from trinity.formats.gguf_layout import VALUE_TYPES, ValueType

Buffer = bytes | memoryview | mmap.mmap

read_u32 = struct.Struct("<I").unpack_from
read_u64 = struct.Struct("<Q").unpack_from


class GGUFCursor:
    """Reads numbers and text from ``pos`` on; ``part`` names the part of the file, for errors.

    ``ended`` is set if a read failed because the data end too early; a longer beginning may work.
    """

    def __init__(self, buffer: Buffer, source: str, pos: int = 0) -> None:
        self.buffer = buffer
        self.source = source
        self.size = len(buffer)
        self.pos = pos
        self.part = "the header"
        self.ended = False

    @property
    def left(self) -> int:
        """Bytes from the position to the end."""
        return self.size - self.pos

    def error(self, what: str) -> FormatError:
        """Return a FormatError that names the file and the position."""
        return FormatError(
            f"{self.source}: {what} (near byte {self.pos} of {self.size}); "
            "the file is damaged or incomplete: download or convert it again"
        )

    def end_error(self, what: str) -> FormatError:
        """Return a FormatError for data that are too short, and set ``ended``."""
        self.ended = True
        return self.error(what)

    def need(self, size: int, what: str) -> None:
        """Raise FormatError unless ``size`` more bytes exist."""
        if size > self.left:
            raise self.end_error(f"{what} needs {size} bytes, but only {self.left} are left")

    def u32(self, what: str) -> int:
        """Read 4 bytes as an unsigned integer."""
        self.need(4, what)
        value: int = read_u32(self.buffer, self.pos)[0]
        self.pos += 4
        return value

    def u64(self, what: str) -> int:
        """Read 8 bytes as an unsigned integer."""
        self.need(8, what)
        value: int = read_u64(self.buffer, self.pos)[0]
        self.pos += 8
        return value

    def count(self, what: str, min_bytes: int) -> int:
        """Read a u64 that counts records of at least ``min_bytes`` each, which must fit."""
        value = self.u64(what)
        if value * min_bytes > self.left:
            raise self.end_error(
                f"{what} is {value}, which does not fit into the remaining {self.left} bytes"
            )
        return value

    def string(self, what: str, max_bytes: int | None = None) -> str:
        """Read a length and that many bytes of UTF-8."""
        length = self.u64(what)
        if max_bytes is not None and length > max_bytes:
            raise self.error(f"{what} is {length} bytes long; at most {max_bytes} are allowed")
        self.need(length, what)
        raw = bytes(self.buffer[self.pos : self.pos + length])
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8 text ({error.reason})") from error
        self.pos += length
        return text

    def value_type(self, what: str) -> ValueType:
        """Read a value type id."""
        type_id = self.u32(what)
        if type_id not in VALUE_TYPES:
            raise self.error(f"{what} is {type_id}; GGUF has the value types 0 to 12")
        return VALUE_TYPES[type_id]

    def array_header(self) -> tuple[ValueType, int]:
        """Read the element type and the length of an array, which must fit the file."""
        element = self.value_type(f"the element type in {self.part}")
        return element, self.count(f"the element count in {self.part}", element.min_bytes)
