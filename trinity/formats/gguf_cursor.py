"""A position in a GGUF file that is checked against the file's end before every read."""

from __future__ import annotations

import mmap
import struct

from trinity.errors import FormatError
from trinity.formats.gguf_layout import VALUE_TYPES, ValueType

Buffer = bytes | memoryview | mmap.mmap

read_u32 = struct.Struct("<I").unpack_from
read_u64 = struct.Struct("<Q").unpack_from


class GGUFCursor:
    """Reads numbers and text from ``pos`` on; ``part`` names what is being read, for errors.

    ``ended``: something was asked for that lies past the end, where a longer file may have it.
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
        """Bytes from the position to the end of the file."""
        return self.size - self.pos

    def error(self, what: str) -> FormatError:
        """A FormatError that names the file and the place in it."""
        return FormatError(
            f"{self.source}: {what} (near byte {self.pos} of {self.size}); "
            "the file is damaged or incomplete: download or convert it again"
        )

    def end_error(self, what: str) -> FormatError:
        """The same for what the file is too short for."""
        self.ended = True
        return self.error(what)

    def need(self, size: int, what: str) -> None:
        """Raise FormatError unless ``size`` more bytes are there."""
        if size > self.left:
            raise self.end_error(f"{what} needs {size} bytes, but only {self.left} are left")

    def u32(self, what: str) -> int:
        """The next 4 bytes as an unsigned integer."""
        self.need(4, what)
        value: int = read_u32(self.buffer, self.pos)[0]
        self.pos += 4
        return value

    def u64(self, what: str) -> int:
        """The next 8 bytes as an unsigned integer."""
        self.need(8, what)
        value: int = read_u64(self.buffer, self.pos)[0]
        self.pos += 8
        return value

    def count(self, what: str, min_bytes: int) -> int:
        """A u64 that counts records of at least ``min_bytes`` each, which must fit the file."""
        value = self.u64(what)
        if value * min_bytes > self.left:
            raise self.end_error(f"{what} is {value}, which {self.left} bytes cannot hold")
        return value

    def string(self, what: str, max_bytes: int | None = None) -> str:
        """A length and that many bytes of UTF-8."""
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
        """A value type id."""
        type_id = self.u32(what)
        if type_id not in VALUE_TYPES:
            raise self.error(f"{what} is {type_id}; GGUF has the value types 0 to 12")
        return VALUE_TYPES[type_id]

    def array_header(self) -> tuple[ValueType, int]:
        """The element type and the count of an array, which the file is long enough for."""
        element = self.value_type(f"the element type in {self.part}")
        return element, self.count(f"the element count in {self.part}", element.min_bytes)
